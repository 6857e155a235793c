"""`fetch`: certain days of certain chats, read by the real Telethon and written into files."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url

from api.serving import served
from command_line import CommandLine, eventually
from conftest import started
from floodmark import Floodmark
from floodmark.client import Client
from floodmark.errors import Unavailable
from floodmark.observability.events import ExecutionSettled, ExecutionStarted, InternalEvent
from floodmark.repositories.jobs import Jobs
from floodmark.runtime.fetch import Fetch, FetchedChat, Progress, RemoteFetch, Wanted, Watch
from floodmark.settings import Settings, keys
from floodmark.sinks.files import Artifacts
from floodmark.sources.port import Source
from floodmark.sources.telegram.stored_posts import ChatDay, Posts
from floodmark.store.tables import audit, items, job_executions, jobs, watermarks
from floodmark.testing.eventually import eventually as eventually_here
from floodmark.testing.factories import expire, rows_of
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from floodmark.wiring.resources import Resources, open_resources
from servers import Pushgateway
from system.channel_posts import validate
from telegram_desk import QUICK, SECRET, Desk, asked, collect_some, working

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("F3", "F5")

FIRST = date(2026, 6, 1)
START = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def channel(backend: TelegramBackend) -> Channel:
    """Three days with 144 posts each."""
    made = backend.channel("harbour", title="Harbour News")
    made.fill(432, start=START, every=timedelta(minutes=10))
    return made


@asynccontextmanager
async def opened(
    server: LoopbackTelegram, url: str, **settings: Any
) -> AsyncIterator[tuple[Resources, Mapping[str, Source]]]:
    app = Floodmark(Settings(**{"database_url": url, "hostname": "test", **QUICK, **settings}))
    async with open_resources(app.settings, events=app.internal_events) as resources:
        if not await Desk(resources, server).services.accounts.active():
            await Desk(resources, server).account()
        async with app.opened_sources(resources) as sources:
            yield resources, sources


async def fetched(
    server: LoopbackTelegram, url: str, folder: Path, *targets: str, days: int = 1, at_once: int = 2, **settings: Any
) -> tuple[list[FetchedChat], list[Progress]]:
    """One `floodmark fetch`, from its start to its end."""
    seen: list[Progress] = []
    wanted = Wanted(targets=targets or ("@harbour",), first=FIRST, last=FIRST + timedelta(days=days - 1))
    async with opened(server, url, **settings) as (resources, sources):
        return await Fetch(resources, sources, folder, parallelism=at_once).run(wanted, seen.append), seen


def document(folder: Path, channel: Channel, day: date = FIRST) -> Any:
    found = json.loads((folder / str(channel.channel_id) / f"{day}.json").read_text(encoding="utf-8"))
    validate("artifact-1.0.0", found)
    return found


def ids_of(channel: Channel, day: date) -> list[int]:
    dates = {number: channel.message(number) for number in channel.ids()}
    return [number for number, message in dates.items() if message is not None and message.date.date() == day]


@pytest.mark.thorough
async def test_the_days_of_a_chat_are_read_and_written(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    [chat], _ = await fetched(server, sqlite_copy, tmp_path, days=2)

    assert chat.error is None
    assert [(day.messages, day.complete, day.written) for day in chat.days] == [(144, True, True)] * 2
    for day in (FIRST, FIRST + timedelta(days=1)):
        found = document(tmp_path, channel, day)
        assert [message["id"] for message in found["messages"]] == ids_of(channel, day)
        assert found["chat"] == {"id": channel.channel_id, "username": "harbour", "title": "Harbour News"}
        assert found["last_processed_msg_id"] == ids_of(channel, day)[-1]
    assert sorted(path.name for path in (tmp_path / str(channel.channel_id)).iterdir()) == [
        "2026-06-01.json",
        "2026-06-02.json",
    ]


@pytest.mark.thorough
async def test_a_second_run_asks_nothing_and_writes_nothing(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    await fetched(server, sqlite_copy, tmp_path)
    before = (tmp_path / str(channel.channel_id) / "2026-06-01.json").stat().st_mtime_ns
    server.forget()

    [chat], _ = await fetched(server, sqlite_copy, tmp_path)

    assert asked(server) == []
    assert [(day.messages, day.written) for day in chat.days] == [(0, False)]
    assert (tmp_path / str(channel.channel_id) / "2026-06-01.json").stat().st_mtime_ns == before
    async with opened(server, sqlite_copy) as (resources, _sources):
        assert {row["revision"] for row in await rows_of(resources, items)} == {1}
        # What was fetched does not bury the jobs that people have made.
        assert await rows_of(resources, jobs) == []
        [mark] = await rows_of(resources, watermarks)
        assert (mark["stream"], mark["value"]["id"]) == ("fetch:@harbour:2026-06-01", ids_of(channel, FIRST)[-1])
        assert len(await rows_of(resources, job_executions)) == 1


@pytest.mark.thorough
async def test_a_day_that_is_not_over_is_gone_on_with(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str, tmp_path: Path
) -> None:
    today = datetime.now(UTC).date()
    pier = backend.channel("pier")
    pier.post("one")
    wanted = Wanted(targets=("@pier",), first=today, last=today)

    async def again() -> FetchedChat:
        async with opened(server, sqlite_copy) as (resources, sources):
            [chat] = await Fetch(resources, sources, tmp_path, parallelism=1).run(wanted, lambda _: None)
            return chat

    first = await again()
    pier.post("two")
    second = await again()
    third = await again()

    assert [(d.messages, d.complete, d.written) for d in (*first.days, *second.days, *third.days)] == [
        (1, False, True),
        (1, False, True),
        (0, False, False),
    ]
    assert [message["text"] for message in document(tmp_path, pier, today)["messages"]] == ["one", "two"]


async def test_an_empty_day_is_a_file_without_messages(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str, tmp_path: Path
) -> None:
    quiet = backend.channel("quiet")
    quiet.fill(2, start=START - timedelta(days=5), every=timedelta(days=10))

    [chat], _ = await fetched(server, sqlite_copy, tmp_path, "@quiet")

    assert [(day.messages, day.complete) for day in chat.days] == [(0, True)]
    assert document(tmp_path, quiet)["message_count"] == 0


@pytest.mark.thorough
async def test_a_flood_wait_is_shown_and_then_it_goes_on(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    server.flood("messages.getHistory", seconds=5, after=1)

    [chat], seen = await fetched(server, sqlite_copy, tmp_path, rate_limit_strategy="fixed")

    assert chat.error is None
    waits = [stand for stand in seen if stand.waits_until is not None]
    assert waits
    assert "getHistory" in str(waits[0].reason)
    assert server.violations == []
    assert document(tmp_path, channel)["message_count"] == 144


@pytest.mark.thorough
async def test_a_chat_that_is_gone_is_named_and_the_others_go_on(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    gone, harbour = (await fetched(server, sqlite_copy, tmp_path, "@nobody_is_here", "@harbour", days=2))[0]

    assert gone.target == "@nobody_is_here"
    assert gone.days == ()
    assert gone.error is not None
    assert gone.execution_id is not None
    assert harbour.error is None
    assert len(harbour.days) == 2
    # It may come back: the next time it is asked for again.
    again, _ = (await fetched(server, sqlite_copy, tmp_path, "@nobody_is_here", "@harbour", days=2))[0]
    assert again.error is not None
    assert again.execution_id != gone.execution_id


@pytest.mark.thorough
async def test_not_more_chats_at_once_than_allowed(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str, tmp_path: Path
) -> None:
    names = [f"chat_{letter}" for letter in "abcde"]
    for name in names:
        backend.channel(name).fill(5, start=START, every=timedelta(hours=1))
    wanted = Wanted(targets=tuple(f"@{name}" for name in names), first=FIRST, last=FIRST)
    at_once, most = 0, 0

    def count(event: InternalEvent) -> None:
        nonlocal at_once, most
        at_once += 1 if isinstance(event, ExecutionStarted) else -1
        most = max(most, at_once)

    async with opened(server, sqlite_copy) as (resources, sources):
        for kind in (ExecutionStarted, ExecutionSettled):
            resources.events.listen(kind, count)
        chats = await Fetch(resources, sources, tmp_path, parallelism=2).run(wanted, lambda _: None)

    assert [chat.target for chat in chats] == list(wanted.targets)
    assert all(chat.error is None for chat in chats)
    assert most == 2


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.mark.parametrize("batches", [1, 2])
async def test_what_a_killed_fetch_left_is_gone_on_with(
    server: LoopbackTelegram, channel: Channel, url: str, batches: int, tmp_path: Path
) -> None:
    """In the middle of a day, or at its end, before that could be written down."""
    spec = Wanted(targets=("@harbour",), first=FIRST, last=FIRST).spec("@harbour", FIRST)
    async with opened(server, url) as (resources, _):
        desk = Desk(resources, server)
        job = await Jobs(resources.database, resources.clock).add(spec)
        lease = await collect_some(desk, job, batches=batches)
        await expire(resources, lease)
    server.forget()

    [chat], _ = await fetched(server, url, tmp_path)

    assert chat.error is None
    # Nothing that was read before is read again.
    assert [call.offset_id for call in server.calls("messages.getHistory")][:1] == ([101] if batches == 1 else [])
    assert document(tmp_path, channel)["message_count"] == 144
    async with opened(server, url) as (resources, _):
        [execution] = await rows_of(resources, job_executions)
        assert execution["execution_id"] == lease.execution_id
        assert execution["state"] == "done"
        assert await rows_of(resources, jobs) == []
        assert {row["revision"] for row in await rows_of(resources, items)} == {1}


async def test_stopped_in_the_middle_it_leaves_in_good_order(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    server.flood("messages.getHistory", seconds=600, after=1)
    waiting = asyncio.Event()
    wanted = Wanted(targets=("@harbour",), first=FIRST, last=FIRST)
    async with opened(server, sqlite_copy) as (resources, sources):
        fetch = Fetch(resources, sources, tmp_path, parallelism=1)
        fetching = asyncio.create_task(fetch.run(wanted, lambda s: waiting.set() if s.waits_until else None))
        await waiting.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        [execution] = await rows_of(resources, job_executions)
        assert execution["state"] == "waiting"
        assert await rows_of(resources, job_executions, state="running") == []
    assert not (tmp_path / str(channel.channel_id)).exists()


@pytest.mark.spec("F4")
@pytest.mark.thorough
async def test_with_a_folder_for_artifacts_the_files_follow_what_is_collected(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    async with working(server, sqlite_copy, artifacts_dir=tmp_path / "out") as desk:
        await desk.account()
        await desk.run(await desk.job(params={"history": "all"}))

        def are_written() -> bool:
            days = [FIRST + timedelta(days=n) for n in range(3)]
            paths = [tmp_path / "out" / str(channel.channel_id) / f"{day}.json" for day in days]
            # Whole whenever they are there, if not always with everything yet.
            return all(path.exists() for path in paths) and all(
                document(tmp_path / "out", channel, day)["message_count"] == 144 for day in days
            )

        await eventually_here(are_written)


@pytest.mark.thorough
async def test_a_server_reads_the_days_and_the_files_are_written_here(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    wanted = Wanted(targets=("@harbour", "@nobody_is_here"), first=FIRST, last=FIRST + timedelta(days=2))
    seen: list[Progress] = []
    server.flood("messages.getHistory", seconds=5, after=1)

    async def fetch(client: Client, watch: Watch = seen.append) -> list[FetchedChat]:
        return await RemoteFetch(client, tmp_path / "far", parallelism=2).run(wanted, watch)

    async with (
        working(server, sqlite_copy, rate_limit_strategy="fixed") as desk,
        served(desk.resources) as api,
        Client(api.base) as client,
    ):
        await desk.account()
        chat, gone = await fetch(client)
        assert [(day.messages, day.complete, day.written) for day in chat.days] == [(144, True, True)] * 3
        assert (chat.error, gone.days) == (None, ())
        assert "does not exist" in str(gone.error)
        assert any("getHistory" in str(stand.reason) for stand in seen if stand.waits_until)
        assert seen[-1].messages in (0, 432)

        server.forget()
        again = (await fetch(client))[0]
        assert asked(server).count("messages.getHistory") == 0
        assert [(day.messages, day.written) for day in again.days] == [(0, False)] * 3

        near = Artifacts(Posts(desk.resources.database), tmp_path / "near")
        for day in again.days:
            await near.write(ChatDay(f"telegram:{channel.channel_id}", day.day))
            path = day.file.relative_to(tmp_path / "far")
            assert (tmp_path / "near" / path).read_bytes() == day.file.read_bytes()
        # Only what failed is left, for the next time; and it is known who had all of it made.
        assert [job["target"] for job in await rows_of(desk.resources, jobs)] == ["@nobody_is_here"]
        assert {row["who"] for row in await rows_of(desk.resources, audit)} == {"local"}


async def test_a_server_without_a_worker_is_told_of(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    wanted = Wanted(targets=("@harbour",), first=FIRST, last=FIRST)
    told = asyncio.Event()

    def watch(stand: Progress) -> None:
        if "no worker is running" in str(stand.reason):
            told.set()

    async with (
        opened(server, sqlite_copy) as (resources, _),
        served(resources) as api,
        Client(api.base) as client,
    ):
        fetch = RemoteFetch(client, tmp_path, parallelism=1)
        fetching = asyncio.create_task(fetch.run(wanted, watch))
        await told.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching


@pytest.mark.spec("T4")
@pytest.mark.parametrize("fault", ["refused", "hanging", "dropped"])
@pytest.mark.thorough
async def test_without_telegram_it_gives_up_after_the_stated_time_and_later_goes_on(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path, fault: str
) -> None:
    limits: dict[str, Any] = {"fetch_give_up_after": timedelta(seconds=6), "circuit_breaker_open_timeout_seconds": 0.5}
    limits |= {"telegram_call_timeout": timedelta(seconds=0.5), "retry_max_attempts": 2, "parser_retry_max": 1000}
    if fault == "refused":
        server.refuse()
    elif fault == "hanging":
        server.hang(times=None)
    else:
        server.drop(times=None)
    began = time.monotonic()
    [chat], seen = await asyncio.wait_for(fetched(server, sqlite_copy, tmp_path, **limits), 120)
    assert time.monotonic() - began >= 6
    assert str(chat.error).startswith("Telegram has not answered for 6 s: "), chat.error
    assert (chat.days, chat.execution_id is not None) == ((), True)
    assert any("gives up after 6 s" in str(stand.reason) for stand in seen)
    assert files_in(tmp_path, "*.json") == []

    server.heal()
    # A healthy server may take longer than half a second on a busy machine, so only the breaker stays impatient.
    patient = {key: limits[key] for key in limits if key not in ("fetch_give_up_after", "telegram_call_timeout")}
    again, _ = await asyncio.wait_for(fetched(server, sqlite_copy, tmp_path, **patient), 120)
    assert [chat.error for chat in again] == [None]
    assert document(tmp_path, channel)["message_count"] == 144


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    return [path for path in folder.rglob(pattern) if path.is_file()]


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system with little room."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"this machine permits no mounts: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.spec("F4", "G2")
@pytest.mark.thorough
async def test_a_full_disk_for_the_files_is_named_and_nothing_partial_is_left(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    """Full when the content is flushed, and full from the beginning."""
    with small_disk(tmp_path / "small", 16) as folder:
        with pytest.raises(Unavailable, match="cannot be written to: No space left on device"):
            await asyncio.wait_for(fetched(server, sqlite_copy, folder), 120)
        assert files_in(folder) == []
    server.forget()
    [chat], _ = await fetched(server, sqlite_copy, tmp_path / "out")
    assert chat.error is None
    assert asked(server) == [], "what was read is kept"
    assert document(tmp_path / "out", channel)["message_count"] == 144


@pytest.mark.spec("G2", "G9")
@pytest.mark.thorough
async def test_a_full_disk_for_the_database_is_named_and_it_goes_on_later(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", 8 * 1024) as disk:
        database = disk / "floodmark.db"
        url = f"sqlite:///{database}"
        shutil.copy(make_url(sqlite_copy).database or "", database)
        async with opened(server, url):
            pass
        soon: dict[str, Any] = {"shutdown_grace": timedelta(seconds=0.2), "execution_lease": timedelta(seconds=3)}
        # The lease of the session cannot be given back on a full disk either.
        soon["telegram_session_ttl"] = timedelta(seconds=3)
        filler = disk / "filler"
        for room in (0, 300):
            filler.unlink(missing_ok=True)
            free = shutil.disk_usage(disk).free
            filler.write_bytes(b"x" * max(0, free - room * 1024))
            with pytest.raises(Unavailable, match=r"cannot be written|does not answer") as told:
                await asyncio.wait_for(fetched(server, url, tmp_path / "out", days=3, **soon), 120)
            assert "full" in str(told.value) or "space" in str(told.value) or "I/O" in str(told.value)
            assert files_in(tmp_path / "out", ".*") == []
        filler.unlink()
        [chat], _ = await asyncio.wait_for(fetched(server, url, tmp_path / "out", days=3), 120)
        assert chat.error is None
        assert [len(document(tmp_path / "out", channel, day.day)["messages"]) for day in chat.days] == [144] * 3


def pushed(gateway: Pushgateway, name: str, **labels: str) -> float | None:
    """What a Pushgateway shows of fetches on this host."""
    with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    group = {"job": "floodmark-fetch", "instance": "host/7", **labels}
    found = [one for family in families for one in family.samples if one.name == name]
    values = [one.value for one in found if group.items() <= one.labels.items()]
    assert len(values) <= 1
    return values[0] if values else None


class TestCommand:
    """As it is typed."""

    @pytest.fixture(autouse=True)
    def no_settings_from_outside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in keys():
            monkeypatch.delenv(key, raising=False)

    @pytest.fixture
    def upstream(
        self, backend: TelegramBackend, channel: Channel, no_config_of_another_server: None
    ) -> Iterator[LoopbackTelegram]:
        with LoopbackTelegram.thread(backend, forbid_duplicates=True) as made:
            yield made

    @pytest.fixture
    def cli(self, sqlite_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.path", list(sys.path))
        return CommandLine(tmp_path, DATABASE_URL=sqlite_copy, FLOODMARK_SECRET_KEY=SECRET, RATE_LIMIT_STRATEGY="fixed")

    @pytest.fixture
    def reader(self, cli: CommandLine, upstream: LoopbackTelegram) -> CommandLine:
        """With an account."""

        async def add() -> None:
            settings = Settings(database_url=cli.settings["DATABASE_URL"], **QUICK)
            async with open_resources(settings) as resources:
                await Desk(resources, upstream).account()

        asyncio.run(add())
        return cli

    @pytest.mark.thorough
    def test_it_says_what_it_fetched_and_fails_if_that_is_not_all(self, reader: CommandLine, channel: Channel) -> None:
        day = ("--date", "2026-06-01", "--out", "out")
        told = reader.good("fetch", "harbour", "https://t.me/Harbour/5", *day, "--json").json

        [chat] = told["chats"]
        assert (chat["chat"], chat["error"]) == ("@harbour", None)
        assert chat["days"] == [
            {
                "date": "2026-06-01",
                "new_messages": 144,
                "last_processed_msg_id": ids_of(channel, FIRST)[-1],
                "complete": True,
                "file": f"out/{channel.channel_id}/2026-06-01.json",
                "written": True,
            }
        ]
        again = reader("fetch", "@harbour", "@nobody_is_here", *day)
        assert again.code == 1
        assert "@nobody_is_here does not exist" in again.out
        assert "1 of 1" in again.out

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("@harbour", "--date", "2999-01-01"), "is in the future"),
            (("@harbour", "--date", "2026-06-02", "--until", "2026-06-01"), "comes before"),
            (("@harbour", "--date", "1.6.2026"), "--date '1.6.2026' is not a day"),
            (("no channel!", "--date", "2026-06-01"), "is not the name of a channel"),
            (("@harbour", "--date", "2026-06-01", "--account", "nobody"), "there is no account 'nobody'"),
            (("@harbour", "--date", "2006-06-01", "--until", "2026-06-01"), "longer than 3,660 days"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, cli: CommandLine, words: tuple[str, ...], says: str) -> None:
        cli.refused("fetch", *words, "--out", "out", says=says)

    @pytest.mark.spec("T4")
    def test_without_telegram_it_ends_with_code_1(self, reader: CommandLine, upstream: LoopbackTelegram) -> None:
        upstream.refuse()
        patience = {
            "FETCH_GIVE_UP_AFTER": "2s",
            "CIRCUIT_BREAKER_OPEN_TIMEOUT_SECONDS": "0.5",
            "RETRY_MAX_ATTEMPTS": "2",
        }
        reader.settings.update(patience)
        ended = reader("fetch", "@harbour", "--date", "2026-06-01", "--out", "out")

        assert ended.code == 1
        assert "Telegram has not answered for 2 s" in ended.out

    def test_without_an_account_it_says_how_to_add_one(self, cli: CommandLine) -> None:
        refused = cli.refused("fetch", "@harbour", "--date", "2026-06-01", "--out", "out", says="no Telegram", code=1)

        assert "floodmark accounts add" in refused.err

    @pytest.mark.thorough
    def test_ctrl_c_in_a_flood_wait_ends_it_and_it_can_be_gone_on_with(
        self, reader: CommandLine, upstream: LoopbackTelegram, tmp_path: Path, channel: Channel
    ) -> None:
        command = ("fetch", "@harbour", "--date", "2026-06-01", "--out", "out")
        upstream.flood("messages.getHistory", seconds=600)
        with (tmp_path / "said.log").open("w", encoding="utf-8") as log:
            process = reader.start(*command, stdout=log, stderr=log)
            try:
                eventually(lambda: "waits" in reader.said())
                process.send_signal(signal.SIGINT)
                assert process.wait(120) == 1
            finally:
                process.kill()
                process.wait()
        assert "Stopped. Repeat the command to continue." in reader.said()
        assert "Traceback" not in reader.said()

    @pytest.mark.spec("F6", "F8")
    @pytest.mark.thorough
    def test_it_pushes_while_it_runs_and_at_its_end_and_the_group_stays(
        self, reader: CommandLine, upstream: LoopbackTelegram, tmp_path: Path
    ) -> None:
        fetch = ("fetch", "@harbour", "--date", "2026-06-01", "--out", "out")
        refused = reader.refused("--set", "METRICS_MODE=push", *fetch, says="PUSHGATEWAY_URL is not set")
        assert "PUSHGATEWAY_URL=" in refused.err
        assert not (tmp_path / "out").exists()
        with started(Pushgateway.start) as gateway:
            reader.settings |= {"METRICS_MODE": "both", "PUSHGATEWAY_URL": gateway.url, "HOSTNAME": "host/7"}
            reader.settings["METRICS_PUSH_INTERVAL"] = "0.2"
            upstream.flood("messages.getHistory", seconds=600, times=1)
            with (tmp_path / "said.log").open("w", encoding="utf-8") as log:
                process = reader.start(*fetch, stdout=log, stderr=log)
                try:
                    eventually(lambda: pushed(gateway, "rate_limit_hits_total") == 1)
                    assert pushed(gateway, "breaker_state", component="telegram:reader1") == 0
                    assert pushed(gateway, "crawler_scheduler_worker_pool_size") == 2
                    process.send_signal(signal.SIGINT)
                    assert process.wait(120) == 1, reader.said()
                finally:
                    process.kill()
                    process.wait()
            assert pushed(gateway, "rate_limit_hits_total") == 1
            assert pushed(gateway, "crawler_scheduler_worker_pool_size") == 0, "the last push comes after the work"

            # Shorter than any interval: only the push at the end can have its values. It replaces the group.
            reader.settings["METRICS_PUSH_INTERVAL"] = "1h"
            upstream.heal()
            reader.good("limits", "clear", "telegram:reader1:messages.getHistory", "--yes")
            reader.good(*fetch)
            assert pushed(gateway, "rate_limit_hits_total") is None
            assert pushed(gateway, "posts_parsed_total", mode="historical") == 144
