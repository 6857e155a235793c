"""Moving over from an older scheduler: the shadow, the report, the move, and the imports."""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from msgspec.structs import replace
from sqlalchemy import insert, select, text

from api.serving import serving
from backends import opening
from command_line import CommandLine
from floodmark.client import Client
from floodmark.errors import Conflict, InvalidInput, Unavailable
from floodmark.importers.apscheduler import read_job
from floodmark.importers.apscheduler_store import stored_jobs
from floodmark.importers.handover import MovedJobs
from floodmark.importers.shadow import KEPT, Shadow
from floodmark.importers.shadow_fires import ShadowFires
from floodmark.importers.tables import shadow_fires
from floodmark.model.audit import Actor
from floodmark.model.handover import NewJob, OldRunsTable, ParityReport, Which
from floodmark.model.ids import new_id
from floodmark.model.job import SCHEDULER_VERSION, Overlap, Policy, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.operations.handlers.handover import HandoverHandlers
from floodmark.operations.local import LocalOperations
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.store.tables import job_executions, jobs
from floodmark.testing.clock import SetClock
from floodmark.testing.eventually import eventually
from floodmark.triggers import instants, trigger_of
from floodmark.wiring.resources import Resources, open_resources
from system.stores import a_spec, put_execution

pytestmark = pytest.mark.spec("V11", "E10")

ACTOR = Actor(who="ada")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
async def resources(migrated_url: str) -> AsyncIterator[Resources]:
    async with open_resources(Settings(database_url=migrated_url)) as opened:
        yield opened


@pytest.fixture
def moving(resources: Resources) -> HandoverHandlers:
    return HandoverHandlers(resources, ACTOR)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path)


async def old_job(resources: Resources, name: str, **columns: Any) -> str:
    """A row as the old scheduler has it, made two days ago."""
    row = {
        "job_id": new_id(),
        "name": name,
        "target": f"feeds:{name}",
        "schedule_type": "cron",
        "cron_expression": "0 * * * *",
        "scheduler_version": 1,
        "created_at": datetime.now(UTC) - 2 * DAY,
        **columns,
    }
    async with resources.database.writing() as connection:
        await connection.execute(insert(jobs).values(**row))
    return str(row["job_id"])


async def old_run(resources: Resources, job_id: str, at: datetime, **columns: Any) -> None:
    """What the old scheduler writes down."""
    await put_execution(resources.database, **{"job_id": job_id, "scheduled_for": at, **columns})  # type: ignore[arg-type]


async def rows_of(resources: Resources, table: Any) -> list[dict[str, Any]]:
    async with resources.database.reading() as connection:
        return [dict(row) for row in (await connection.execute(select(table))).mappings()]


async def recorded(resources: Resources, job_id: str) -> list[datetime]:
    return sorted(row["scheduled_for"] for row in await rows_of(resources, shadow_fires) if row["job_id"] == job_id)


async def shadowed(moving: HandoverHandlers, back: timedelta = 8 * HOUR) -> None:
    await moving.start_shadow(back)
    await moving.step_shadow()


# The shadow


async def test_the_shadow_records_what_would_be_fired_and_fires_nothing(
    resources: Resources, moving: HandoverHandlers
) -> None:
    job_id = await old_job(resources, "news")
    paused = await old_job(resources, "paused", paused=True)
    broken = await old_job(resources, "broken", cron_expression="61 * * * *")
    before = await rows_of(resources, jobs)

    await shadowed(moving)

    instants = await recorded(resources, job_id)
    # Nine, if an hour strikes meanwhile.
    assert len(instants) in (8, 9)
    assert {instant.minute for instant in instants} == {0}
    assert await recorded(resources, paused) == await recorded(resources, broken) == []
    assert await rows_of(resources, job_executions) == []
    assert await rows_of(resources, jobs) == before


async def test_the_scheduler_leaves_the_rows_of_the_old_one_alone(resources: Resources) -> None:
    await old_job(resources, "news")
    before = await rows_of(resources, jobs)
    role = SchedulerRole(resources)
    await role.leader.step()
    await role.scheduler.step()
    assert await rows_of(resources, jobs) == before
    assert await rows_of(resources, job_executions) == []


async def test_a_step_that_is_repeated_or_done_by_another_process_records_nothing_twice(
    resources: Resources, moving: HandoverHandlers
) -> None:
    await old_job(resources, "often", schedule_type="interval", interval_seconds=60)
    await shadowed(moving, 2 * HOUR)
    status = await moving.shadow()
    assert 119 <= status.fires <= 121
    others = [Shadow(ShadowFires(resources.database, resources.clock)) for _ in range(2)]
    await asyncio.gather(*(other.step() for other in others))
    again = await moving.shadow()
    assert again.until is not None
    assert status.until is not None
    assert again.until >= status.until
    assert again.fires - status.fires <= 1


