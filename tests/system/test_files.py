"""Artifacts: one file for each chat and UTC day, made from what is kept."""

import asyncio
import json
import signal
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert

from command_line import CommandLine
from floodmark.coordination.leader import Leader
from floodmark.errors import Unavailable
from floodmark.model.batch import Batch, Item
from floodmark.model.posts import Chat
from floodmark.schemas import names, schema
from floodmark.settings import Settings, keys
from floodmark.sinks.atomic import Replacement, lock_folder
from floodmark.sinks.delivery import ConfiguredSink, Delivery
from floodmark.sinks.files import Artifacts, FilesSink, folder_of, path_of
from floodmark.sources.telegram.stored_posts import ChatDay, Posts
from floodmark.sources.telegram.tables import telegram_channels
from floodmark.store.tables import outbox
from floodmark.testing.contracts.event_sink import delivery_store
from floodmark.testing.factories import TTL, Opened, given_lease
from floodmark.wiring.resources import Resources, open_resources
from system.channel_posts import DAY, HARBOUR, a_post, keep, validate

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("F4")

HARBOUR_STREAM = f"telegram:{HARBOUR}"
CONSUMER = "sink:files"
TODAY = ChatDay(HARBOUR_STREAM, DAY.date())


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
def posts(resources: Resources) -> Posts:
    return Posts(resources.database)


@pytest.fixture
def artifacts(posts: Posts, tmp_path: Path) -> Artifacts:
    return Artifacts(posts, tmp_path / "out")


@pytest.fixture
async def leader(resources: Resources) -> Leader:
    leader = Leader(resources.leases, resources.events, name="leader", holder=resources.name, ttl=TTL)
    await leader.step()
    return leader


def delivery(resources: Resources, artifacts: Artifacts, posts: Posts, leader: Leader) -> Delivery:
    sink = ConfiguredSink(name="files", kind="files", sink=FilesSink(artifacts, posts))
    return Delivery(sink, delivery_store(resources), leader, resources.events)


@pytest.fixture
def project(resources: Resources, artifacts: Artifacts, posts: Posts, leader: Leader) -> Callable[[], Awaitable[int]]:
    """Relay, and let the projector do all there is to do; in how many steps."""

    async def relay(_: Any) -> None: ...

    async def work() -> int:
        await resources.keeping.relay(relay, limit=10_000)
        projector = delivery(resources, artifacts, posts, leader)
        steps = 1
        while await projector.step() is not None:
            steps += 1
        return steps

    return work


def read(artifacts: Artifacts, of: ChatDay = TODAY) -> Any:
    """The file of a day, which must be as its schema says."""
    document = json.loads(path_of(artifacts.folder, of).read_text(encoding="utf-8"))
    validate("artifact-1.0.0", document)
    return document


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.spec("F3")
async def test_a_day_of_a_chat_is_one_file(resources: Resources, artifacts: Artifacts) -> None:
    # By their numbers, not as text and not by the order in which they came.
    await keep(resources, [a_post(100), a_post(9, 'Ж \u202e 👍 \\ " \u2028', views=3), a_post(10, gone=True)])
    await keep(resources, [a_post(101, at=DAY + timedelta(days=1)), a_post(8, at=DAY - timedelta(microseconds=1))])

    assert await artifacts.write(TODAY) is True

    document = read(artifacts)
    messages = document.pop("messages")
    assert document == {
        "schema_version": "1.0.0",
        "timezone": "UTC",
        "chat": {"id": HARBOUR, "username": None, "title": None},
        "date": "2026-06-01",
        "last_processed_msg_id": 100,
        "message_count": 3,
    }
    assert [message["idempotency_key"] for message in messages] == [f"{HARBOUR}:2026-06-01:{n}" for n in (9, 10, 100)]
    assert [message.get("deleted") for message in messages] == [None, True, None]
    assert messages[0]["text"] == 'Ж \u202e 👍 \\ " \u2028'
    assert messages[0]["views"] == 3
    assert files_in(artifacts.folder) == {f"{HARBOUR}/2026-06-01.json"}


