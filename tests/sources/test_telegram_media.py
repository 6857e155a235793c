"""Files of posts: each once, whole, and never before the text."""

import hashlib
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from telethon.tl import types

from floodmark.client.client import Client
from floodmark.errors import InvalidInput
from floodmark.model.media import MediaRow
from floodmark.sources.telegram.media_files import MediaFiles
from floodmark.sources.telegram.media_folder import path_of
from floodmark.sources.telegram.targets import parse_params
from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend, trust_loopback
from floodmark.testing.telegram import media as made
from telegram_desk import Desk, expected, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

GET_FILE = "upload.getFile"
PART = 256 * 1024


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def pier(backend: TelegramBackend) -> Channel:
    return backend.channel("pier")


def content(size: int, seed: int = 1) -> bytes:
    return hashlib.shake_256(bytes([seed])).digest(size)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def files(desk: Desk) -> dict[str, MediaRow]:
    rows = await MediaFiles(desk.resources.database, desk.resources.clock).page(
        state=None, stream=None, after=None, limit=500
    )
    return {row.media_id: row for row in rows}


async def settled(desk: Desk, *states: str) -> dict[str, MediaRow]:
    """Wait until every file is in one of these states."""

    async def check() -> dict[str, MediaRow]:
        found = await files(desk)
        assert found
        assert {row.state for row in found.values()} <= set(states), [
            (r.media_id, r.state, r.error) for r in found.values()
        ]
        return found

    return await eventually(check)


def stored(folder: Path) -> dict[str, bytes]:
    """The contents in a folder, by their names."""
    return {path.name: path.read_bytes() for path in (folder / "media").glob("??/*")}


@pytest.mark.spec("B11", "G1")
@pytest.mark.thorough
async def test_files_are_stored_once_under_the_hash_of_their_content(
    server: LoopbackTelegram, backend: TelegramBackend, pier: Channel, url: str, tmp_path: Path
) -> None:
    big, large = content(3 * PART + 77), content(5 * PART)
    document = backend.upload(big, name="../../etc/pass\0wd", has_thumb=True)
    again, too_large = backend.upload(big), backend.upload(large, mime="video/mp4")
    pier.post("one", media=document)
    pier.post("the same, forwarded", media=document)
    pier.post("the same, uploaded again", media=again)
    pier.post("too large", media=too_large)
    pier.post("not wanted", media=made.webpage("https://example.org", "T"))
    pier.post("photo", media=made.photo("a"))
    async with working(server, url, artifacts_dir=tmp_path, telegram_media_per_minute=100_000) as desk:
        params = {"media": "photo,document,video", "max_size": f"{5 * PART - 1}"}
        job = await desk.collected("@pier", params=params)
        found = await settled(desk, "stored", "skipped")

        photo_id = made.photo("a").photo.id
        whole = {sha256(big): big, sha256(made.content(photo_id, 0, 10**6)): made.content(photo_id, 0, 10**6)}
        thumbs = [made.thumbnail(media_id, 0, 10**6) for media_id in (photo_id, document.document.id)]
        assert stored(tmp_path) == whole | {sha256(thumb): thumb for thumb in thumbs}
        first, second = (found[str(one.document.id)] for one in (document, again))
        assert first.sha256 == second.sha256 == sha256(big)
        assert found[str(too_large.document.id)].state == "skipped"
        assert found[str(too_large.document.id)].error == "larger than 1.3 MB"
        assert found[f"{photo_id}:thumb"].kind == "thumbnail"
        assert list((tmp_path / "media" / "partial").iterdir()) == []

        async with httpx2.AsyncClient(base_url=desk.url, timeout=60, trust_env=False) as http:
            shown = (await http.get("/metrics")).text
        assert 'floodmark_media_files_total{type="photo"} 1.0' in shown
        assert "floodmark_media_bytes_total" in shown

        # Posted once more: nothing is downloaded.
        server.forget()
        pier.post("and once more", media=document)
        await desk.run(job)
        assert await files(desk) == found
        assert server.calls(GET_FILE) == []

        async with Client(desk.url) as client:
            page = await client.media(state="skipped", stream=job.name)
            assert [row.media_id for row in page.items] == [str(too_large.document.id)]
            changed = await client.retry_media(media_id=str(too_large.document.id))
            assert (changed.files, changed.size) == (1, len(large))
            found = await settled(desk, "stored")
            assert (await client.media_file(sha256(large))).state == "stored"