async def test_a_shadow_that_is_on_goes_on_as_it_is_and_one_that_is_stopped_forgets(
    resources: Resources, moving: HandoverHandlers
) -> None:
    await old_job(resources, "news")
    await shadowed(moving)
    first = await moving.shadow()
    assert (await moving.start_shadow()).since == first.since
    gone = await moving.stop_shadow()
    assert (gone.on, gone.fires, gone.jobs) == (False, 0, 1)
    await moving.stop_shadow()
    with pytest.raises(InvalidInput, match="the shadow is off"):
        await moving.step_shadow()
    with pytest.raises(Conflict, match="the shadow is off"):
        await moving.shadow_report()
    with pytest.raises(InvalidInput, match="too long"):
        await moving.start_shadow(KEPT + HOUR)
    operations = LocalOperations(resources, ACTOR)
    assert [row.action for row in (await operations.audit(what="shadow")).items] == ["shadow.stopped", "shadow.started"]


async def test_a_shadow_that_was_away_catches_up_bit_by_bit_and_old_fires_are_pruned(sqlite_url: str) -> None:
    clock = SetClock(datetime(2026, 6, 1, 12, tzinfo=UTC))
    async with open_resources(Settings(database_url=sqlite_url), clock=clock) as resources:
        job_id = await old_job(resources, "news", created_at=clock.now() - DAY)
        fires = ShadowFires(resources.database, clock)
        shadow = Shadow(fires)
        await shadow.start()
        clock.advance(timedelta(hours=2, minutes=30))
        behind = [step.is_behind for step in [await Shadow(fires).step() for _ in range(3)] if step]
        assert behind == [True, True, False]
        assert [instant.hour for instant in await recorded(resources, job_id)] == [13, 14]

        clock.advance(10 * DAY)
        await shadow.step()
        # Beyond what is kept it does not catch up.
        [kept] = await recorded(resources, job_id)
        assert timedelta() <= kept - (clock.now() - KEPT) <= HOUR


async def test_a_changed_schedule_counts_from_its_change(sqlite_url: str) -> None:
    clock = SetClock(datetime(2026, 6, 1, 12, 0, tzinfo=UTC))
    async with open_resources(Settings(database_url=sqlite_url), clock=clock) as resources:
        operations = LocalOperations(resources, ACTOR)
        job_id = await old_job(resources, "news", created_at=clock.now() - DAY)
        moving = operations
        await moving.start_shadow()
        clock.advance(timedelta(minutes=90))
        await operations.change_job("news", {"cron_expression": "*/10 * * * *"})
        clock.advance(timedelta(minutes=25))
        await moving.step_shadow()
        assert [instant.minute for instant in await recorded(resources, job_id)] == [40, 50]


@pytest.mark.thorough
async def test_the_leader_records_by_itself(resources: Resources, moving: HandoverHandlers) -> None:
    await old_job(resources, "news")
    await moving.start_shadow(5 * HOUR)
    stop = asyncio.Event()
    running = asyncio.create_task(SchedulerRole(resources).run(stop))
    try:

        async def is_recorded() -> bool:
            return (await moving.shadow()).fires >= 5

        await eventually(is_recorded)
    finally:
        stop.set()
        await running
    assert await rows_of(resources, job_executions) == []


# The report


async def some_hours(resources: Resources, moving: HandoverHandlers, job_id: str) -> list[datetime]:
    """Some hours of an hourly job: the instants, of which the third has no run and the sixth has two."""
    await shadowed(moving)
    expected = await recorded(resources, job_id)
    for instant in (*expected[:2], *expected[3:]):
        await old_run(resources, job_id, instant + timedelta(seconds=2), started_at=instant + timedelta(seconds=5))
    await old_run(
        resources, job_id, expected[5] + timedelta(seconds=20), started_at=expected[5] + timedelta(seconds=21)
    )
    return expected


