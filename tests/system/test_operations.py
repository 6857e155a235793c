"""One set of verbs, and an audit of every change made through it."""

from collections.abc import AsyncIterator

import pytest

from floodmark.errors import Conflict, NotFound
from floodmark.model.audit import Actor
from floodmark.model.execution import State
from floodmark.model.job import Overlap, Priority
from floodmark.model.outcome import Dead
from floodmark.model.page import cursor_of
from floodmark.operations.executions import Letters
from floodmark.operations.jobs import JobFilter
from floodmark.operations.local import LocalOperations
from floodmark.outbound.breakers import Breakers
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.settings import Settings
from floodmark.testing.factories import settle, take
from floodmark.wiring.resources import open_resources
from system.stores import a_spec


@pytest.fixture
async def operations(migrated_url: str) -> AsyncIterator[LocalOperations]:
    async with open_resources(Settings(database_url=migrated_url)) as resources:
        yield LocalOperations(resources, Actor(who="ada", via="api", request_id="r1"))


async def told(operations: LocalOperations, what: str) -> list[str]:
    return [row.action for row in (await operations.audit(what=what)).items]


async def test_every_change_of_a_job_is_in_the_audit(operations: LocalOperations) -> None:
    await operations.add_job(a_spec(name="news"))
    await operations.change_job("news", {"priority": 1, "tags": ["a"]})
    await operations.change_job("news", {"priority": 1})
    await operations.pause_job("news", "too loud")
    await operations.resume_job("news")
    await operations.remove_job("news")

    rows = (await operations.audit(what="job:news")).items

    assert [row.action for row in rows] == [
        "job.removed",
        "job.resumed",
        "job.paused",
        "job.changed",
        "job.added",
    ]
    changed = rows[3]
    assert (changed.before, changed.after) == ({"priority": 2, "tags": []}, {"priority": 1, "tags": ["a"]})
    assert (changed.who, changed.via, changed.request_id) == ("ada", "api", "r1")
    assert (rows[2].after["paused"], rows[2].after["pause_reason"]) == (True, "too loud")
    assert rows[0].before["name"] == "news"


async def test_what_is_refused_is_not_in_the_audit(operations: LocalOperations) -> None:
    job = await operations.add_job(a_spec(name="news"))
    with pytest.raises(Conflict, match="was changed meanwhile"):
        await operations.change_job("news", {"priority": 1}, version=job.version + 1)
    with pytest.raises(NotFound):
        await operations.pause_job("olds")
    assert await told(operations, "job:news") == ["job.added"]
    assert len((await operations.audit()).items) == 1


async def test_one_execution_is_cancelled_and_the_others_are_not(operations: LocalOperations) -> None:
    await operations.add_job(a_spec(name="news"))
    first, second = await operations.run_job("news"), await operations.run_job("news", {"depth": 2})
    assert second.reason is not None

    assert (await operations.cancel_execution(first.execution_id)).state is State.CANCELLED
    with pytest.raises(Conflict, match="has ended already"):
        await operations.cancel_execution(first.execution_id)

    assert (await operations.execution(second.execution_id)).state is State.WAITING
    assert await told(operations, f"execution:{first.execution_id}") == ["execution.cancelled"]
    assert await told(operations, "job:news") == ["job.run", "job.run", "job.added"]


async def test_jobs_are_found_by_filter_in_pages(operations: LocalOperations) -> None:
    for name in "abc":
        await operations.add_job(a_spec(name=name, domain="example.org" if name != "b" else None))
    found = (await operations.jobs(JobFilter(domain="example.org"), limit=1)).items
    assert [job.name for job in found] == ["a"]
    assert [
        job.name
        for job in (await operations.jobs(JobFilter(domain="example.org"), cursor=cursor_of("jobs", "a"))).items
    ] == ["c"]


async def test_watermarks_and_workers_are_told_with_a_trace(operations: LocalOperations) -> None:
    await operations.add_job(a_spec(name="news", stream="s"))
    await operations.set_watermark("news", {"id": 7})
    await operations.reset_watermark("s")
    await operations.drain()
    assert (await operations.fleet()).draining
    await operations.undrain()
    rows = (await operations.audit(what="stream:s")).items
    assert [(row.action, row.before, row.after) for row in rows] == [
        ("watermark.reset", {"value": {"id": 7}}, {"value": None}),
        ("watermark.set", {"value": None}, {"value": {"id": 7}}),
    ]
    assert await told(operations, "workers") == ["workers.resumed", "workers.drained"]


