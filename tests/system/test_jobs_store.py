"""Jobs as people make, change and remove them, on both databases."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import event, func, insert, select, text

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.clock import SystemClock
from floodmark.model.execution import Hold, State
from floodmark.model.ids import new_id
from floodmark.model.job import CatchUp, Frequency, Overlap, Policy, Priority, ScheduleType, When
from floodmark.model.outcome import Retry
from floodmark.model.spec import JobSpec
from floodmark.repositories.dependencies import find_cycle
from floodmark.repositories.history import ExecutionHistory
from floodmark.repositories.jobs import Jobs
from floodmark.store.tables import job_dependencies
from floodmark.store.tables import jobs as job_table
from system.stores import TTL, AnyDatabase, Crew, a_spec, execution_row

pytestmark = pytest.mark.every_database

WEEKLY = When(
    schedule_type=ScheduleType.CALENDAR,
    frequency=Frequency.WEEKLY,
    time_config={"day": "monday", "hour": 2, "minute": 0},
    timezone="Europe/Berlin",
)


async def count_jobs(database: AnyDatabase) -> int:
    async with database.reading() as connection:
        return int((await connection.execute(select(func.count()).select_from(job_table))).scalar_one())


@pytest.mark.spec("E2", "E3", "V7")
async def test_a_job_comes_back_as_it_was_asked_for(jobs: Jobs) -> None:
    spec = a_spec(
        "https://example.com",
        name="everything",
        source="cookies",
        stream="scans",
        when=WEEKLY,
        policy=Policy(overlap=Overlap.QUEUE, max_instances=2, coalesce=False, catch_up=CatchUp.ALL,
                      misfire_grace=timedelta(seconds=5), jitter=timedelta(seconds=1.5)),
        params={"maxPages": 50, "customPages": ["/a"]},
        tags=("scan", "weekly"),
        priority=Priority.HIGH,
        timeout=timedelta(minutes=5),
        retry_max=7,
        limit_key="host:example.com",
        account="a1",
        schedule_enabled=False,
        domain="example.com",
        domain_config_id="abc-123",
        profile_id="p",
        source_id="s",
        url="https://example.com/start",
        tenant_id="t",
        user_id="u",
        trigger_webhook="/sources/*/crawl",
        trigger_channel="content:new",
    )  # fmt: skip

    made = await jobs.add(spec)

    for field in set(spec.__struct_fields__) - {"declared"}:
        assert getattr(made, field) == getattr(spec, field), field
    assert made.version == 1
    assert made.next_run is None
    assert abs(SystemClock().now() - made.created_at) < timedelta(minutes=2)
    assert await jobs.get("everything") == made


@pytest.mark.spec("V7")
async def test_a_job_without_a_name_gets_one_of_its_own(jobs: Jobs) -> None:
    names = [(await jobs.add(a_spec("https://Example.com/News", source="web"))).name for _ in range(3)]
    assert names == ["web-example-com-news", "web-example-com-news-2", "web-example-com-news-3"]
    assert (await jobs.add(a_spec("myapp.feeds:latest_news"))).name == "latest-news"


@pytest.mark.spec("G9")
async def test_a_name_that_is_taken_is_refused(jobs: Jobs, database: AnyDatabase) -> None:
    await jobs.add(a_spec(name="news"))
    with pytest.raises(Conflict, match="already a job 'news'") as refused:
        await jobs.add(a_spec(name="news"))
    assert "floodmark show news" in refused.value.hint
    assert await count_jobs(database) == 1


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"when": When(schedule_type=ScheduleType.CRON, cron_expression="61 * * * *")}, "61"),
        ({"when": When(schedule_type=ScheduleType.CRON)}, "cron_expression is missing"),
        ({"when": When(schedule_type=ScheduleType.EVENT, timezone="Mars/Base")}, "time zone"),
        ({"name": ""}, "name"),
        ({"name": " x"}, "space"),
        ({"name": "a\nb"}, "cannot be shown"),
        ({"target": "a\0b"}, "cannot be shown"),
        ({"target": "x" * 1999}, "too long"),
        ({"timeout": timedelta()}, "timeout_seconds"),
        ({"timeout": timedelta(days=99999)}, "timeout_seconds"),
        ({"retry_max": -1}, "retry_max"),
        ({"retry_max": True}, "retry_max"),
        ({"policy": Policy(max_instances=0)}, "max_instances"),
        ({"params": {"a": object()}}, "JSON"),
        ({"params": {"a": "\0"}}, "NUL"),
        ({"priority": 4}, "priority"),
        ({"depends_on": ("nobody",)}, "no job 'nobody'"),
    ],
)
async def test_what_makes_no_sense_changes_nothing(
    jobs: Jobs, database: AnyDatabase, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises((InvalidInput, NotFound), match=told) as refused:
        await jobs.add(a_spec(**changes))
    assert refused.value.hint
    assert await count_jobs(database) == 0


async def test_a_job_is_found_by_name_id_and_beginning(jobs: Jobs) -> None:
    news = await jobs.add(a_spec(name="news-daily"))
    await jobs.add(a_spec(name="sports"))
    await jobs.add(a_spec(name="sports-2"))

    assert await jobs.get("news-daily") == news
    assert await jobs.get(news.job_id) == news
    assert await jobs.get(news.job_id[:30].upper()) == news
    assert await jobs.get("news") == news
    assert (await jobs.get("sports")).name == "sports"
    with pytest.raises(InvalidInput, match="fits 2 jobs") as ambiguous:
        await jobs.get("spo")
    assert "sports, sports-2" in ambiguous.value.hint
    with pytest.raises(NotFound) as missing:
        await jobs.get("nevs-daily")
    assert missing.value.hint == "did you mean news-daily?"
    with pytest.raises(NotFound):
        await jobs.get("")
    with pytest.raises(NotFound):
        await jobs.get("%")


@pytest.mark.spec("E3")
async def test_jobs_are_found_by_what_they_are(jobs: Jobs) -> None:
    await jobs.add(a_spec("a", name="a", domain="example.com", domain_config_id="c1", tags=("x", "y")))
    await jobs.add(a_spec("b", name="b", source="web", priority=Priority.LOW, tags=("xx",)))
    c = await jobs.add(a_spec("C_%", name="c", schedule_enabled=False))
    await jobs.pause(c)

    async def names(**where: Any) -> str:
        return "".join(job.name for job in await jobs.find(**where))

    assert await names() == "abc"
    assert await names(domain="example.com") == "a"
    assert await names(domain_config_id="c1") == "a"
    assert await names(source="web") == "b"
    assert await names(tag="x") == "a"
    assert await names(priority=Priority.LOW) == "b"
    assert await names(enabled=False) == "c"
    assert await names(paused=False) == "ab"
    assert await names(text="EXAMPLE") == "a"
    assert await names(text="c_%") == "c"
    assert await names(limit=2) == "ab"
    assert await names(after="b") == "c"
    assert await names(source="web", tag="x") == ""


@pytest.mark.spec("E3", "V8")
async def test_every_change_is_one_step_of_the_version(jobs: Jobs) -> None:
    job = await jobs.add(a_spec(name="news"))

    renamed = await jobs.update(job, {"name": "newer", "tags": ["a"]})
    assert (renamed.version, renamed.name, renamed.tags) == (2, "newer", ("a",))
    assert renamed.updated_at > job.updated_at

    replanned = await jobs.update(renamed, {"schedule_type": "cron", "cron_expression": "0 3 * * *", "priority": 1})
    assert replanned.version == 3
    assert replanned.when.cron_expression == "0 3 * * *"
    assert replanned.planned_until is not None
    assert replanned.updated_at >= renamed.updated_at

    assert (await jobs.pause(replanned, "too loud")).version == 4
    assert (await jobs.update(replanned, {"priority": 1})).version == 4
    assert (await jobs.resume(replanned)).version == 5
    assert (await jobs.resume(replanned)).version == 5


async def test_the_same_time_config_in_another_order_is_no_change(jobs: Jobs) -> None:
    job = await jobs.add(a_spec(when=WEEKLY))
    same = await jobs.update(job, {"time_config": {"minute": 0, "hour": 2, "day": "monday"}})
    assert same.version == 1
    assert same.planned_until is None


@pytest.mark.spec("V8")
async def test_a_change_of_an_older_version_is_refused(jobs: Jobs) -> None:
    job = await jobs.add(a_spec(name="news"))
    await jobs.update(job, {"priority": 1}, expected_version=1)
    with pytest.raises(Conflict, match="at version 2, not 1") as refused:
        await jobs.update(job, {"priority": 3}, expected_version=1)
    assert "floodmark show news" in refused.value.hint
    assert (await jobs.get("news")).priority is Priority.HIGH


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("changes", "told", "hint"),
    [
        ({"cron_expresion": "x"}, "no field 'cron_expresion'", "cron_expression"),
        ({"paused": True}, "no field 'paused'", "pause"),
        ({"next_run": None}, "no field", ""),
        ({"priority": "high"}, "priority is 'high'", "1 is high"),
        ({"schedule_type": "cron"}, "cron_expression is missing", "set cron_expression"),
        ({"interval_seconds": float("nan")}, "interval_seconds", ""),
        ({"frequency": "yearly"}, "frequency", "hourly"),
        ({"depends_on": "news"}, "not a list", ""),
        ({"name": "other"}, "already a job 'other'", "choose another"),
        ({"priority": 1, "depends_on": ["nobody"]}, "no job 'nobody'", ""),
    ],
)
async def test_a_bad_change_changes_nothing(jobs: Jobs, changes: dict[str, Any], told: str, hint: str) -> None:
    job = await jobs.add(a_spec(name="news"))
    await jobs.add(a_spec(name="other"))
    with pytest.raises((InvalidInput, Conflict, NotFound), match=told) as refused:
        await jobs.update(job, changes)
    assert hint in refused.value.hint
    assert await jobs.get("news") == job


async def test_a_job_that_is_gone_is_told(jobs: Jobs) -> None:
    job = await jobs.add(a_spec())
    await jobs.remove(job)
    for again in (jobs.remove(job), jobs.pause(job), jobs.update(job, {"priority": 1}), jobs.force_run(job)):
        with pytest.raises(NotFound, match="gone"):
            await again


@pytest.mark.spec("V8")
async def test_a_forced_run_is_queued_even_for_a_paused_and_disabled_job(
    jobs: Jobs, database: AnyDatabase, crew: Crew
) -> None:
    job = await jobs.pause(await jobs.add(a_spec(schedule_enabled=False, priority=Priority.HIGH)), "why not")

    forced = await jobs.force_run(job, params={"depth": 1})

    assert forced.queued is not None
    assert forced.queued.priority is Priority.HIGH
    row = await execution_row(database, forced.execution_id)
    assert (row["state"], row["trigger"], row["params"]) == ("queued", "manual", {"depth": 1})
    [lease] = await crew.leasing.claim([forced.execution_id], worker="w", ttl=TTL)
    assert lease.params == {"depth": 1}


@pytest.mark.spec("V8", "E1")
async def test_a_forced_run_waits_for_the_one_that_is_under_way(jobs: Jobs, database: AnyDatabase, crew: Crew) -> None:
    job = await jobs.add(a_spec())
    lease = await crew.start(jobs, job)
    now = SystemClock().now()

    forced = await jobs.force_run(job, now=now)
    third = await jobs.force_run(job, now=now)

    assert forced.queued is None
    assert forced.reason == f"waits for execution {lease.execution_id}, which is running"
    assert (await execution_row(database, forced.execution_id))["hold"] == Hold.OVERLAP
    assert third.scheduled_for - forced.scheduled_for == timedelta(microseconds=1)
    assert await crew.upkeep.wake(limit=10) == []
    await crew.end(lease)
    rows = [await execution_row(database, one.execution_id) for one in (forced, third)]
    assert [row["state"] for row in rows] == ["queued", "waiting"]


async def test_a_forced_run_does_not_wait_for_one_that_is_held(jobs: Jobs, crew: Crew) -> None:
    """What was parked by a pause comes back only when the job is resumed: forcing must not wait for that."""
    job = await jobs.add(a_spec())
    parked = await jobs.force_run(job, trigger="webhook")
    job = await jobs.pause(job)
    assert await crew.leasing.claim([parked.execution_id], worker="w", ttl=TTL) == []

    assert (await jobs.force_run(job)).queued is not None


@pytest.mark.spec("V11")
async def test_a_job_of_the_old_scheduler_is_not_forced(jobs: Jobs) -> None:
    job = await jobs.update(await jobs.add(a_spec()), {"scheduler_version": 1})
    with pytest.raises(Conflict, match="old scheduler"):
        await jobs.force_run(job)


@pytest.mark.spec("V8")
async def test_cancel_ends_what_has_not_started_and_asks_what_has(
    jobs: Jobs, database: AnyDatabase, crew: Crew
) -> None:
    job, other = await jobs.add(a_spec()), await jobs.add(a_spec("other"))
    await jobs.force_run(other)
    lease = await crew.start(jobs, job)
    waiting = await jobs.force_run(job)

    assert await jobs.cancel(job) == 2

    row = await execution_row(database, waiting.execution_id)
    assert (row["state"], row["reason"]) == ("cancelled", "cancelled by operator")
    assert row["completed_at"] is not None
    extended = await crew.leasing.extend([lease], ttl=TTL)
    assert extended.cancelled == {lease.execution_id: "cancelled by operator"}


@pytest.mark.spec("E3")
async def test_a_removed_job_leaves_its_history(
    jobs: Jobs, history: ExecutionHistory, database: AnyDatabase, crew: Crew
) -> None:
    job = await jobs.add(a_spec(name="news"))
    done = await crew.run(jobs, job)
    lease = await crew.start(jobs, job)
    waiting = await jobs.force_run(job)

    await jobs.remove(job)

    states = {execution.execution_id: execution.state for execution in await history.page()}
    assert states == {
        done.execution_id: State.DONE,
        lease.execution_id: State.RUNNING,
        waiting.execution_id: State.CANCELLED,
    }
    assert (await execution_row(database, waiting.execution_id))["reason"] == "the job was deleted"
    assert (await crew.leasing.extend([lease], ttl=TTL)).cancelled == {lease.execution_id: "the job was deleted"}


@pytest.mark.spec("V7")
async def test_dependencies_are_kept_by_name(jobs: Jobs) -> None:
    a, b = await jobs.add(a_spec(name="a")), await jobs.add(a_spec(name="b"))
    c = await jobs.add(a_spec(name="c", depends_on=("b", a.job_id, "b")))

    assert c.depends_on == ("a", "b")
    assert (await jobs.get(c.job_id)).depends_on == ("a", "b")
    assert (await jobs.find(text="c"))[0].depends_on == ("a", "b")
    fewer = await jobs.update(c, {"depends_on": ["b"]})
    assert (fewer.depends_on, fewer.version) == (("b",), 2)
    assert (await jobs.update(c, {"depends_on": ["b"]})).version == 2
    await jobs.remove(b)
    assert (await jobs.get(c.job_id)).depends_on == ()


@pytest.mark.spec("V7")
async def test_a_cycle_is_refused_and_shown(jobs: Jobs) -> None:
    a = await jobs.add(a_spec(name="a"))
    b = await jobs.add(a_spec(name="b", depends_on=("a",)))
    await jobs.add(a_spec(name="c", depends_on=("b",)))

    with pytest.raises(Conflict, match="a -> c -> b -> a"):
        await jobs.update(a, {"depends_on": ["c"]})
    with pytest.raises(Conflict, match="b -> b"):
        await jobs.update(b, {"depends_on": ["b"]})
    assert (await jobs.get(a.job_id)).depends_on == ()
    assert (await jobs.get(b.job_id)).depends_on == ("a",)


@pytest.mark.spec("V7")
async def test_a_cycle_is_found_through_a_thousand_jobs(jobs: Jobs, database: AnyDatabase) -> None:
    first = await jobs.add(a_spec(name="first"))
    ids = [first.job_id, *(new_id() for _ in range(1_000))]
    rows = [{"job_id": job_id, "name": f"job-{n}", "target": "t"} for n, job_id in enumerate(ids) if n]
    edges = [{"job_id": there, "depends_on": here} for here, there in pairwise(ids)]
    async with database.writing() as connection:
        await connection.execute(insert(job_table), rows)
        await connection.execute(insert(job_dependencies), edges)

    with pytest.raises(Conflict, match=r"first -> job-1000 -> .*\.\.\. 990 more \.\.\..* -> job-1 -> first"):
        await jobs.update(first, {"depends_on": ["job-1000"]})


def test_a_diamond_is_no_cycle() -> None:
    edges = {"b": ["d"], "c": ["d"], "d": []}
    assert find_cycle(edges, "a", ["b", "c"]) == []
    assert find_cycle({**edges, "d": ["a"]}, "a", ["b"]) == ["a", "b", "d", "a"]


@pytest.mark.spec("V7")
async def test_a_declaration_holds_until_the_code_changes(jobs: Jobs) -> None:
    first = await jobs.declare(a_spec(name="news"))
    assert first.changed
    by_operator = await jobs.update(first.job, {"interval_seconds": 60, "priority": 1})

    again = await jobs.declare(a_spec(name="news"))
    assert (again.changed, again.job) == (False, by_operator)

    changed = await jobs.declare(a_spec(name="news", tags=("new",)))
    assert changed.changed
    assert (changed.job.when.interval_seconds, changed.job.priority, changed.job.tags) == (900, 2, ("new",))
    assert (changed.job.job_id, changed.job.version) == (first.job.job_id, 3)


async def test_a_declaration_keeps_a_pause(jobs: Jobs) -> None:
    job = (await jobs.declare(a_spec())).job
    await jobs.pause(job, "by hand")
    assert (await jobs.declare(a_spec(retry_max=1))).job.paused


async def test_a_declaration_does_not_take_over_a_job_made_by_hand(jobs: Jobs) -> None:
    job = await jobs.add(a_spec(name="news"))
    with pytest.raises(Conflict, match="by hand"):
        await jobs.declare(a_spec(name="news", retry_max=1))
    assert await jobs.get("news") == job


@pytest.mark.spec("E2")
async def test_a_row_typed_by_hand_is_a_job_like_any_other(jobs: Jobs, database: AnyDatabase) -> None:
    async with database.writing() as connection:
        await connection.execute(text("INSERT INTO jobs (name, target, interval_seconds) VALUES ('typed', 't', 60)"))
    job = await jobs.get("typed")
    assert (job.stream, job.when.interval_seconds, job.version) == ("python:t", 60, 1)
    assert (await jobs.pause(job)).paused


async def test_a_retry_that_waits_is_waited_for(jobs: Jobs, crew: Crew) -> None:
    job = await jobs.add(a_spec())
    await crew.run(jobs, job, Retry(after=timedelta(hours=1), error="boom"))
    assert (await jobs.force_run(job)).queued is None


@pytest.mark.spec("T1", "G8")
@pytest.mark.thorough
async def test_many_declarations_take_a_handful_of_statements(jobs: Jobs, database: AnyDatabase) -> None:
    def declared(**changes: Any) -> list[JobSpec]:
        chained = [a_spec(name=f"job-{n}", depends_on=(f"job-{n - 1}",) if n else (), **changes) for n in range(300)]
        return chained[::-1]

    statements = list[str]()
    event.listen(
        database.engine.sync_engine, "before_cursor_execute", lambda _c, _u, statement, *_: statements.append(statement)
    )
    assert await jobs.declare_all(declared()) == 300
    assert (await jobs.get("job-7")).depends_on == ("job-6",)
    assert await jobs.declare_all(declared()) == 0, "nothing has changed"
    assert await jobs.declare_all(declared(retry_max=9)) == 300
    changed = await jobs.get("job-7")
    assert (changed.retry_max, changed.version, changed.depends_on) == (9, 2, ("job-6",))
    assert len(statements) < 50, statements

    await jobs.add(a_spec(name="by-hand"))
    with pytest.raises(Conflict, match="added by hand"):
        await jobs.declare_all([*declared(retry_max=1), a_spec(name="by-hand")])
    with pytest.raises(Conflict, match="wait for each other: "):
        await jobs.declare_all([a_spec(name="job-0", depends_on=("job-299",))])
    assert (await jobs.get("job-7")).retry_max == 9, "all of them or none"


@pytest.mark.spec("G1")
async def test_many_at_once_do_not_get_in_each_others_way(jobs: Jobs) -> None:
    made = await asyncio.gather(*(jobs.add(a_spec("same")) for _ in range(6)))
    assert len({job.name for job in made}) == 6

    forced = await asyncio.gather(*(jobs.force_run(made[0]) for _ in range(5)))
    assert sum(run.queued is not None for run in forced) == 1

    declared = await asyncio.gather(*(jobs.declare(a_spec(name="declared")) for _ in range(5)))
    assert sum(one.changed for one in declared) == 1

    changes = [jobs.update(made[1], {"retry_max": n}, expected_version=1) for n in range(10, 15)]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 4


@pytest.mark.spec("V7")
async def test_a_cycle_closed_from_both_ends_at_once_is_refused(jobs: Jobs) -> None:
    a, b = await jobs.add(a_spec(name="a")), await jobs.add(a_spec(name="b"))
    links = (jobs.update(a, {"depends_on": ["b"]}), jobs.update(b, {"depends_on": ["a"]}))
    halves = await asyncio.gather(*links, return_exceptions=True)
    assert sum(isinstance(half, Conflict) for half in halves) == 1