async def test_the_report_finds_one_injected_miss_and_one_injected_double(
    resources: Resources, moving: HandoverHandlers
) -> None:
    job_id = await old_job(resources, "news")
    good = await old_job(resources, "good", cron_expression="30 * * * *")
    expected = await some_hours(resources, moving, job_id)
    for instant in await recorded(resources, good):
        await old_run(resources, good, instant)
    # None of these is a run of the schedule.
    await old_run(resources, good, expected[6] + timedelta(minutes=7), trigger="manual")
    await old_run(resources, good, expected[6] + timedelta(minutes=9), state="skipped")

    report = await moving.shadow_report(hours=24)

    fine, news = report.jobs
    assert (fine.job, fine.verdict, fine.missed, fine.extra) == ("good", "equal", 0, 0)
    assert (news.job, news.verdict) == ("news", "differs")
    assert news.missed_at == (expected[2],)
    assert news.extra_at == (expected[5] + timedelta(seconds=20),)
    assert (news.drift_median_seconds, news.drift_max_seconds) == (2, 2)
    assert (report.equal, report.differing) == (1, 1)

    started = await moving.shadow_report(hours=24, record=OldRunsTable(time_column="started_at"), jobs=["news"])
    assert [job.drift_median_seconds for job in started.jobs] == [5]
    narrow = await moving.shadow_report(hours=24, tolerance=timedelta(seconds=1), jobs=["news"])
    assert narrow.jobs[0].matched == 0


async def test_jobs_that_cannot_be_compared_say_why(resources: Resources, moving: HandoverHandlers) -> None:
    await old_job(resources, "broken", cron_expression="61 * * * *")
    await old_job(resources, "demand", schedule_type="event")
    await old_job(resources, "rarely", cron_expression="0 0 29 2 *")
    await shadowed(moving)
    report = await moving.shadow_report()
    assert [(job.job, job.verdict) for job in report.jobs] == [
        ("broken", "invalid"),
        ("demand", "nothing"),
        ("rarely", "nothing"),
    ]
    assert "bad minute" in (report.jobs[0].reason or "")
    assert report.differing == 1


