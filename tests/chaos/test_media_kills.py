"""Processes die while they download files: the next one goes on where they were, and every file is whole."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.fleet import Fleet, eventually
from chaos.town import Town, town_on
from floodmark.process.failpoints import MEDIA_POINTS
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

SIGKILLED = -9
PATIENCE = 180.0
PART = 256 * 1024
PARTS = 12
KILLS = ("media.part:kill@5", "media.placed:kill", "media.part:kill")


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    backend = TelegramBackend(seed=11)
    backend.account("reader1")
    backend.channel("pier")
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as one:
        yield one


@pytest.mark.spec("B11", "G1", "G3")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite_url", pytest.param("pg_url", marks=pytest.mark.release)])
@pytest.mark.thorough
async def test_files_are_whole_after_kills_at_every_step(
    fleet: Fleet, server: LoopbackTelegram, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    assert {kill.partition(":")[0] for kill in KILLS} == set(MEDIA_POINTS)
    pier = server.backend.find_channel("pier")
    assert pier is not None
    contents = [hashlib.shake_256(bytes([seed])).digest(size) for seed, size in ((1, PARTS * PART + 9), (2, 1_000))]
    for content in contents:
        pier.post("with a file", media=server.backend.upload(content))
    settings: dict[str, Any] = {"artifacts_dir": str(tmp_path), "telegram_media_per_minute": 100_000}
    async with town_on(fleet, server, request.getfixturevalue(database), **settings) as town:
        job = await town.desk.job("@pier", params={"history": "all", "media": "document"})
        await town.desk.ask(job)
        for number, kill in enumerate(KILLS):
            await town.start(f"up-{number}", failpoint=kill)
            assert await fleet.ended(f"up-{number}", PATIENCE) == SIGKILLED, fleet.tails()
        await town.start("up-last")
        await eventually(lambda: unfinished(town), lambda left: left == 0, seconds=PATIENCE, what="files stored")
        found = {path.name: path.read_bytes() for path in (tmp_path / "media").glob("??/*")}
        assert found == {hashlib.sha256(content).hexdigest(): content for content in contents}
        assert await town.probe.value("SELECT count(*) FROM items") == len(contents)
        # The parts of the large file that were written before a kill are not read again, unless it was in its place
        # already: then it may be read once more.
        assert len(server.calls("upload.getFile")) <= 2 * (PARTS + 1) + 2 + len(KILLS)


async def unfinished(town: Town) -> int:
    return int(await town.probe.value("SELECT count(*) FROM media WHERE state <> 'stored'"))
