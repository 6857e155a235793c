"""The view of a job that `explain` is given, on both databases."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from floodmark.model.clock import SystemClock
from floodmark.model.job import Job
from floodmark.model.outcome import Dead, Retry, Snooze
from floodmark.operations.views import Views
from floodmark.repositories.fleet import FleetRepository
from floodmark.repositories.jobs import Jobs
from floodmark.rules.explain import explain
from system.stores import AnyDatabase, Crew, a_spec, put_execution

pytestmark = pytest.mark.every_database


@pytest.fixture
def views(database: AnyDatabase) -> Views:
    return Views(database, SystemClock())


async def code(views: Views, job: Job, leader: str | None = "host-1") -> str:
    return explain(await views.load(job, leader=leader)).code


@pytest.mark.spec("G5", "V8")
async def test_a_job_is_explained_through_its_life(jobs: Jobs, views: Views, crew: Crew, database: AnyDatabase) -> None:
    job = await jobs.add(a_spec(limit_key="account-1"))
    fleet = FleetRepository(database, SystemClock())
    assert await code(views, job) == "unplanned"
    assert await code(views, job, leader=None) == "no_leader"

    await jobs.force_run(job)
    assert await code(views, job) == "no_worker"
    await fleet.record_presence(
        "w", role="worker", hostname="h", pid=1, slots=2, busy=0, draining=False, ttl=timedelta(seconds=30)
    )  # fmt: skip
    assert await code(views, job) == "queued"
    await fleet.drain()
    assert await code(views, job) == "draining"
    await fleet.resume()

    [lease] = await crew.leasing.claim_next(1, worker="w", ttl=timedelta(seconds=15))
    assert await code(views, job) == "running"
    await crew.end(lease, Snooze(after=timedelta(seconds=40), reason="FloodWait on account 1", key="account-1"))
    view = await views.load(job, leader="host-1")
    assert view.limit is not None
    assert view.limit.reason == "FloodWait on account 1"
    assert explain(view).code == "limit"


async def test_a_retry_and_a_dead_letter_are_told_apart(jobs: Jobs, views: Views, crew: Crew) -> None:
    job, other = await jobs.add(a_spec("a")), await jobs.add(a_spec("b"))
    await crew.run(jobs, job, Retry(after=timedelta(seconds=40), error="boom"))
    await crew.run(jobs, other, Dead(error="boom"))
    assert await code(views, job) == "retry"
    assert await code(views, other) == "dead"


@pytest.mark.spec("V7")
async def test_unmet_dependencies_are_named(jobs: Jobs, views: Views, crew: Crew, database: AnyDatabase) -> None:
    first = await jobs.add(a_spec("first", name="first"))
    second = await jobs.add(a_spec("second", name="second", depends_on=("first",)))
    await put_execution(database, job_id=second.job_id, state="waiting", hold="dependency", completed_at=None)
    assert explain(await views.load(second, leader="l")).sentence == "waiting until first succeeds"
    await crew.run(jobs, first)
    assert (await views.load(second, leader="l")).waits_for == ()


async def test_those_ahead_in_the_queue_are_counted(jobs: Jobs, views: Views, database: AnyDatabase) -> None:
    queue = [await jobs.add(a_spec(name)) for name in "abc"]
    for job in queue:
        await jobs.force_run(job)
    assert [(await views.load(job, leader=None)).ahead for job in queue] == [0, 1, 2]
    async with database.writing() as connection:
        await connection.execute(text("DELETE FROM executions"))
    assert (await views.load(queue[2], leader=None)).ahead == 0