@pytest.fixture(params=["TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "VARCHAR(40)", "DOUBLE PRECISION"])
async def kind(request: pytest.FixtureRequest, resources: Resources) -> AsyncIterator[str]:
    """How a table "old Runs" tells the time. It goes with the test; what else is in the database stays."""
    async with resources.database.writing() as connection:
        await connection.execute(text(f'CREATE TABLE "old Runs" ("the ""job" VARCHAR(80), at {request.param})'))
    yield str(request.param)
    async with resources.database.writing() as connection:
        await connection.execute(text('DROP TABLE "old Runs"'))


async def test_the_old_scheduler_may_have_a_table_of_its_own(
    resources: Resources, moving: HandoverHandlers, kind: str
) -> None:
    job_id = await old_job(resources, "news")
    await shadowed(moving)
    expected = await recorded(resources, job_id)
    async with resources.database.writing() as connection:
        for instant in expected[1:]:
            value: Any = instant.isoformat()
            if kind.startswith("TIMESTAMP") and resources.database.dialect == "postgresql":
                value = instant if "ZONE" in kind else instant.replace(tzinfo=None)
            elif kind.startswith("DOUBLE"):
                value = instant.timestamp()
            await connection.execute(text("INSERT INTO \"old Runs\" VALUES ('news', :at)"), {"at": value})
    record = OldRunsTable(table="old Runs", job_column='the "job', time_column="at")
    [news] = (await moving.shadow_report(record=record)).jobs
    assert (news.matched, news.missed_at) == (len(expected) - 1, (expected[0],))


async def test_a_name_that_the_database_does_not_know_reaches_no_statement(
    resources: Resources, moving: HandoverHandlers
) -> None:
    await old_job(resources, "news")
    await shadowed(moving, HOUR)
    hostile = [
        (OldRunsTable(table='jobs"; DROP TABLE jobs; --'), "there is no table"),
        (OldRunsTable(table="job_execution"), "there is no table"),
        (OldRunsTable(table="nowhere.jobs"), "there is no table"),
        (OldRunsTable(job_column="job_id) OR 1=1 --"), "has no column"),
        (OldRunsTable(time_column="(SELECT 1)"), "has no column"),
    ]
    for record, says in hostile:
        with pytest.raises(InvalidInput, match=says) as refused:
            await moving.shadow_report(record=record)
        assert refused.value.hint
    assert len(await rows_of(resources, jobs)) == 1


# The move


async def test_jobs_move_over_and_back_in_one_step_with_an_audit(
    resources: Resources, moving: HandoverHandlers
) -> None:
    await old_job(resources, "a", tags=["x"])
    await old_job(resources, "b", tags=["x", "y"], domain="example.org")
    await old_job(resources, "c")

    tried = await moving.migrate_jobs(Which(tag="x"), dry_run=True)
    assert [job.job for job in tried.jobs] == ["a", "b"]
    assert {row["scheduler_version"] for row in await rows_of(resources, jobs)} == {1}

    begin = datetime.now(UTC)
    moved = await moving.migrate_jobs(Which(tag="x"))
    assert [job.job for job in moved.jobs] == ["a", "b"]
    assert all(job.next_run is not None and job.next_run > begin for job in moved.jobs)
    rows = {row["name"]: row for row in await rows_of(resources, jobs)}
    assert [rows[name]["scheduler_version"] for name in "abc"] == [2, 2, 1]
    assert [rows[name]["version"] for name in "abc"] == [2, 2, 1]
    assert [row.action for row in (await LocalOperations(resources, ACTOR).audit()).items] == ["job.moved", "job.moved"]

    back = await moving.migrate_jobs(Which(domain="example.org"), back=True)
    assert [job.job for job in back.jobs] == ["b"]
    assert (await moving.migrate_jobs(Which(jobs=("b", "c")), back=True)).already == ("b", "c")
    assert [job.job for job in (await moving.migrate_jobs(Which(everything=True))).jobs] == ["b", "c"]


async def test_what_was_due_before_the_move_is_not_fired_again(sqlite_url: str) -> None:
    clock = SetClock(datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC))
    async with open_resources(Settings(database_url=sqlite_url), clock=clock) as resources:
        job_id = await old_job(resources, "news", created_at=clock.now() - DAY, cron_expression="* * * * *")
        await old_job(resources, "once", created_at=clock.now() - DAY, schedule_type="immediate")
        role = SchedulerRole(resources)
        await role.leader.step()
        moving = MovedJobs(resources.database, clock, resources.repositories.audit)
        moved = await moving.move(Which(everything=True), ACTOR)
        # The old scheduler was quick, and has already written down what it would have run next.
        await old_run(resources, job_id, datetime(2026, 6, 1, 12, 1, tzinfo=UTC))
        await role.scheduler.step()
        assert [job.next_run for job in moved.jobs] == [datetime(2026, 6, 1, 12, 1, tzinfo=UTC), None]
        assert len(await rows_of(resources, job_executions)) == 1

        clock.advance(timedelta(minutes=2))
        await role.scheduler.step()
        fired = sorted(row["scheduled_for"].minute for row in await rows_of(resources, job_executions))
        assert fired == [1, 2]


async def test_a_move_that_cannot_be_done_for_all_is_done_for_none(
    resources: Resources, moving: HandoverHandlers
) -> None:
    await old_job(resources, "good")
    await old_job(resources, "broken", cron_expression="61 * * * *")
    with pytest.raises(Conflict, match=r"broken: .*bad minute"):
        await moving.migrate_jobs(Which(everything=True))
    with pytest.raises(InvalidInput, match="name the jobs"):
        await moving.migrate_jobs(Which())
    with pytest.raises(InvalidInput, match="name the jobs"):
        await moving.migrate_jobs(Which(jobs=("good",), everything=True))
    assert {row["scheduler_version"] for row in await rows_of(resources, jobs)} == {1}
    assert await rows_of(resources, job_executions) == []


# From far away


async def test_a_server_does_the_same(sqlite_url: str) -> None:
    async with serving(opening(sqlite_url)) as api, Client(api.base) as client:
        here, away = HandoverHandlers(api.resources, ACTOR), client
        job_id = await old_job(api.resources, "news")
        assert (await away.shadow()).on is False
        assert (await api.post("shadow/step")).status_code == 400
        assert (await api.get("shadow/report")).status_code == 409
        assert (await api.post("shadow", json={"back_seconds": -1})).status_code in (400, 422)
        assert (await away.start_shadow(8 * HOUR)).on
        await away.step_shadow()
        expected = await some_hours(api.resources, here, job_id)

        report: ParityReport = await away.shadow_report(jobs=["news"])
        assert report.jobs[0].missed_at == (expected[2],)
        told = (await api.get("shadow/report?hours=24&job=news")).json()
        assert (told["differing"], told["jobs"][0]["verdict"]) == (1, "differs")
        tried = await away.migrate_jobs(Which(everything=True), dry_run=True)
        assert [job.job for job in tried.jobs] == ["news"]
        assert (await api.post("migrate-jobs", json={})).status_code == 400
        assert (await api.post("migrate-jobs", json={"jobs": ["news"]})).json()["jobs"][0]["scheduler_version"] == 2
        assert (await away.migrate_jobs(Which(jobs=("news",)), back=True)).back
        assert (await api.delete("shadow")).json()["on"] is False
        assert (await away.stop_shadow()).fires == 0


async def test_a_server_imports_the_same(sqlite_url: str) -> None:
    def imported(name: str) -> NewJob:
        when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=900)
        policy = Policy(overlap=Overlap.QUEUE, jitter=timedelta(seconds=5))
        spec = JobSpec(source="python", target="feeds:news", name=name, stream=f"s:{name}", when=when, policy=policy)
        return NewJob(spec=spec, anchor=datetime(2026, 1, 31, 8, 0, tzinfo=UTC), pause_reason="as it was")

    async with serving(opening(sqlite_url), job_coalesce=False) as api, Client(api.base) as client:
        operations = LocalOperations(api.resources, ACTOR)
        here, away = operations, client
        some = [imported(name) for name in ("a", "b", "c", "d", "e")]
        assert (await away.import_jobs(some, dry_run=True)).made == ("a", "b", "c", "d", "e")
        assert await rows_of(api.resources, jobs) == []
        await here.import_jobs(some[:1])
        told = await away.import_jobs(some)
        assert (told.made, told.already) == (("b", "c", "d", "e"), ("a",))
        one, other = await operations.job("a"), await operations.job("b")
        its_own = {"job_id": "", "name": "", "stream": "", "updated_at": None, "planned_until": None}
        assert replace(one, **its_own) == replace(other, **its_own)
        assert (other.created_at, other.paused, other.scheduler_version) == (some[0].anchor, True, 1)
        await here.import_jobs([imported("f")], usual=True, take_over=True)
        await away.import_jobs([imported("g")], usual=True, take_over=True)
        assert (
            (await operations.job("f")).policy
            == (await operations.job("g")).policy
            == api.resources.settings.default_policy()
        )

        bad = [*some, NewJob(spec=replace(some[0].spec, name="z", when=When(schedule_type=ScheduleType.INTERVAL)))]
        with pytest.raises(InvalidInput):
            await away.import_jobs([replace(one, spec=replace(one.spec, name=f"{one.spec.name}2")) for one in bad])
        assert len(await rows_of(api.resources, jobs)) == 7, "all are tried before any is made"
        for body in [
            {"source": "python", "target": "x:y"},
            {"source": "python", "target": "x:y", "name": "n", "depends_on": ["a"]},
            {"source": "pigeon", "target": "x:y", "name": "n", "interval_seconds": 0},
        ]:
            assert (await api.post("import-jobs", json={"jobs": [{"job": body}]})).status_code == 400
        twice = {"job": {"source": "python", "target": "x:y", "name": "n"}}
        assert (await api.post("import-jobs", json={"jobs": [twice, twice]})).status_code == 400
        late = {**twice, "anchor": "yesterday"}
        assert (await api.post("import-jobs", json={"jobs": [late]})).status_code == 400