@pytest.mark.spec("F3")
async def test_what_is_unchanged_is_not_written_again(resources: Resources, artifacts: Artifacts) -> None:
    await keep(resources, [a_post(1), a_post(2)])
    await artifacts.write(TODAY)
    path = path_of(artifacts.folder, TODAY)
    before, written_at = path.read_bytes(), path.stat().st_mtime_ns

    assert await artifacts.write(TODAY) is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, written_at)
    path.unlink()
    assert await artifacts.write(TODAY) is True
    assert path.read_bytes() == before
    await keep(resources, [a_post(2, "edited")])
    assert await artifacts.write(TODAY) is True
    assert [message["text"] for message in read(artifacts)["messages"]] == ["News", "edited"]


async def test_the_bytes_are_the_same_on_every_store(sqlite: Opened, postgres_only: Opened, tmp_path: Path) -> None:
    content = []
    for name, opened in (("sqlite", sqlite), ("postgres", postgres_only)):
        async with opened() as resources:
            await keep(
                resources, [a_post(n, f"{n} ж", views=n, media={"type": "photo", "id": "1"}) for n in range(1, 6)]
            )
            await Artifacts(Posts(resources.database), tmp_path / name).write(TODAY)
        content.append(path_of(tmp_path / name, TODAY).read_bytes())

    assert content[0] == content[1]


async def test_a_chat_is_named_as_the_account_that_looked_last_knows_it(
    resources: Resources, artifacts: Artifacts
) -> None:
    await keep(resources, [a_post(1, channel="old"), a_post(2, channel="harbour")])
    await artifacts.write(TODAY)
    assert read(artifacts)["chat"] == {"id": HARBOUR, "username": "harbour", "title": None}

    known = [("reader1", "pier", DAY), ("reader2", "quay", DAY + timedelta(days=1)), ("reader3", "dock", DAY)]
    async with resources.database.writing() as connection:
        for account, name, at in known:
            values = {"account": account, "channel_id": HARBOUR, "access_hash": 1, "username": name}
            await connection.execute(
                insert(telegram_channels).values(**values, title=f"../{name}\n/etc", updated_at=at)
            )
    await artifacts.write(TODAY)

    assert read(artifacts)["chat"] == {"id": HARBOUR, "username": "quay", "title": "../quay\n/etc"}
    assert files_in(artifacts.folder) == {f"{HARBOUR}/2026-06-01.json"}


@pytest.mark.thorough
async def test_tenants_do_not_meet(resources: Resources, artifacts: Artifacts) -> None:
    tenants = [None, "acme", "ACME", "../..", "a:b/c", str(HARBOUR), "x" * 300, "x" * 301, "ж"]
    for number, tenant in enumerate(tenants, 1):
        whose = "" if tenant is None else f"{tenant}:"
        stream = f"telegram:{whose}{HARBOUR}"
        await keep(resources, [a_post(number)], stream=stream, tenant_id=tenant)
        await artifacts.write(ChatDay(stream, DAY.date()))
        assert [m["id"] for m in read(artifacts, ChatDay(stream, DAY.date()))["messages"]] == [number]

    found = files_in(artifacts.folder)
    assert len({path.lower() for path in found}) == len(tenants)
    assert f"tenant-acme/{HARBOUR}/2026-06-01.json" in found
    assert f"tenant-%2e%2e%2f%2e%2e/{HARBOUR}/2026-06-01.json" in found
    assert folder_of(artifacts.folder, Chat(5, "x" * 9999)).parent.parent == artifacts.folder


async def test_an_empty_day_has_a_file_that_says_so(artifacts: Artifacts) -> None:
    await artifacts.write(TODAY)

    document = read(artifacts)
    assert (document["message_count"], document["last_processed_msg_id"], document["messages"]) == (0, None, [])


