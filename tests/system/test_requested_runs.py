"""Runs on request: committed together, each with its audit entry, and none lost or doubled."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from command_line import CommandLine, environment
from floodmark.app import Floodmark
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.audit import Actor
from floodmark.model.execution import State
from floodmark.observability.events import ExecutionsEnqueued
from floodmark.operations.local import LocalOperations
from floodmark.process import failpoints
from floodmark.sources.validation import Validation
from floodmark.store.tables import audit, job_executions
from floodmark.testing.factories import Opened, count_of, given_job, requeue, rows_of, state_of, take

pytestmark = pytest.mark.spec("B17", "V8")

ADA = Actor(who="ada", via="api")


@pytest.fixture(params=["sqlite", "postgres_only", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def local(opened: Opened) -> AsyncIterator[LocalOperations]:
    async with opened() as resources:
        yield LocalOperations(resources, ADA)


async def test_runs_that_are_requested_at_once_are_all_stored_with_their_audit(local: LocalOperations) -> None:
    resources, put = local.resources, list[ExecutionsEnqueued]()
    resources.events.listen(ExecutionsEnqueued, put.append)
    names = [f"job-{number}" for number in range(50)]
    for name in names:
        await given_job(resources, name=name, stream=name)

    asked = await asyncio.gather(*map(local.run_job, names))

    assert [one.reason for one in asked] == [None] * 50
    leases = await take(resources)
    assert {lease.execution_id for lease in leases} == {one.execution_id for one in asked}
    rows = {row["object"]: row["after"] for row in await rows_of(resources, audit, action="job.run")}
    assert rows == {
        f"job:{name}": {"execution_id": one.execution_id, "params": {}} for name, one in zip(names, asked, strict=True)
    }
    assert len(put) < 10, "put together, not one by one"


async def test_a_job_that_is_requested_many_times_at_once_runs_one_after_the_other(local: LocalOperations) -> None:
    await given_job(local.resources, name="news")
    asked = await asyncio.gather(*(local.run_job("news") for _ in range(20)))
    [first] = [one for one in asked if one.reason is None]
    waits = {one.reason for one in asked if one is not first}
    assert waits == {f"waits for execution {first.execution_id}, which is queued"}
    assert len({one.scheduled_for for one in asked}) == 20
    [lease] = await take(local.resources)
    assert lease.execution_id == first.execution_id


async def test_processes_that_request_the_same_job_at_once_never_run_it_twice_at_a_time(opened: Opened) -> None:
    async with opened() as one, opened(hostname="other") as other:
        job_id = await given_job(one, name="news")
        operations = [LocalOperations(resources, ADA) for resources in (one, other)]
        for _ in range(5):
            await asyncio.gather(*(each.run_job("news") for each in operations))
        assert len(await take(one)) == 1
        assert await take(other) == []
        states = Counter(row["state"] for row in await rows_of(one, job_executions, job_id=job_id))
    assert states == {"running": 1, "waiting": 9}


async def test_a_job_is_found_by_its_name_its_id_or_a_beginning(local: LocalOperations) -> None:
    job_id = await given_job(local.resources, name="morning-news")
    for text in ("morning-news", " morning-news ", job_id, job_id.upper(), "morning", job_id[:20]):
        await local.run_job(text)
    assert len(await rows_of(local.resources, job_executions, job_id=job_id)) == 6
    with pytest.raises(NotFound, match="there is no job 'mourning-news'") as refused:
        await local.run_job("mourning-news")
    assert "did you mean morning-news?" in refused.value.hint
    for text in ("", "\0", "a\ud800"):
        with pytest.raises(NotFound):
            await local.run_job(text)


async def test_params_are_checked_against_the_job_as_it_is_now(opened: Opened) -> None:
    async with opened() as resources:
        sources = Floodmark(resources.settings).sources(imports=False)
        local = LocalOperations(replace(resources, validation=Validation(lambda: sources)), ADA)
        telegram = {"source": "telegram", "target": "@example_news", "interval_seconds": 300}
        web = {"source": "web", "target": "https://example.org/", "interval_seconds": 300}
        await local.add_job({"name": "news", **telegram})
        await local.run_job("news", {"history": 5})
        with pytest.raises(InvalidInput, match="has no param 'histori'"):
            await local.run_job("news", {"histori": 5})

        await local.change_job("news", web)
        await local.run_job("news", {"max_pages": 3})
        with pytest.raises(InvalidInput):
            await local.run_job("news", {"history": 5})

        # Another job of the same name, at the version that the first one had.
        await local.remove_job("news")
        await local.add_job({"name": "news", **telegram})
        await local.run_job("news", {"history": 6})
        with pytest.raises(InvalidInput):
            await local.run_job("news", {"max_pages": 3})
        assert await count_of(resources, job_executions) == 3


async def test_many_runs_have_a_result_each(local: LocalOperations) -> None:
    resources = local.resources
    for name in ("news", "weather"):
        await given_job(resources, name=name, stream=name)
    await given_job(resources, name="old", scheduler_version=1)

    report = await local.run_many(["news", "nowhere", "old", "weather", "news"], {"depth": 2})

    assert report.failed == 2
    assert [line.name for line in report.results] == ["news", "nowhere", "old", "weather", "news"]
    first, unknown, old, other, again = report.results
    assert first.run is not None
    assert other.run is not None
    assert again.run is not None
    assert again.run.reason == f"waits for execution {first.run.execution_id}, which is queued"
    assert unknown.error is not None
    assert (unknown.error.status, unknown.error.detail) == (404, "there is no job 'nowhere'")
    assert old.error is not None
    assert (old.error.status, "migrate-jobs old" in str(old.error.hint)) == (409, True)
    leases = await take(resources)
    assert {lease.execution_id: lease.params for lease in leases} == {
        first.run.execution_id: {"depth": 2},
        other.run.execution_id: {"depth": 2},
    }
    assert len(await rows_of(resources, audit, action="job.run")) == 3


async def test_a_request_that_is_written_twice_changes_nothing(local: LocalOperations) -> None:
    """As after a connection that was lost with the commit: nobody knows whether it was stored."""
    resources = local.resources
    await given_job(resources, name="news")
    request = resources.runs.request("news", {"depth": 1}, actor=ADA)
    first = await resources.runs.force(request)
    again = await resources.runs.force(request)
    assert (again.execution_id, again.scheduled_for, again.reason) == (first.execution_id, first.scheduled_for, None)
    assert await count_of(resources, job_executions) == 1
    assert len(await rows_of(resources, audit, action="job.run")) == 1


async def test_a_run_is_not_requested_within_a_transaction(local: LocalOperations) -> None:
    await given_job(local.resources, name="news")
    async with local.resources.database.writing():
        with pytest.raises(AssertionError, match="after the commit"):
            await local.run_job("news")


@pytest.mark.spec("G1")
@pytest.mark.parametrize("point", ["operation.changed", "force.committed"])
async def test_a_process_that_is_killed_while_it_requests_a_run_leaves_all_of_it_or_nothing(
    opened: Opened, point: str, tmp_path: Path
) -> None:
    async with opened() as resources:
        await given_job(resources, name="news")
        settings = resources.settings
        redis = {} if settings.redis_url is None else {"REDIS_URL": str(settings.redis_url)}
        desk = CommandLine(tmp_path, DATABASE_URL=str(settings.database_url), **redis)
        doomed = {**environment(), failpoints.VARIABLE: f"{point}:kill"}
        with desk.start("run", "news", env=doomed) as process:
            assert await asyncio.to_thread(process.wait, 120) == -signal.SIGKILL

        rows = await rows_of(resources, job_executions)
        audited = [row["after"]["execution_id"] for row in await rows_of(resources, audit, action="job.run")]
        assert [row["execution_id"] for row in rows] == audited
        assert len(rows) == (point == "force.committed")
        await requeue(resources)
        assert [lease.execution_id for lease in await take(resources)] == audited
        asked = await LocalOperations(resources, ADA).run_job("news")
        expected = State.WAITING if rows else State.QUEUED
        assert await state_of(resources, asked.execution_id) is expected