# As it is typed


@pytest.mark.thorough
def test_a_crontab_is_imported_compared_and_moved_over(cli: CommandLine) -> None:
    (cli.folder / "tab").write_text("CRON_TZ=Europe/Berlin\n*/5 * * * * /usr/bin/a -x\n0 3 * * * b%in\n", "utf-8")
    command = ("import", "crontab", "tab", "--target", "feeds:news", "--tag", "moved")
    assert "Would import 2 jobs" in cli.good(*command, "--dry-run").out
    assert cli.good("ls", "--json").json == []
    made = cli.good(*command, "--json").json
    assert (made["made"], made["errors"], made["dry_run"]) == (["cron-a-x", "cron-b"], [], False)
    assert cli.good(*command, "--json").json["already"] == ["cron-a-x", "cron-b"]

    a, b = (cli.good("show", name, "--json").json["job"] for name in made["made"])
    assert (a["target"], a["cron_expression"], a["timezone"]) == ("feeds:news", "*/5 * * * *", "Europe/Berlin")
    assert (a["params"], a["scheduler_version"], a["tags"]) == ({"command": "/usr/bin/a -x"}, 1, ["moved"])
    assert b["params"] == {"command": "b", "stdin": "in"}
    assert a["stream"] != b["stream"]

    cli.refused("shadow", "report", says="the shadow is off")
    cli.good("shadow", "start")
    assert "Recorded 2 jobs up to now" in cli.good("shadow", "step").out
    assert "0 differing" in cli.good("shadow", "report").out
    assert "on" in cli.good("shadow").out
    cli.refused("run", "cron-b", says="belongs to the old scheduler")
    assert "Nothing was changed" in cli.good("migrate-jobs", "--tag", "moved", "--dry-run").out
    cli.refused("migrate-jobs", "--all", says="it needs confirmation")
    assert "Moved 2 jobs to this scheduler" in cli.good("migrate-jobs", "--all", "--yes").out
    assert "Nothing to move" in cli.good("migrate-jobs", "--all").out
    assert cli.good("show", "cron-b", "--json").json["job"]["scheduler_version"] == SCHEDULER_VERSION
    cli.good("migrate-jobs", "cron-b", "--back", "--yes", "--json")
    cli.good("shadow", "stop", "--yes")