async def test_the_days_of_a_stream_are_found_without_reading_its_posts(resources: Resources, posts: Posts) -> None:
    await keep(resources, [a_post(n, at=DAY + timedelta(days=n // 10, hours=n % 10)) for n in range(100)])
    await keep(resources, [Item("x", 1, DAY)], stream="news")
    await keep(resources, [a_post(1, chat=7)], stream="telegram:acme:7")
    first, last = date(2026, 6, 3), date(2026, 6, 4)

    assert [stream async for stream in posts.streams()] == [HARBOUR_STREAM, "telegram:acme:7"]
    assert [of.day.day async for of in posts.days(HARBOUR_STREAM)] == list(range(1, 11))
    assert [of.day async for of in posts.days(HARBOUR_STREAM, first, last)] == [first, last]


@pytest.mark.spec("F5")
@pytest.mark.thorough
async def test_memory_does_not_grow_with_the_day(sqlite: Opened, tmp_path: Path) -> None:
    async with sqlite() as resources:
        peaks = []
        lease = await given_lease(resources)
        artifacts = Artifacts(Posts(resources.database), tmp_path)
        for chat, count in ((1, 1_800), (2, 4_200)):
            for start in range(0, count, 600):
                many = [a_post(n, "x" * 2000, chat=chat, at=DAY) for n in range(start, start + 600)]
                await resources.keeping.keep(lease, Batch(many, stream=f"telegram:{chat}"))
            tracemalloc.start()
            await artifacts.write(ChatDay(f"telegram:{chat}", DAY.date()))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert path_of(tmp_path, ChatDay("telegram:2", DAY.date())).stat().st_size > 8_000_000

    assert peaks[1] < peaks[0] + 1_000_000, peaks


async def test_two_writers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.sinks.atomic._PATIENCE_SECONDS", 0.0)
    async with lock_folder(tmp_path, tmp_path):
        (tmp_path / ".left.json.1234.tmp").touch()
        with pytest.raises(Unavailable, match="another process"):
            await lock_folder(tmp_path, tmp_path).__aenter__()
    async with lock_folder(tmp_path, tmp_path):
        assert files_in(tmp_path) == set()


async def test_a_folder_that_cannot_be_written_is_named(artifacts: Artifacts) -> None:
    artifacts.folder.write_text("a file")

    with pytest.raises(Unavailable, match="cannot be written to: Not a directory"):
        await artifacts.write(TODAY)


DYING = """
import os, signal, sys
from pathlib import Path
from floodmark.sinks.atomic import Replacement
file, kill_in = Replacement(Path(sys.argv[1])), sys.argv[2]
setattr(os, kill_in, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
file.write(b"half a file")
file.commit()
"""


@pytest.mark.spec("G3")
@pytest.mark.parametrize("kill_in", ["fsync", "replace"])
async def test_a_kill_leaves_the_old_file_whole_and_what_is_left_is_swept(tmp_path: Path, kill_in: str) -> None:
    path = tmp_path / "2026-06-01.json"
    path.write_text("whole")

    dying = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(path), kill_in)

    assert await dying.wait() == -signal.SIGKILL
    assert path.read_text() == "whole"
    assert len(files_in(tmp_path)) == 2
    async with lock_folder(tmp_path, tmp_path):
        assert files_in(tmp_path) == {path.name}
        file = Replacement(path)
        file.write(b"new")
        assert file.commit() is True
    assert path.read_text() == "new"


class TestContinuously:
    @pytest.mark.thorough
    async def test_a_new_folder_is_filled_and_then_follows(
        self, resources: Resources, artifacts: Artifacts, project: Callable[[], Awaitable[int]]
    ) -> None:
        await keep(resources, [a_post(n, at=DAY + timedelta(days=n)) for n in range(1, 23)])
        await keep(resources, [a_post(1, chat=7)], stream="telegram:acme:7")
        assert await project() > 2
        assert len(files_in(artifacts.folder)) == 23

        await keep(resources, [a_post(2, "edited", at=DAY + timedelta(days=2)), a_post(23, at=DAY + timedelta(days=2))])
        await keep(resources, [Item("n", 1, DAY)], stream="news")
        await project()

        texts = [m["text"] for m in read(artifacts, ChatDay(HARBOUR_STREAM, date(2026, 6, 3)))["messages"]]
        assert texts == ["edited", "News"]
        assert len(files_in(artifacts.folder)) == 23

    async def test_only_days_that_were_touched_are_written(
        self, resources: Resources, artifacts: Artifacts, project: Callable[[], Awaitable[int]]
    ) -> None:
        await keep(resources, [a_post(1), a_post(2, at=DAY + timedelta(days=1))])
        await project()
        path_of(artifacts.folder, TODAY).unlink()

        await keep(resources, [a_post(3, at=DAY + timedelta(days=1))])
        assert await project() == 1

        assert files_in(artifacts.folder) == {f"{HARBOUR}/2026-06-02.json"}

    @pytest.mark.thorough
    async def test_a_long_portion_is_done_in_bounded_steps(
        self, resources: Resources, artifacts: Artifacts, posts: Posts, project: Callable[[], Awaitable[int]]
    ) -> None:
        await project()
        # One event a day, and back again: the files of a portion are bounded, and none is forgotten.
        await keep(resources, [a_post(n, at=DAY + timedelta(days=n % 25)) for n in range(1, 51)])
        await project()

        assert await FilesSink(artifacts, posts).send(await resources.repositories.events.after(0, 100)) == 20

        assert len(files_in(artifacts.folder)) == 25
        for day in range(25):
            of = ChatDay(HARBOUR_STREAM, (DAY + timedelta(days=day)).date())
            assert read(artifacts, of)["message_count"] == 2

    async def test_what_was_killed_before_the_cursor_moved_is_repeated_without_harm(
        self, resources: Resources, artifacts: Artifacts, project: Callable[[], Awaitable[int]]
    ) -> None:
        await project()
        consumers = resources.repositories.consumers
        before = await consumers.find(CONSUMER)
        assert before is not None
        await keep(resources, [a_post(1)])
        await project()
        content = path_of(artifacts.folder, TODAY).read_bytes()

        await consumers.start(CONSUMER, before.position, place=before.place, state=before.state)
        await project()

        assert path_of(artifacts.folder, TODAY).read_bytes() == content
        after = await consumers.find(CONSUMER)
        assert after is not None
        assert after.position > before.position

    @pytest.mark.parametrize("lost", ["events", "folder", "time"])
    async def test_a_folder_that_was_left_behind_is_filled_again(
        self, resources: Resources, artifacts: Artifacts, project: Callable[[], Awaitable[int]], lost: str
    ) -> None:
        await keep(resources, [a_post(1)])
        await project()
        consumers = resources.repositories.consumers
        stored = await consumers.find(CONSUMER)
        assert stored is not None
        position = {"events": stored.position - 1, "folder": stored.position, "time": 10**6}[lost]
        await keep(resources, [a_post(2), a_post(3)])
        await resources.keeping.relay(lambda _: _nothing(), limit=10)
        await consumers.start(CONSUMER, position, place="/elsewhere" if lost == "folder" else stored.place)
        if lost == "events":
            # As the pruner leaves it.
            async with resources.database.writing() as connection:
                await connection.execute(delete(outbox).where(outbox.c.position <= stored.position + 1))
        await project()

        assert read(artifacts)["message_count"] == 3
        filled = await consumers.find(CONSUMER)
        assert filled is not None
        assert filled.state is None

    async def test_only_the_leader_writes(
        self, resources: Resources, artifacts: Artifacts, posts: Posts, leader: Leader
    ) -> None:
        await keep(resources, [a_post(1)])
        await leader.resign()

        assert await delivery(resources, artifacts, posts, leader).step() is None

        assert not artifacts.folder.exists()


async def _nothing() -> None: ...


def test_a_day_is_that_of_utc() -> None:
    assert path_of(Path("out"), ChatDay("telegram:5", datetime(2026, 6, 1, 23, 59, tzinfo=UTC).date())) == Path(
        "out/5/2026-06-01.json"
    )


class TestExport:
    """The command."""

    @pytest.fixture(autouse=True)
    def no_settings_from_outside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in keys():
            monkeypatch.delenv(key, raising=False)

    @pytest.fixture
    def cli(self, sqlite_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
        """Two channels with three days, and a job that collects none."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.path", list(sys.path))
        asyncio.run(self._collect(sqlite_copy))
        return CommandLine(tmp_path, DATABASE_URL=sqlite_copy)

    async def _collect(self, url: str) -> None:
        async with open_resources(Settings(database_url=url)) as resources:
            await keep(resources, [a_post(1), a_post(2, at=DAY + timedelta(days=1))], name="harbour", target="@harbour")
            await keep(resources, [a_post(1, chat=7)], stream="telegram:7", name="seven", target="7")
            await keep(resources, [Item("x", 1)], stream="news", name="news")

    def test_everything_is_written_once(self, cli: CommandLine, tmp_path: Path) -> None:
        first = cli.good("export", "files", "--out", "out", "--json").json
        second = cli.good("export", "files", "--out", "out", "--json").json

        assert first == {"folder": "out", "chats": 2, "written": 3, "unchanged": 0}
        assert second == {"folder": "out", "chats": 2, "written": 0, "unchanged": 3}
        assert files_in(tmp_path / "out") == {
            f"{HARBOUR}/2026-06-01.json",
            f"{HARBOUR}/2026-06-02.json",
            "7/2026-06-01.json",
        }
        assert "0 files written, 3 unchanged" in cli.good("export", "files", "--out", "out").out

    def test_a_part_of_it_can_be_named(self, cli: CommandLine, tmp_path: Path) -> None:
        cli.good("export", "files", "--out", "a", "--job", "harbour", "--since", "2026-06-02")
        cli.good("export", "files", "--out", "b", "--stream", "telegram:7")
        cli.good("export", "files", "--out", "c", "--until", "2026-06-01")
        cli.settings["ARTIFACTS_DIR"] = "d"
        cli.good("export", "files", "--since", "2026-06-02", "--until", "2026-06-02")

        assert files_in(tmp_path / "a") == {f"{HARBOUR}/2026-06-02.json"}
        assert files_in(tmp_path / "b") == {"7/2026-06-01.json"}
        assert files_in(tmp_path / "c") == {f"{HARBOUR}/2026-06-01.json", "7/2026-06-01.json"}
        assert files_in(tmp_path / "d") == {f"{HARBOUR}/2026-06-02.json"}

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ((), "no folder for the files is given"),
            (("--out", "feeds.py"), "feeds.py is a file, not a folder"),
            (("--out", "out", "--since", "yesterday"), "'yesterday' is not a day"),
            (("--out", "out", "--since", "2026-06-02", "--until", "2026-06-01"), "comes before"),
            (("--out", "out", "--job", "nothing"), "there is no job 'nothing'"),
            (("--out", "out", "--job", "news"), "has no posts of a channel"),
            (("--out", "out", "--stream", "telegram:8"), "there is no stream 'telegram:8'"),
            (("--out", "out", "--job", "seven", "--stream", "telegram:7"), "contradict each other"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, cli: CommandLine, tmp_path: Path, options: tuple[str, ...], says: str
    ) -> None:
        cli.refused("export", "files", *options, says=says)

        assert not (tmp_path / "out").exists()

    def test_a_folder_that_cannot_be_made_is_named(self, cli: CommandLine) -> None:
        cli.refused("export", "files", "--out", "feeds.py/out", says="feeds.py/out", code=1)

    def test_a_schema_is_printed(self, cli: CommandLine) -> None:
        assert cli.good("export", "schema").out.split() == names()
        assert cli.good("export", "schema", "artifact-1.0.0").json == schema("artifact-1.0.0")
        cli.refused("export", "schema", "nothing", says="there is no schema 'nothing'")
