"""What ran, and how it went."""

import re
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.batch import Kept
from floodmark.model.clock import SystemClock
from floodmark.model.execution import State
from floodmark.model.ids import floor_id, new_id
from floodmark.model.outcome import Cancelled, Dead, Done, Retry
from floodmark.repositories.history import ExecutionHistory, of_job
from floodmark.repositories.jobs import Jobs
from floodmark.store.database import PostgresDatabase
from floodmark.store.execution_rows import SELECT_EXECUTION
from system.stores import AnyDatabase, Crew, a_spec, put_execution

pytestmark = pytest.mark.every_database


def id_from(hours_ago: float) -> str:
    """An id as it would have been made then."""
    return floor_id(SystemClock().now() - timedelta(hours=hours_ago)) + new_id()[12:]


@pytest.mark.spec("E5")
async def test_a_run_is_remembered_with_all_that_matters(jobs: Jobs, history: ExecutionHistory, crew: Crew) -> None:
    job = await jobs.add(a_spec(name="news"))
    lease = await crew.run(jobs, job, Done(kept=Kept(3, 2, 1), result={"pages": 7}), duration=2.5)

    run = await history.get_execution(lease.execution_id)

    assert (run.job_name, run.state, run.attempt, run.worker) == ("news", State.DONE, 1, "w1")
    assert (run.items_new, run.items_changed, run.items_known) == (3, 2, 1)
    assert (run.result, run.error_message, run.duration_seconds) == ({"pages": 7}, None, 2.5)
    assert run.started_at is not None
    assert run.completed_at is not None
    assert abs((run.completed_at - run.started_at).total_seconds() - 2.5) < 0.1
    assert await history.get_execution(lease.execution_id[:20]) == run


@pytest.mark.spec("E5")
async def test_a_failure_is_remembered_with_every_attempt(jobs: Jobs, history: ExecutionHistory, crew: Crew) -> None:
    job = await jobs.add(a_spec())
    lease = await crew.run(jobs, job, Retry(after=timedelta(), error="first", details={"status": 500}))
    await crew.upkeep.wake(limit=10)
    [again] = await crew.leasing.claim([lease.execution_id], worker="w2", ttl=timedelta(seconds=15))
    await crew.end(again, Dead(error="second"))

    run = await history.get_execution(lease.execution_id)

    assert (run.state, run.error_message) == (State.DEAD, "second")
    assert [entry["error"] for entry in run.error_details] == ["first", "second"]
    assert run.error_details[0]["details"] == {"status": 500}


@pytest.mark.spec("G9")
async def test_an_unknown_execution_is_told(history: ExecutionHistory, database: AnyDatabase) -> None:
    await put_execution(database, execution_id="ab" * 16, job_id="a")
    await put_execution(database, execution_id="ab" * 15 + "cc", job_id="b")
    with pytest.raises(NotFound, match="no execution 'cd'") as missing:
        await history.get_execution("cd")
    assert "floodmark history" in missing.value.hint
    with pytest.raises(InvalidInput, match="several") as ambiguous:
        await history.get_execution("abab")
    assert "ab" * 15 + "cc" in ambiguous.value.hint
    with pytest.raises(NotFound):
        await history.get_execution("")


@pytest.mark.spec("E5")
async def test_recent_are_those_of_the_last_hours_and_the_unfinished(
    history: ExecutionHistory, database: AnyDatabase
) -> None:
    now = SystemClock().now()
    old = id_from(hours_ago=30)
    new = await put_execution(database, execution_id=id_from(hours_ago=1), job_id="new")
    await put_execution(database, execution_id=old, job_id="old", completed_at=now - timedelta(hours=29))
    waiting = await put_execution(
        database,
        execution_id=id_from(hours_ago=40),
        job_id="waiting",
        state="waiting",
        hold="dependency",
        completed_at=None,
    )
    died = await put_execution(database, execution_id=id_from(hours_ago=50), job_id="dead", state="dead")

    assert [run.execution_id for run in await history.get_recent_executions(24)] == [new, waiting, died]
    assert len(await history.get_recent_executions(48)) == 4
    assert [run.execution_id for run in await history.get_recent_executions(24, limit=1)] == [new]


@pytest.mark.spec("E5")
async def test_the_runs_of_one_schedule_by_id_or_name_also_when_it_is_gone(
    jobs: Jobs, history: ExecutionHistory, crew: Crew
) -> None:
    job, other = await jobs.add(a_spec(name="news")), await jobs.add(a_spec("other"))
    runs = [(await crew.run(jobs, job)).execution_id for _ in range(3)]
    await crew.run(jobs, other)

    async def ids(schedule: str, limit: int = 100) -> list[str]:
        return [run.execution_id for run in await history.get_executions_by_schedule(schedule, limit=limit)]

    assert await ids(job.job_id) == runs[::-1]
    assert await ids("news", limit=2) == runs[:0:-1]
    await jobs.remove(job)
    assert await ids(job.job_id) == runs[::-1]
    assert await ids("news") == runs[::-1]
    assert await ids("never-was") == []