async def test_dead_letters_that_are_not_there_are_told(operations: LocalOperations) -> None:
    with pytest.raises(NotFound, match="no such dead letters"):
        await operations.retry_letters(Letters(job="news"))
    assert (await operations.audit()).items == []


@pytest.mark.parametrize("priority", Priority)
async def test_what_a_person_asks_for_is_not_said_to_have_waited(
    operations: LocalOperations, priority: Priority
) -> None:
    """Neither is what was forced to the front nor what is retried in its place."""
    await operations.add_job(a_spec(name="news", priority=priority))
    asked = await operations.run_job("news")
    [forced] = await take(operations.resources)
    await settle(operations.resources, forced, Dead(error="boom"))
    assert await operations.retry_letters(Letters(ids=(asked.execution_id,))) == 1

    [retried] = await take(operations.resources)

    patience = operations.resources.settings.queue_patience.total_seconds()
    assert forced.waited is not None
    assert forced.waited < patience / 2
    assert retried.waited is not None
    assert retried.waited < patience / 2


async def test_a_breaker_that_is_closed_leaves_a_trace_of_what_it_was(operations: LocalOperations) -> None:
    now = operations.resources.clock.now()
    opened = Breaker(state=BreakerState.OPEN, open_until=now, trips=1, reason="refused")
    await Breakers(operations.resources.database, operations.resources.clock).change("telegram", lambda *_: opened)
    assert (await operations.reset_breaker("telegram")).state == "open"
    [row] = (await operations.audit(what="breaker:telegram")).items
    assert (row.before, row.after) == ({"state": "open"}, {"state": "closed"})


async def test_there_are_no_accounts_at_first(operations: LocalOperations) -> None:
    assert (await operations.accounts()).items == []


async def test_the_stream_of_a_job_that_has_not_run_is_known_by_its_name_too(operations: LocalOperations) -> None:
    job = await operations.add_job(a_spec(name="news"))
    assert await operations.find_items_stream(job.stream) == job.stream == await operations.find_items_stream("news")
    assert (await operations.describe_stream(job.stream)).items == 0
    assert (await operations.set_watermark(job.stream, {"id": 7})).value == {"id": 7}
    with pytest.raises(NotFound, match="there is no stream 'python:on'"):
        await operations.find_items_stream("python:on")


@pytest.mark.spec("E7", "E11")
async def test_a_job_that_is_added_again_replaces_the_one_of_its_name(migrated_url: str) -> None:
    """As in APScheduler. It kills no execution: that is for `overlap` to say."""
    settings = Settings(database_url=migrated_url, job_replace_existing_instance=True)
    assert settings.default_policy().overlap is Overlap.SKIP
    assert Settings(job_overlap=Overlap.REPLACE).default_policy().overlap is Overlap.REPLACE
    async with open_resources(settings) as resources:
        operations = LocalOperations(resources, Actor(who="ada", via="cli"))
        first = await operations.add_job(a_spec(name="news", tags=("a",), depends_on=()))
        running = await operations.run_job("news")
        await take(resources)
        await operations.pause_job("news", "for now")

        second = await operations.add_job(a_spec("two", name="news", retry_max=9))
        assert (second.job_id, second.target, second.tags, second.retry_max) == (first.job_id, "two", (), 9)
        assert (second.paused, second.pause_reason, second.next_run) == (False, None, None)
        assert (await operations.execution(running.execution_id)).state is State.RUNNING
        assert await told(operations, "job:news") == ["job.replaced", "job.paused", "job.run", "job.added"]
        # One without a name of its own still gets another.
        assert (await operations.add_job(a_spec("news"))).name == "news-2"
    async with open_resources(Settings(database_url=migrated_url)) as resources:
        with pytest.raises(Conflict, match="already a job 'news'"):
            await LocalOperations(resources, Actor(who="ada", via="cli")).add_job(a_spec(name="news"))