def test_one_bad_line_keeps_all_from_being_imported_unless_it_is_left_out(cli: CommandLine) -> None:
    (cli.folder / "tab").write_text("@daily good\n61 * * * * bad\n", encoding="utf-8")
    command = ("import", "crontab", "tab", "--target", "feeds:news")
    refused = cli(*command)
    assert refused.code == 2
    assert "line 2" in refused.out
    assert "bad minute" in refused.out
    assert cli.good("ls", "--json").json == []
    assert cli.good(*command, "--skip-bad", "--take-over", "--json").json["made"] == ["cron-good"]
    assert cli.good("show", "cron-good", "--json").json["job"]["scheduler_version"] == SCHEDULER_VERSION
    cli.refused("import", "crontab", "nowhere", "--target", "x:y", says="cannot be read")


def test_a_report_with_differences_ends_with_one(cli: CommandLine) -> None:
    async def stock() -> None:
        async with open_resources(
            Settings(database_url=f"sqlite:///{cli.folder}/.floodmark/floodmark.db")
        ) as resources:
            job_id = await old_job(resources, "news")
            await some_hours(resources, HandoverHandlers(resources, ACTOR), job_id)

    (cli.folder / ".floodmark").mkdir()
    asyncio.run(stock())
    answer = cli("shadow", "report", "--hours", "48")
    assert answer.code == 1
    assert "news missed: " in answer.out
    assert "news extra: " in answer.out
    as_json = cli("shadow", "report", "--json")
    assert (as_json.code, as_json.json["jobs"][0]["missed"], as_json.json["jobs"][0]["extra"]) == (1, 1, 1)
    cli.refused("shadow", "report", "--table", "nothing", says="there is no table")


# APScheduler


def work(*_: object, **__: object) -> None:
    """What the jobs of the old scheduler run."""


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/old.sqlite"


@pytest.fixture
def old(store_url: str) -> Iterator[Any]:
    """A real APScheduler on a real store, which never runs anything."""
    store = SQLAlchemyJobStore(url=store_url)
    scheduler = BackgroundScheduler(
        jobstores={"default": store}, executors={"default": ThreadPoolExecutor(1)}, timezone="Europe/Berlin"
    )
    scheduler.start(paused=True)
    yield scheduler
    scheduler.shutdown()


CRON: list[dict[str, Any]] = [
    {"minute": "*/15", "hour": "8-18"},
    {"minute": "5,35", "hour": "0-23/2", "month": "jan-jun,9"},
    {"day_of_week": "mon-fri", "hour": 2},
    {"day_of_week": "0,6", "hour": 2, "minute": 30},
    {"day_of_week": "*/2", "hour": 12},
    {"day": "last", "hour": 3},
    {"day": "2nd mon", "hour": 3},
    {"day": "last fri", "hour": 3},
    {"day": "1,15-20/2", "hour": 4, "minute": "10/20"},
    {"month": "*/3", "day": 31, "hour": 1},
]


@pytest.mark.parametrize("fields", CRON, ids=str)
def test_a_cron_trigger_fires_at_the_same_instants_as_it_did(fields: dict[str, Any]) -> None:
    trigger = CronTrigger(timezone="Europe/Berlin", **fields)
    now = datetime(2026, 4, 1, 12, 30, 30, tzinfo=UTC)
    theirs: list[datetime] = []
    moment = now
    for _ in range(30):
        found = trigger.get_next_fire_time(theirs[-1] if theirs else None, moment)
        theirs.append(found)
        moment = found + timedelta(seconds=1)
    imported = read_job(pickled(trigger), next_run=1.0, now=now)
    ours = list(islice(instants(trigger_of(imported.when, anchor=now), now), 30))
    assert imported.when.timezone == "Europe/Berlin"
    assert ours == [instant.astimezone(UTC) for instant in theirs]