@pytest.mark.spec("E5")
async def test_statistics_have_exactly_the_promised_keys(jobs: Jobs, history: ExecutionHistory, crew: Crew) -> None:
    job, other = await jobs.add(a_spec(name="news")), await jobs.add(a_spec("other"))
    assert await history.get_execution_statistics(7) == {
        "total_executions": 0,
        "successful": 0,
        "failed": 0,
        "cancelled": 0,
        "success_rate": 0.0,
        "avg_duration": None,
        "min_duration": None,
        "max_duration": None,
    }
    for seconds in (1.0, 2.0, 6.0):
        await crew.run(jobs, job, duration=seconds)
    await crew.run(jobs, job, Dead(error="x"), duration=3.0)
    await crew.run(jobs, job, Cancelled(reason="replaced by a later instant"))
    await crew.start(jobs, job)
    await crew.run(jobs, other, duration=9.0)

    assert await history.get_execution_statistics(days=7, job="news") == {
        "total_executions": 6,
        "successful": 3,
        "failed": 1,
        "cancelled": 1,
        "success_rate": 75.0,
        "avg_duration": 3.0,
        "min_duration": 1.0,
        "max_duration": 6.0,
    }
    everything = await history.get_execution_statistics(7)
    assert (everything["total_executions"], everything["max_duration"]) == (7, 9.0)


@pytest.mark.spec("E5")
async def test_statistics_leave_out_what_is_older_or_never_ran(
    history: ExecutionHistory, database: AnyDatabase
) -> None:
    await put_execution(database, execution_id=id_from(hours_ago=49), job_id="old")
    await put_execution(database, state="skipped", job_id="skipped")
    await put_execution(database, state="cancelled", job_id="cancelled", duration_seconds=99.0)
    found = await history.get_execution_statistics(2)
    assert (found["total_executions"], found["successful"], found["max_duration"]) == (1, 0, None)


@pytest.mark.spec("E5")
async def test_cleaning_up_keeps_the_young_and_the_unfinished(
    history: ExecutionHistory, database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.repositories.history._DELETED_AT_ONCE", 2)
    for n in range(5):
        await put_execution(database, execution_id=id_from(hours_ago=49), job_id=f"old-{n}")
    young = await put_execution(database, execution_id=id_from(hours_ago=47), job_id="young")
    waits = await put_execution(database, execution_id=id_from(hours_ago=99), state="queued", completed_at=None)

    assert await history.cleanup_old_executions(2) == 5
    assert await history.cleanup_old_executions(2) == 0
    assert [run.execution_id for run in await history.page()] == [young, waits]


@pytest.mark.spec("G9")
@pytest.mark.parametrize("days", [-1, 1e12, float("nan"), 30_000])
async def test_a_time_that_cannot_be_looked_back_is_refused(history: ExecutionHistory, days: float) -> None:
    with pytest.raises(InvalidInput):
        await history.cleanup_old_executions(days)
    with pytest.raises(InvalidInput):
        await history.get_execution_statistics(days)


async def test_pages_follow_each_other_without_gap_or_repetition(
    history: ExecutionHistory, database: AnyDatabase
) -> None:
    for n in range(7):
        await put_execution(database, job_id=f"job-{n}", state=("dead", "done")[n % 2])

    seen: list[str] = []
    while page := await history.page(before=seen[-1] if seen else None, limit=3):
        seen += [run.execution_id for run in page]

    assert len(seen) == 7
    assert all(earlier > later for earlier, later in pairwise(seen))
    assert len(await history.page(states=[State.DEAD])) == 4
    assert [run.job_id for run in await history.page("job-3")] == ["job-3"]


async def test_pages_of_one_job_follow_its_instants(history: ExecutionHistory, database: AnyDatabase) -> None:
    now = SystemClock().now()
    ids = [await put_execution(database, scheduled_for=now - timedelta(hours=n)) for n in range(7)]

    seen: list[str] = []
    while page := await history.page("job", before=seen[-1] if seen else None, limit=3):
        seen += [run.execution_id for run in page]

    assert seen == ids
    assert await history.page("job", before="0") == []


async def test_a_page_of_one_job_costs_no_more_when_its_history_is_long(database: AnyDatabase) -> None:
    """It is read in the order of an index: nothing is sorted."""
    query = of_job(SELECT_EXECUTION, "job", SystemClock().now()).limit(50)
    is_postgres = isinstance(database, PostgresDatabase)
    dialect = database.engine.dialect
    async with database.writing() as connection:
        if is_postgres:
            # The table is empty: whatever the plan, it would cost nothing.
            for way in ("seqscan", "bitmapscan"):
                await connection.execute(text(f"SET LOCAL enable_{way} = off"))
        told = query.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        rows = await connection.execute(text(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {told}"))
        plan = "\n".join(str(row[-1]) for row in rows)
    assert ("uq_job_executions_job_id_scheduled_for" if is_postgres else "(job_id=? AND scheduled_for<?)") in plan
    assert not re.search("sort|temp", plan, re.IGNORECASE)
