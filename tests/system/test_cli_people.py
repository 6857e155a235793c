"""What people do with the command line day by day: change jobs, look at what came in, find out what is wrong."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from sqlalchemy import text

from command_line import CommandLine
from floodmark.cli.top import frame
from floodmark.coordination.leases.sql import SqlLeases
from floodmark.model.batch import Batch, Item
from floodmark.model.clock import SystemClock
from floodmark.model.execution import State
from floodmark.model.fleet import Failed, Finding, Overview, SourceFreshness, Waiting
from floodmark.model.outcome import Dead
from floodmark.operations.doctor import Doctor
from floodmark.repositories.events import EventLog
from floodmark.repositories.jobs import Jobs
from system.stores import AnyDatabase, Crew, a_spec

FEED, SITE = "https://example.com/feed.xml", "https://example.com/"
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine.installed(tmp_path, migrated_sqlite)


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A folder without a database."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path)


@pytest.mark.spec("V1", "G9")
@pytest.mark.thorough
def test_a_job_is_edited_enabled_and_disabled(cli: CommandLine) -> None:
    cli.good("add", "web", SITE, "--name", "news", "--every", "1h", "--tag", "old")
    said = cli.good("edit", "news", "--every", "2m", "--priority", "high", "--param", "max_pages=5").out
    assert "every 1 h -> every 2 min" in said
    job = cli.good("show", "news", "--json").json["job"]
    assert (job["interval_seconds"], job["priority"], job["params"], job["tags"]) == (
        120,
        1,
        {"max_pages": 5},
        ["old"],
    )

    cli.good("edit", "news", "--cron", "0 6 * * *", "--tz", "Europe/Berlin", "--clear", "tags")
    cli.good("edit", "news", "--daily", "02:00", "--param", "max_pages=null")
    job = cli.good("show", "news", "--json").json["job"]
    assert (job["schedule_type"], job["cron_expression"], job["interval_seconds"]) == ("calendar", None, None)
    assert (job["timezone"], job["tags"], job["params"]) == ("Europe/Berlin", [], {})

    cli.good("disable", "news")
    assert cli.explain("news") == "disabled"
    assert cli.good("enable", "news", "--json").json["schedule_enabled"] is True
    assert "already has these values" in cli.good("edit", "news", "--daily", "02:00").out

    before = cli.good("show", "news", "--json").json["job"]
    assert "Nothing was changed" in cli.good("edit", "news", "--every", "5m", "--dry-run").out
    cli.refused("edit", "news", says="no change is given")
    cli.refused("edit", "news", "--cron", "61 6 * * *", says="bad minute")
    cli.refused("edit", "news", "--clear", "name", says="'name'")
    cli.refused("edit", "nobody", "--every", "5m", says="nobody")
    assert cli.good("show", "news", "--json").json["job"] == before


@pytest.mark.spec("G8")
@pytest.mark.thorough
def test_reading_creates_no_database(new: CommandLine) -> None:
    for command in (["ls"], ["history"], ["stats"], ["events"], ["dlq"], ["limits"], ["watermark"], ["audit"]):
        new.good(*command)
    assert new("doctor").code == 1
    new.refused("show", "news", says="news")
    new.refused("events", "--follow", says="there is no database")
    assert not (new.folder / ".floodmark").exists()
    new.good("add", "feed", FEED)
    assert (new.folder / ".floodmark").exists()


@pytest.mark.spec("G9")
def test_a_folder_that_cannot_be_written_is_named_with_the_setting_that_moves_it(new: CommandLine) -> None:
    (new.folder / "data").write_text("a file", encoding="utf-8")
    said = new.refused("add", "feed", FEED, "--set", "DATABASE_URL=sqlite:///data/floodmark.db", says="data", code=1)
    assert "cannot be written" in said.err
    assert "DATABASE_URL=" in said.err


@pytest.mark.spec("G9")
def test_what_does_not_exist_is_refused(cli: CommandLine) -> None:
    cli.refused("settings", "DATABASE_ULR", says="DATABASE_ULR")
    assert "did you mean DATABASE_URL" in cli("settings", "DATABASE_ULR").err
    cli.refused("events", "--after", "-1", says="--after")


def test_a_job_is_one_line_at_80_columns(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-that-is-longer-than-there-is-room-for"
    cli.good("add", "feed", FEED, "--name", name, "--cron", "*/15 8-18 * * MON-FRI", "--tz", "Europe/Berlin")
    monkeypatch.setenv("COLUMNS", "80")
    _, line = cli.good("ls").out.splitlines()
    assert len(line) <= 80
    assert line.rstrip().endswith("on")
    assert "a-name-that-is-lon" in line


@pytest.mark.spec("T7")
async def test_items_are_listed_newest_first_in_natural_order(database: AnyDatabase, jobs: Jobs, crew: Crew) -> None:
    log = EventLog(database, SystemClock())
    job = await jobs.add(a_spec(stream="news"))
    dated = [Item(str(n), n, occurred_at=NOW + timedelta(hours=n)) for n in range(8, 12)]
    await crew.collect(jobs, job, Batch([*dated, Item("early", 0, occurred_at=NOW)]))
    assert [item.key for item in await log.newest("news")] == ["11", "10", "9", "8", "early"]
    assert [item.key for item in await log.newest("news", since=NOW + timedelta(hours=10))] == ["11", "10"]
    first = await log.newest("news", limit=2)
    assert [item.key for item in await log.newest("news", before_key=first[-1].key, limit=2)] == ["9", "8"]

    plain = await jobs.add(a_spec("two", stream="plain"))
    await crew.collect(jobs, plain, Batch([Item(str(n), n) for n in range(1, 13)]))
    keys: list[str] = []
    while page := await log.newest("plain", before_key=keys[-1] if keys else None, limit=5):
        keys += [item.key for item in page]
    assert keys == [str(n) for n in range(12, 0, -1)]


@pytest.mark.spec("T13")
async def test_the_doctor_speaks_of_dead_letters_paused_jobs_and_disk(
    database: AnyDatabase, jobs: Jobs, crew: Crew
) -> None:
    doctor = Doctor(database, SystemClock(), leases=SqlLeases(database, SystemClock()))

    async def findings() -> dict[str, Finding]:
        return {finding.code: finding for finding in await doctor.check()}

    well = await findings()
    assert well["dead letters"].ok
    assert well["paused jobs"].text == "no job is paused"
    assert ("disk" in well) == (database.dialect == "sqlite")

    job = await jobs.add(a_spec(name="news"))
    await crew.run(jobs, job, Dead(error="gone"))
    await jobs.pause(job, "the channel is private")
    ill = await findings()
    assert ill["dead letters"].text == "1 execution failed permanently"
    assert "floodmark dlq" in ill["dead letters"].hint
    assert ill["paused jobs"].text == "1 job is paused: news (the channel is private)"

    assert ill["schedules"].ok
    async with database.writing() as connection:
        await connection.execute(text("UPDATE jobs SET invalid_reason = 'bad minute 61' WHERE name = 'news'"))
    invalid = (await findings())["schedules"]
    assert (invalid.ok, invalid.text) == (False, "1 job has an invalid schedule and will not run: news (bad minute 61)")
    assert "floodmark edit news" in invalid.hint


def test_top_uses_a_large_screen() -> None:
    failed = [
        Failed(execution_id=str(n), job_name=f"failed{n}", at=NOW, state=State.DEAD, error="boom") for n in range(40)
    ]
    waiting = [
        Waiting(execution_id=str(n), job_name=f"waits{n}", until=NOW, hold=None, reason="limit") for n in range(40)
    ]
    seen = Overview(
        at=NOW,
        leader="one",
        scheduler="ok",
        draining=False,
        workers=[],
        queue={},
        running_count=0,
        running=[],
        waiting_count=40,
        waiting=waiting,
        limits=[],
        breakers=[],
        freshness=[],
        measured_at=None,
        dead_letters=40,
        failed=failed,
        kept_last_minute=0,
    )

    def drawn(width: int, height: int, seen: Overview = seen) -> str:
        console = Console(width=width, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        with console.file:
            console.print(frame(seen, width=width, height=height))
        shown = console.export_text()
        assert len(shown.splitlines()) <= height
        return shown

    small, large = drawn(80, 24), drawn(200, 60)
    assert small.count("waits") + small.count("failed") < 24
    assert large.count("waits") == large.count("failed") == 40

    fresh = SourceFreshness(source="web", jobs=1, stale=0, checked_at=NOW, longest_at=NOW, parsed_at=NOW)
    # Without anything at work there is no empty half of a screen.
    idle = drawn(200, 60, msgspec.structs.replace(seen, waiting=[], waiting_count=0, freshness=[fresh]))
    assert "\nFailed" in idle


def test_a_hint_names_only_options_that_the_command_has(cli: CommandLine) -> None:
    assert "--dry-run" not in cli.refused("rotate-key", says="--yes").err
    assert "--dry-run" in cli.refused("cleanup", says="--yes").err