@pytest.mark.spec("B11", "T4")
@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_a_file_is_whole_after_lost_connections(
    server: LoopbackTelegram, pier: Channel, sqlite_copy: str, tmp_path: Path, when: Any
) -> None:
    big = content(8 * PART)
    pier.post("big", media=pier.backend.upload(big))
    for after in (1, 3, 4):
        server.drop(when=when, method=GET_FILE, after=after)
    async with working(server, sqlite_copy, artifacts_dir=tmp_path, telegram_media_per_minute=100_000) as desk:
        await desk.collected("@pier", params={"media": "document"})
        await settled(desk, "stored")
        assert stored(tmp_path) == {sha256(big): big}


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_expired_references_are_renewed_and_deleted_posts_are_given_up(
    server: LoopbackTelegram, backend: TelegramBackend, pier: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    big = content(4 * PART + 1)
    pier.post("big", media=backend.upload(big))
    lost = pier.post("lost", media=made.photo("lost"))
    server.fail(GET_FILE, "FILE_REFERENCE_EXPIRED", after=2)
    async with working(server, sqlite_copy, telegram_media_per_minute=100_000) as desk:
        await desk.collected("@pier", params={"media": "all"})
        assert {row.state for row in (await files(desk)).values()} == {"wanted"}
    backend.expire_references()
    pier.delete(lost)
    async with working(server, sqlite_copy, artifacts_dir=tmp_path, telegram_media_per_minute=100_000) as desk:
        found = await settled(desk, "stored", "gone")
        assert stored(tmp_path) == {sha256(big): big}
        [reason] = {row.error for row in found.values() if row.state == "gone"}
        assert reason == "the post was deleted before its file was downloaded"
        # Two parts, the expired reference, and from there on with the new one.
        offsets = len(server.calls(GET_FILE))
        assert offsets == 2 + 1 + 3


@pytest.mark.spec("B11", "T4")
@pytest.mark.thorough
async def test_a_flood_wait_of_downloads_delays_no_text(
    server: LoopbackTelegram, backend: TelegramBackend, pier: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    pier.post("with a file", media=backend.upload(content(2 * PART)))
    flood = server.flood(GET_FILE, seconds=600)
    async with working(server, sqlite_copy, artifacts_dir=tmp_path) as desk:
        job = await desk.collected("@pier", params={"media": "document"})

        async def is_flooded() -> bool:
            assert flood.met == 1
            keys = [limit.key for limit in await desk.limits.page()]
            return keys == ["telegram:reader1:media:upload.getFile"]

        await eventually(is_flooded)
        for number in range(3):
            pier.post(f"text {number}")
            ended = await desk.run(job)
            assert (ended.state, ended.items_new) == ("done", 1)
        assert list(await desk.posts(stream_of(pier))) == expected(pier)
        assert server.violations == []
        assert {row.state for row in (await files(desk)).values()} == {"wanted"}


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_a_file_that_cannot_be_downloaded_is_tried_again_and_then_failed(
    server: LoopbackTelegram, backend: TelegramBackend, pier: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    pier.post("with a file", media=backend.upload(content(100)))
    refusal = server.fail(GET_FILE, "LOCATION_INVALID", times=None)
    async with working(server, sqlite_copy, artifacts_dir=tmp_path) as desk:
        await desk.collected("@pier", params={"media": "document"})

        async def has_failed() -> MediaRow:
            [row] = (await files(desk)).values()
            assert row.attempts == 1
            return row

        row = await eventually(has_failed)
        assert row.state == "wanted"
        assert "LOCATION_INVALID" in (row.error or "") or "location" in (row.error or "").lower()
        assert row.try_at - desk.resources.clock.now() > timedelta(seconds=20)
        server.remove(refusal)
        # As after the last attempt.
        repository = MediaFiles(desk.resources.database, desk.resources.clock)
        [claimed] = [row.media_id]
        assert await repository.retry(media_id=claimed, state="wanted", stream=None, is_dry=False) == (1, 100)
        await settled(desk, "stored")


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_pruned_files_are_deleted_unless_another_one_needs_the_content(
    server: LoopbackTelegram, backend: TelegramBackend, pier: Channel, url: str, tmp_path: Path
) -> None:
    shared, alone = content(1_000), content(2_000, seed=2)
    other = backend.channel("other")
    pier.post("shared", media=backend.upload(shared))
    pier.post("alone", media=backend.upload(alone))
    other.post("shared", media=backend.upload(shared))
    async with working(server, url, artifacts_dir=tmp_path, telegram_media_per_minute=100_000) as desk:
        await desk.collected("@pier", params={"media": "document"})
        await desk.run(await desk.job("@other", params={"media": "document"}))
        await settled(desk, "stored")
        assert set(stored(tmp_path)) == {sha256(shared), sha256(alone)}
        for digest in stored(tmp_path):
            os.utime(path_of(tmp_path, digest), (0, 0))
        async with Client(desk.url) as client:
            planned = await client.prune_media(0, stream=stream_of(pier), dry_run=True)
            assert (planned.files, planned.size, planned.applied) == (2, 3_000, False)
            assert (await client.prune_media(0, stream=stream_of(pier))).files == 2

        async def is_deleted() -> bool:
            return set(stored(tmp_path)) == {sha256(shared)}

        await eventually(is_deleted)


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_a_file_of_another_data_centre_is_downloaded_from_there(
    server: LoopbackTelegram, backend: TelegramBackend, pier: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    trust_loopback()
    far = content(PART + 5)
    pier.post("far", media=backend.upload(far, dc=4))
    async with working(server, sqlite_copy, artifacts_dir=tmp_path, telegram_media_per_minute=100_000) as desk:
        await desk.collected("@pier", params={"media": "document"})
        await settled(desk, "stored")
        assert stored(tmp_path) == {sha256(far): far}
        assert [call.result for call in server.calls("auth.importAuthorization")] == ["ok"]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"media": "photos"}, "'photos' is not a kind of file"),
        ({"media": ""}, "no kind of file is named"),
        ({"max_size": "20MB"}, "no media are wanted"),
        ({"media": "photo", "max_size": "big"}, "is not a size"),
        ({"media": "photo", "max_size": "0"}, "is not a size"),
    ],
)
def test_params_of_media_that_make_no_sense_are_refused(params: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        parse_params(params)
    assert refused.value.hint


def test_params_of_media_are_understood() -> None:
    rules = parse_params({"media": "photo, Video", "max_size": "20MB"}).media_rules
    assert rules is not None
    assert (rules.kinds, rules.max_size) == (frozenset({"photo", "video"}), 20_000_000)
    assert parse_params({}).media_rules is None
    assert isinstance(made.photo("x"), types.MessageMediaPhoto)