def pickled(trigger: Any, protocol: int = pickle.HIGHEST_PROTOCOL, **changes: Any) -> bytes:
    """A row of the store, as APScheduler writes it."""
    state = {
        "version": 1,
        "id": "one",
        "func": "feeds:news",
        "trigger": trigger,
        "executor": "default",
        "args": (),
        "kwargs": {},
        "name": "news",
        "misfire_grace_time": 1,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": None,
        **changes,
    }
    return pickle.dumps(state, protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_an_interval_keeps_to_its_grid(protocol: int) -> None:
    now = datetime(2026, 6, 1, 12, 7, tzinfo=UTC)
    for start in (now - timedelta(minutes=33), now + timedelta(minutes=4)):
        trigger = IntervalTrigger(minutes=10, start_date=start, timezone=ZoneInfo("Asia/Tokyo"))
        imported = read_job(pickled(trigger, protocol), next_run=1.0, now=now)
        assert imported.anchor is not None
        assert imported.anchor <= now
        ours = trigger_of(imported.when, anchor=imported.anchor).after(now)
        assert ours == trigger.get_next_fire_time(None if start > now else now - timedelta(minutes=3), now)
        jittery = IntervalTrigger(minutes=10, start_date=start, timezone=ZoneInfo("Asia/Tokyo"), jitter=5)
        again = read_job(pickled(jittery, protocol), next_run=1.0, now=now)
        assert (again.when, again.anchor, again.policy.jitter) == (imported.when, imported.anchor, timedelta(seconds=5))


@pytest.mark.parametrize(
    ("trigger", "says"),
    [
        (CronTrigger(second="*/10", timezone="UTC"), "chooses seconds"),
        (CronTrigger(year=2027, timezone="UTC"), "chooses a year"),
        (CronTrigger(week=3, timezone="UTC"), "chooses a week"),
        (CronTrigger(day=13, day_of_week="fri", timezone="UTC"), "a day of the month and a day of the week"),
        (CronTrigger(hour=1, end_date="2030-01-01", timezone="UTC"), "ends on 2030"),
        (CronTrigger(hour=1, start_date="2030-01-01", timezone="UTC"), "does not begin before 2030"),
        (IntervalTrigger(hours=1, start_date="2030-01-01", timezone="UTC"), "does not begin before 2030"),
        (DateTrigger("2020-01-01", timezone="UTC"), "its only run was at 2020"),
        (CalendarIntervalTrigger(days=2, timezone="UTC"), "CalendarIntervalTrigger"),
    ],
    ids=str,
)
def test_what_cannot_be_said_here_is_refused_by_name(trigger: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        read_job(pickled(trigger), next_run=1.0, now=datetime(2026, 6, 1, tzinfo=UTC))
    assert refused.value.hint


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


class Sly:
    """Asks for an attribute of what it may name."""

    def __reduce__(self) -> Any:
        return getattr, (ZoneInfo, "__init__")


def test_nothing_that_lies_in_a_store_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hour = IntervalTrigger(hours=1, start_date="2026-05-31", timezone="UTC")
    evil: list[tuple[bytes, str]] = [
        (pickle.dumps(Evil(mark)), "system"),
        (pickled(Evil(mark)), "system"),
        (pickled(hour, kwargs={"x": [Evil(mark)]}), "system"),
        (pickled(hour, args=(Sly(),)), "__init__"),
        (pickled(hour, args=(print,)), "builtins.print"),
        (b"cos\nsystem\n(S'touch %s'\ntR." % bytes(mark), "os.system"),
        # What is called is changed first.
        (b"cpytz\n_p\n}S'__defaults__'\nNsb.", "changes what it calls"),
        (b"cdatetime\ndatetime\n}S'x'\nI1\nsb.", "cannot be read"),
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "memo is larger"),
        (b"\x80\x05", "cannot be read"),
        (b"", "cannot be read"),
        (b"x" * 1_000_001, "more than a job needs"),
        (pickle.dumps([1]), "no job of APScheduler"),
        (pickled(None), "no trigger"),
        (pickled(hour, func=None), "names no function"),
        (pickled(hour, kwargs={"x": {1, 2}}), "a set"),
        (pickled(hour, kwargs={1: 2}), "a dict"),
        (pickled(hour, kwargs={"x": datetime(2026, 1, 1, tzinfo=UTC)}), "a datetime"),
        (pickled(hour, kwargs=7), "cannot be read"),
        (pickled(hour, args=(bomb(),)), "too many"),
        (pickled(hour, misfire_grace_time="soon"), "number of seconds"),
    ]
    for state, says in evil:
        with pytest.raises(InvalidInput) as refused:
            read_job(state, next_run=1.0, now=datetime(2026, 6, 1, tzinfo=UTC))
        assert says in str(refused.value), state[:100]
    assert not mark.exists()


def bomb() -> list[Any]:
    """A few bytes of pickle, and more lists than there is memory."""
    value: list[Any] = []
    for _ in range(40):
        value = [value] * 10
    return value


@pytest.mark.thorough
def test_a_job_store_of_apscheduler_is_imported(cli: CommandLine, old: Any, store_url: str) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + DAY
    old.add_job(work, "cron", id="nightly", hour=2, misfire_grace_time=None, coalesce=False, max_instances=3)
    old.add_job(work, "interval", id="often", minutes=10, kwargs={"depth": 2}, args=["x", 1], misfire_grace_time=30)
    old.add_job(work, "date", id="later", run_date=later)
    old.add_job(work, "interval", id="resting", hours=1).pause()
    old.add_job(work, "interval", name="unnamed", hours=1)

    tried = cli.good("import", "apscheduler", store_url, "--dry-run")
    assert "Would import 5 jobs" in tried.out
    made = cli.good("import", "apscheduler", store_url, "--json").json
    assert sorted(made["made"]) == ["later", "nightly", "often", "resting", "unnamed"]
    assert len(cli.good("import", "apscheduler", store_url, "--json").json["already"]) == 5

    job = {name: cli.good("show", name, "--json").json["job"] for name in made["made"]}
    assert {one["target"] for one in job.values()} == {f"{__name__}:work"}
    assert {one["scheduler_version"] for one in job.values()} == {1}
    nightly, often = job["nightly"], job["often"]
    assert (nightly["cron_expression"], nightly["timezone"]) == ("0 2 * * *", "Europe/Berlin")
    assert (nightly["coalesce"], nightly["max_instances"], nightly["catch_up"]) == (False, 3, "none")
    assert nightly["misfire_grace_seconds"] == 315_360_000
    assert (often["params"], often["misfire_grace_seconds"]) == ({"depth": 2, "*args": ["x", 1]}, 30)
    assert [job[name]["paused"] for name in ("often", "resting")] == [False, True]

    moved = cli.good("migrate-jobs", "--all", "--yes", "--json").json["jobs"]
    next_run = {one["job"]: one["next_run"] for one in moved}
    assert datetime.fromisoformat(next_run["later"]) == later
    theirs = old.get_job("often").next_run_time.astimezone(UTC)
    assert datetime.fromisoformat(next_run["often"]) == theirs
    assert next_run["resting"] is None


async def test_a_job_store_may_lie_in_postgresql(pg_url: str) -> None:
    state = pickled(IntervalTrigger(hours=1, timezone="UTC"))
    connection = await asyncpg.connect(pg_url)
    try:
        await connection.execute("CREATE SCHEMA other")
        await connection.execute(
            "CREATE TABLE other.apscheduler_jobs (id text PRIMARY KEY, next_run_time float8, job_state bytea NOT NULL)"
        )
        await connection.execute("INSERT INTO other.apscheduler_jobs VALUES ('one', NULL, $1)", state)
    finally:
        await connection.close()
    [stored] = await stored_jobs(pg_url, "other.apscheduler_jobs")
    assert tuple(stored) == ("one", None, state)
    assert read_job(stored.job_state, next_run=stored.next_run_time, now=datetime.now(UTC)).is_paused
    with pytest.raises(Unavailable, match="cannot be read"):
        await stored_jobs("postgresql://nobody:secret@127.0.0.1:1/x", "apscheduler_jobs")


def test_a_store_with_a_malicious_job_is_not_imported_but_its_others_can_be(
    cli: CommandLine, old: Any, store_url: str
) -> None:
    old.add_job(work, "interval", id="good", hours=1)
    mark = cli.folder / "mark"
    with old._jobstores["default"].engine.begin() as connection:
        row = {"id": "evil", "next_run_time": 1.0, "state": pickle.dumps(Evil(mark))}
        connection.execute(text("INSERT INTO apscheduler_jobs VALUES (:id, :next_run_time, :state)"), row)
    refused = cli("import", "apscheduler", store_url)
    assert refused.code == 2
    assert "posix.system, which is not read for safety" in refused.out
    assert cli.good("ls", "--json").json == []
    assert cli.good("import", "apscheduler", store_url, "--skip-bad", "--json").json["made"] == ["good"]
    assert not mark.exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///nowhere.sqlite", "there is no file"),
        ("mysql://localhost/jobs", "only SQLite and PostgreSQL"),
        ("nonsense", "is not the URL of a database"),
    ],
)
def test_a_store_that_is_not_there_is_told(cli: CommandLine, url: str, says: str) -> None:
    cli.refused("import", "apscheduler", url, says=says)
    assert not (cli.folder / "nowhere.sqlite").exists()


def test_a_store_of_another_name_needs_its_name(cli: CommandLine, old: Any, store_url: str) -> None:
    old.add_job(work, "interval", id="good", hours=1)
    cli.refused("import", "apscheduler", store_url, "--table", "others", says="there is no table 'others'")


def test_an_added_job_is_ours(cli: CommandLine) -> None:
    """Whoever imports nothing need not know of all this."""
    cli.good("add", "python", "feeds:news", "--every", "15m")
    assert "No job belongs to an older scheduler" in [cli.good("shadow", "start"), cli.good("shadow", "report")][1].out
    assert a_spec().source == "python"
