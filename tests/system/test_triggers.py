"""Triggers from outside: what a delivery fires, once; and what the leader hears of Redis."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis
from sqlalchemy import TextClause, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from floodmark.coordination.leader import Leader
from floodmark.coordination.leases.sql import SqlLeases
from floodmark.coordination.signals.port import Topic
from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.inbound.deliveries import Replayed, Taken
from floodmark.inbound.hops import TooManyHops
from floodmark.inbound.intake import Arrival, build_intake
from floodmark.inbound.redis_listeners import (
    CHANNELS,
    ChannelListener,
    StreamListener,
    build_listeners,
    find_hearing,
    group_of,
)
from floodmark.inbound.tables import trigger_deliveries
from floodmark.inbound.triggers import check_trigger
from floodmark.model.audit import Actor
from floodmark.model.external_triggers import NewTrigger, TriggerRow, TriggerStatus, the_only
from floodmark.model.job import ScheduleType, When
from floodmark.observability.events import Events, HintsGiven, InternalEvent, StepFailed, TriggersFired, TriggersMatched
from floodmark.operations.local import LocalOperations
from floodmark.repositories.fleet import FleetRepository
from floodmark.repositories.jobs import Jobs
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.sinks.hops import EventHops
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sources.loading import Sources
from floodmark.sources.validation import Validation
from floodmark.store.port import Event
from floodmark.store.tables import execution_hops, items, job_executions, jobs
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import given_job
from floodmark.triggers.matching import channel_matches, segments
from floodmark.wiring.resources import Resources, open_resources
from servers import Valkey
from system.stores import a_spec

SECRET = "a secret for tests only"
SECOND = timedelta(seconds=1)
EVENT = When(schedule_type=ScheduleType.EVENT)


class House:
    """One process, with what a person, a webhook or a message can do to it."""

    def __init__(self, resources: Resources, told: list[InternalEvent]) -> None:
        self.resources, self.told = resources, told
        self.intake = build_intake(resources)
        self.operations = LocalOperations(resources, Actor(who="ada", via="api"))
        self.jobs = Jobs(resources.database, resources.clock)

    async def job(self, name: str, **columns: Any) -> str:
        return await given_job(self.resources, name=name, **columns)

    async def add(self, kind: Any, pattern: str, *jobs: str, replace: bool = False, **more: Any) -> TriggerRow:
        return await self.operations.add_trigger(
            NewTrigger(kind=kind, pattern=pattern, jobs=jobs, **more), replace=replace
        )

    async def page(self, kind: str | None = None) -> list[TriggerStatus]:
        return [row for row in (await self.operations.triggers_status()).triggers if kind in (None, row.kind)]

    async def show(self, text: str) -> TriggerStatus:
        return the_only(
            [row for row in await self.page() if text == row.pattern or row.trigger_id.startswith(text)], text
        )

    async def hook(self, path: str, body: Any = None, **more: Any) -> Taken:
        arrival = Arrival(kind="webhook", subject=path, path=segments(path), body=body, **more)
        return await self.intake.take(arrival, await self.intake.matching(arrival))

    async def executions(self, **where: Any) -> list[Any]:
        # Ids of one millisecond are in no order.
        query = select(job_executions).order_by(job_executions.c.scheduled_for, job_executions.c.execution_id)
        for name, value in where.items():
            query = query.where(job_executions.c[name] == value)
        async with self.resources.database.reading() as connection:
            return list((await connection.execute(query)).all())

    async def hinted(self) -> set[str]:
        async with self.resources.database.reading() as connection:
            return set((await connection.execute(select(jobs.c.name).where(jobs.c.hinted_at.is_not(None)))).scalars())

    async def later(self, by: timedelta) -> None:
        """As if that much time had passed since the last deliveries."""
        async with self.resources.database.writing() as connection:
            cell = trigger_deliveries.c
            rows = (await connection.execute(select(cell.trigger_id, cell.delivery_id, cell.fires_at))).all()
            for trigger_id, delivery_id, fires_at in rows:
                this = update(trigger_deliveries).where(cell.trigger_id == trigger_id, cell.delivery_id == delivery_id)
                await connection.execute(this.values(fires_at=fires_at and fires_at - by))


@asynccontextmanager
async def opened(url: str, *, sources: bool = False, **settings: Any) -> AsyncIterator[House]:
    events, told = Events(), list[InternalEvent]()
    for kind in (TriggersFired, TriggersMatched, HintsGiven, StepFailed):
        events.listen(kind, told.append)
    wanted = Settings(**{"database_url": url, "floodmark_secret_key": SECRET, **settings})
    validation = Validation(lambda: Sources(wanted)) if sources else None
    async with open_resources(wanted, events=events, validation=validation) as resources:
        yield House(resources, told)


@pytest.fixture
async def house(migrated_url: str) -> AsyncIterator[House]:
    async with opened(migrated_url) as house:
        yield house


def names(taken: Taken) -> list[str]:
    return sorted(fired.job_name for fired in taken.executions)


# What a delivery fires


@pytest.mark.spec("V4", "V7")
async def test_one_path_fires_the_jobs_of_the_trigger_and_those_that_name_a_fitting_path(house: House) -> None:
    for name in ("listed", "unrelated"):
        await house.job(name)
    await house.job("starred", trigger_webhook="/sources/*/crawl")
    await house.job("rest", trigger_webhook="/sources/**", priority=1)
    await house.job("elsewhere", trigger_webhook="/other/*")
    await house.add("webhook", "/sources/{source_id}/crawl", "listed", params={"title": "body.article.title"})

    taken = await house.hook("/sources/42/crawl", {"article": {"title": "Tides"}})

    assert names(taken) == ["listed", "rest", "starred"]
    rows = await house.executions()
    assert {row.trigger for row in rows} == {"webhook:/sources/{source_id}/crawl"}
    assert {row.state for row in rows} == {"queued"}
    assert all(row.params == {"source_id": "42", "title": "Tides"} for row in rows)
    assert {row.job_name: row.priority for row in rows} == {"listed": 2, "starred": 2, "rest": 1}
    assert sum((await house.resources.queue.depth()).values()) == 3
    assert house.told == [TriggersFired("webhook"), TriggersMatched("webhook", 3)]


@pytest.mark.spec("V4", "V7")
async def test_jobs_that_name_a_path_need_no_trigger(house: House) -> None:
    await house.job("one", trigger_webhook="/sources/{id}/crawl")
    await house.job("two", trigger_webhook="/sources/*/crawl")
    taken = await house.hook("/sources/7/crawl")
    assert sorted((fired.job_name, fired.trigger) for fired in taken.executions) == [
        ("one", "webhook:/sources/{id}/crawl"),
        ("two", "webhook:/sources/*/crawl"),
    ]
    assert {row.job_name: row.params for row in await house.executions()} == {"one": {"id": "7"}, "two": None}


async def test_a_job_that_several_triggers_name_runs_once(house: House) -> None:
    await house.job("news", trigger_webhook="/a/*")
    await house.add("webhook", "/a/b", "news")
    await house.add("webhook", "/a/**", "news")
    assert len((await house.hook("/a/b")).executions) == 1
    assert len(await house.executions()) == 1


@pytest.mark.spec("V4")
async def test_what_concerns_no_job_is_counted(house: House) -> None:
    assert await house.hook("/nobody/home", delivery_id="d1") == Taken(delivery_id="d1")
    await house.hook("/nobody/there")
    await house.intake.refusals.flush()
    status = await house.operations.triggers_status()
    assert (status.unmatched.count, status.unmatched.last) == (2, "webhook:/nobody/there")
    assert house.told == [TriggersFired("webhook")] * 2


async def test_paused_disabled_old_and_missing_jobs_are_not_fired_and_the_answer_says_so(house: House) -> None:
    await house.job("paused", paused=True, pause_reason="too loud")
    await house.job("disabled", schedule_enabled=False)
    await house.job("old", scheduler_version=1)
    gone = await house.jobs.add(a_spec(name="gone"))
    await house.job("fine")
    row = await house.add("webhook", "/all", "paused", "disabled", "old", "gone", "fine")
    await house.jobs.remove(gone)

    taken = await house.hook("/all")

    assert names(taken) == ["fine"]
    assert {skipped.job: skipped.reason for skipped in taken.skipped} == {
        "paused": "it is paused: too loud",
        "disabled": "it is disabled",
        "old": "it belongs to the old scheduler",
        gone.job_id: "there is no such job",
    }
    [now] = await house.page()
    assert (now.fired, now.matched, now.trigger_id) == (1, 1, row.trigger_id)


@pytest.mark.spec("B3")
async def test_an_adaptive_job_gets_a_hint_and_the_answer_says_so(house: House) -> None:
    adaptive = await house.job("quiet", schedule_type="adaptive", trigger_webhook="/a/*")
    await house.job("loud", trigger_webhook="/a/*")
    await house.job("paused", schedule_type="adaptive", paused=True)
    await house.add("webhook", "/a/b", "quiet", "paused", debounce=10 * SECOND)
    bell = house.resources.signals.bell(Topic.JOBS)

    taken, again = await house.hook("/a/b", {"any": "body"}, delivery_id="d1"), await house.hook("/a/b")
    repeated = await house.hook("/a/b", {"any": "body"}, delivery_id="d1")

    assert [(hinted.job_id, hinted.trigger) for hinted in taken.hinted] == [(adaptive, "webhook:/a/b")]
    assert (names(taken), names(again)) == (["loud"], ["loud"])
    assert again.hinted == taken.hinted, "a hint that was not used yet stays"
    assert {skipped.job for skipped in taken.skipped} == {"paused"}
    assert (repeated.hinted, repeated.is_duplicate) == (taken.hinted, True)
    assert {row.job_name for row in await house.executions()} == {"loud"}
    assert (await house.show("/a/b")).hinted == 2
    assert await house.hinted() == {"quiet"}
    assert await bell.wait(120 * SECOND), "the leader is told"
    assert [told for told in house.told if isinstance(told, HintsGiven)] == [HintsGiven("webhook")] * 2


@pytest.mark.spec("B3")
async def test_hints_are_not_debounced(house: House) -> None:
    await house.job("quiet", schedule_type="adaptive")
    await house.add("webhook", "/a", "quiet", debounce=10 * SECOND)
    answers = [await house.hook("/a") for _ in range(3)]
    assert {answer.debounced_until for answer in answers} == {None}
    assert await house.executions() == []


@pytest.mark.spec("B3")
async def test_a_message_that_sets_params_of_the_source_runs_the_adaptive_job(migrated_url: str) -> None:
    async with opened(migrated_url, sources=True) as house:
        for name, source in (("feed", "feed"), ("site", "web")):
            await house.job(name, source=source, target="https://example.org/", schedule_type="adaptive")
        await house.add("webhook", "/{section}/new", "feed", "site", params={"max_pages": "body.pages"})

        plain, with_params = await house.hook("/news/new", {}), await house.hook("/news/new", {"pages": 3})

        assert (names(plain), [hinted.job_name for hinted in plain.hinted]) == ([], ["feed", "site"])
        assert (names(with_params), [hinted.job_name for hinted in with_params.hinted]) == (["site"], ["feed"])
        [row] = await house.executions()
        assert row.params == {"section": "news", "max_pages": 3}


async def test_an_execution_waits_for_the_one_under_way_and_for_what_its_job_depends_on(house: House) -> None:
    await house.jobs.add(a_spec(name="first"))
    await house.jobs.add(a_spec(name="second", depends_on=("first",)))
    await house.add("webhook", "/go", "first", "second")

    taken, again = await house.hook("/go"), await house.hook("/go")

    reasons = {fired.job_name: fired.reason for fired in taken.executions}
    assert reasons == {"first": None, "second": "waits for first to succeed"}
    [first] = [fired for fired in taken.executions if fired.job_name == "first"]
    [waiting] = [fired for fired in again.executions if fired.job_name == "first"]
    assert waiting.reason == f"waits for execution {first.execution_id}, which is queued"
    holds = sorted((row.job_name, row.state, row.hold) for row in await house.executions())
    assert holds == [
        ("first", "queued", None),
        ("first", "waiting", "overlap"),
        ("second", "waiting", "dependency"),
        ("second", "waiting", "dependency"),
    ]


async def test_a_thousand_jobs_are_fired_by_one_delivery(house: House) -> None:
    async with house.resources.database.writing() as connection:
        columns = {"target": "t", "schedule_type": "event", "trigger_webhook": "/everything"}
        rows = [{"job_id": f"j{number}", "name": f"n{number}", **columns} for number in range(1200)]
        await connection.execute(insert(jobs), rows)
    taken = await house.hook("/everything", delivery_id="d1")
    assert len({fired.execution_id for fired in taken.executions}) == 1200
    assert sum((await house.resources.queue.depth()).values()) == 1200
    assert (await house.hook("/everything", delivery_id="d1")).executions == taken.executions


@pytest.mark.spec("V4", "B17")
@pytest.mark.every_database
async def test_deliveries_that_arrive_together_are_written_together(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fires once, the runs of one job wait for each other, and the number of steps does not grow."""
    database, steps = house.resources.database, list[str]()
    for number in range(20):
        await house.job(f"job-{number}", trigger_webhook=f"/jobs/{number}")
    await house.job("busy")
    await house.job("asleep", paused=True)
    await house.add("webhook", "/busy", "busy", "asleep", params={"n": "body.n"})
    for name in ("hot", "hot_read"):
        if (step := getattr(database, name, None)) is not None:
            monkeypatch.setattr(database, name, _counting(step, steps))
    answers = await asyncio.gather(
        *(house.hook(f"/jobs/{number}") for number in range(20)),
        *(house.hook("/busy", {"n": number}, delivery_id=f"d{number // 2}") for number in range(10)),
    )
    assert len(steps) < 12
    assert sum(taken.is_duplicate for taken in answers) == 5
    rows = await house.executions()
    assert len(rows) == 25
    assert sorted(row.state for row in rows if row.job_name == "busy") == [
        "queued",
        "waiting",
        "waiting",
        "waiting",
        "waiting",
    ]
    busy = sorted((row for row in rows if row.job_name == "busy"), key=lambda row: row.scheduled_for)
    assert [row.params["n"] for row in busy] == [0, 2, 4, 6, 8]
    assert {row.state for row in rows if row.job_name != "busy"} == {"queued"}
    assert {skipped.job for taken in answers for skipped in taken.skipped} == {"asleep"}
    shown = await house.show("/busy")
    assert (shown.fired, shown.matched) == (5, 5)
    assert sum((await house.resources.queue.depth()).values()) == 21


def _counting(step: Callable[..., Any], steps: list[str]) -> Callable[..., Any]:
    async def counted(*arguments: Any, **more: Any) -> Any:
        steps.append(str(arguments[0]))
        return await step(*arguments, **more)

    return counted


async def test_text_that_no_database_holds_is_made_storable(house: House) -> None:
    await house.job("news")
    await house.add("webhook", "/x/*", "news", params={"a": "path.1", "b": "body.t"})
    await house.hook("/x/\ud800", {"t": "nul \0"}, delivery_id="d")
    [row] = await house.executions()
    assert row.params == {"a": "\ufffd", "b": "nul \u2400"}


# Once


@pytest.mark.spec("V4")
async def test_the_same_delivery_again_is_given_the_same_answer_and_fires_nothing(house: House) -> None:
    await house.job("news")
    await house.add("webhook", "/a", "news")
    first = await house.hook("/a", delivery_id="d1")
    again = await house.hook("/a", delivery_id="d1")
    assert (first.is_duplicate, again.is_duplicate) == (False, True)
    assert again.executions == first.executions
    assert len(await house.executions()) == 1
    assert len((await house.hook("/a", delivery_id="d2")).executions) == 1
    assert house.told.count(TriggersFired("webhook")) == 2


@pytest.mark.spec("V4")
async def test_a_delivery_that_reaches_two_processes_at_once_fires_once(migrated_url: str) -> None:
    async with opened(migrated_url) as one, opened(migrated_url) as other:
        await one.job("listed")
        await one.job("naming", trigger_webhook="/b")
        await one.add("webhook", "/a", "listed")
        for path in ("/a", "/b"):
            answers = await asyncio.gather(
                *(house.hook(path, delivery_id="d1") for house in (one, other) for _ in range(4))
            )
            assert len({fired.execution_id for taken in answers for fired in taken.executions}) == 1
            assert sorted(taken.is_duplicate for taken in answers) == [False] + [True] * 7
        assert len(await one.executions()) == 2


async def test_a_signature_counts_once_whatever_id_comes_with_it(house: House) -> None:
    await house.job("news")
    await house.add("webhook", "/a/*", "news")
    await house.hook("/a/1", delivery_id="d1", signature="s1")
    assert (await house.hook("/a/1", delivery_id="d1", signature="s1")).is_duplicate
    for path, more in (("/a/1", {"delivery_id": "d2"}), ("/a/2", {"delivery_id": "d3"}), ("/a/1", {})):
        with pytest.raises(Replayed):
            await house.hook(path, signature="s1", **more)
    assert len(await house.executions()) == 1


async def test_deliveries_are_forgotten_after_a_while(house: House) -> None:
    await house.job("news")
    await house.add("webhook", "/a", "news")
    await house.hook("/a", delivery_id="d1")
    assert await house.intake.deliveries.forget(timedelta(hours=1)) == 0
    assert await house.intake.deliveries.forget(-SECOND) == 1
    assert not (await house.hook("/a", delivery_id="d1")).is_duplicate


# Debounce


@pytest.mark.spec("V4")
async def test_what_comes_while_a_trigger_rests_becomes_one_more_execution_at_its_end(house: House) -> None:
    await house.job("news")
    await house.add("webhook", "/a/{n}", "news", debounce=timedelta(seconds=60), params={"v": "body.v"})

    first = await house.hook("/a/1", {"v": 1})
    second, third = await house.hook("/a/1", {"v": 2}), await house.hook("/a/1", {"v": 3})
    other = await house.hook("/a/2", {"v": 9})

    assert first.debounced_until is None
    assert second.debounced_until == third.debounced_until is not None
    assert [fired.is_folded for taken in (second, third) for fired in taken.executions] == [False, True]
    assert second.executions[0].execution_id == third.executions[0].execution_id
    assert other.debounced_until is None, "another path is another matter"
    rows = await house.executions()
    assert [(row.state, row.params, row.coalesced) for row in rows] == [
        ("queued", {"n": "1", "v": 1}, 0),
        ("waiting", {"n": "1", "v": 3}, 1),
        ("waiting", {"n": "2", "v": 9}, 0),
    ]
    assert rows[1].not_before == second.debounced_until
    [trigger] = await house.page()
    assert (trigger.fired, trigger.matched) == (4, 3)


async def test_a_trigger_that_has_rested_fires_at_once_and_one_that_just_fired_rests_again(house: House) -> None:
    await house.job("news")
    await house.add("webhook", "/a", "news", debounce=timedelta(seconds=60))
    await house.hook("/a")
    await house.hook("/a")
    await house.later(timedelta(seconds=70))
    # The one that waited has started ten seconds ago.
    resting = await house.hook("/a")
    assert resting.debounced_until is not None
    await house.later(timedelta(seconds=130))
    assert (await house.hook("/a")).debounced_until is None


async def test_two_processes_debounce_together(migrated_url: str) -> None:
    async with opened(migrated_url) as one, opened(migrated_url) as other:
        await one.job("news")
        await one.add("webhook", "/a", "news", debounce=timedelta(seconds=60))
        await asyncio.gather(*(house.hook("/a") for house in (one, other) for _ in range(5)))
        rows = await one.executions()
        assert [row.state for row in rows] == ["queued", "waiting"]
        assert rows[1].coalesced == 8


async def test_a_delivery_that_had_to_wait_for_another_is_the_later_one(pg_clean: str) -> None:
    """Else it would fall between the two: too early to rest with those to come, and never folded."""
    async with opened(pg_clean) as house:
        await house.job("news")
        await house.add("webhook", "/a", "news", debounce=timedelta(seconds=60))
        await house.hook("/a")
        async with house.operations.resources.database.engine.begin() as other:
            await other.execute(text("SELECT * FROM triggers FOR UPDATE"))
            coming = asyncio.create_task(house.hook("/a"))
            waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            await eventually(lambda: _is_any(house, waiting))
            await other.execute(text("UPDATE trigger_deliveries SET fires_at = clock_timestamp()"))
        until = (await coming).debounced_until
        assert until is not None
        assert until > datetime.now(UTC) + timedelta(seconds=30)


async def _is_any(house: House, query: TextClause) -> bool:
    async with house.operations.resources.database.engine.connect() as connection:
        return bool((await connection.execute(query)).scalar_one())


# Registering


@pytest.mark.spec("V8")
async def test_a_trigger_is_made_changed_shown_and_removed_with_a_trace(house: House) -> None:
    await house.job("news")
    row = await house.add("webhook", "/a//b/", "news", secret="s" * 20)
    assert (row.pattern, row.jobs, row.signed) == ("/a/b", ("news",), True)
    with pytest.raises(Conflict, match="already a webhook trigger") as caught:
        await house.add("webhook", "/a/b")
    assert "--replace" in caught.value.hint

    changed = await house.add("webhook", "/a/b", replace=True, params={"x": "body.x"}, enabled=False)
    assert (changed.trigger_id, changed.jobs, changed.signed) == (row.trigger_id, (), True)
    assert (await house.show(row.trigger_id[:10])).params == {"x": "body.x"}
    assert (await house.hook("/a/b")).executions == ()

    assert (await house.operations.remove_trigger("webhook", "/a/b")).trigger_id == row.trigger_id
    with pytest.raises(NotFound, match="no trigger"):
        await house.show("/a/b")
    audit = (await house.operations.audit(what="trigger:webhook:/a/b")).items
    assert [entry.action for entry in audit] == ["trigger.removed", "trigger.added", "trigger.added"]
    assert "ssss" not in str(audit)


async def test_a_job_that_is_renamed_is_still_fired(house: House) -> None:
    job = await house.jobs.add(a_spec(name="news"))
    await house.add("webhook", "/a", "news")
    await house.jobs.update(job, {"name": "olds"})
    assert names(await house.hook("/a")) == ["olds"]
    assert (await house.show("/a")).jobs == ("olds",)


@pytest.mark.parametrize(
    ("kind", "pattern", "more"),
    [
        ("webhook", "no-slash", {}),
        ("webhook", "/a/**/b", {}),
        ("webhook", "/a", {"params": {"x": "header.x"}}),
        ("webhook", "/a", {"secret": "short"}),
        ("webhook", "/a", {"debounce": timedelta(hours=2)}),
        ("channel", "", {}),
        ("channel", "a\nb", {}),
        ("channel", "c", {"secret": "s" * 20}),
        ("stream", " s", {}),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(kind: Any, pattern: str, more: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_trigger(NewTrigger(kind=kind, pattern=pattern, **more))
    assert caught.value.hint


async def test_a_trigger_for_a_job_that_is_not_there_is_refused(house: House) -> None:
    with pytest.raises(NotFound, match="no job 'newz'"):
        await house.add("webhook", "/a", "newz")
    assert await house.page() == []


async def test_a_job_cannot_name_a_path_that_can_never_fit(house: House) -> None:
    with pytest.raises(InvalidInput, match="mixes text and a pattern"):
        await house.jobs.add(a_spec(name="news", trigger_webhook="/a/x-*"))
    await house.job("by-hand", trigger_webhook="no path at all")
    assert (await house.hook("/anything")).executions == ()


async def test_refusals_are_counted_by_reason(house: House) -> None:
    row = await house.add("webhook", "/a")
    for reason in ("late", "altered", "late"):
        house.intake.refusals.refuse("webhook", [row.trigger_id], reason)
    await house.intake.refusals.flush()
    house.intake.refusals.refuse("webhook", [row.trigger_id, "removed meanwhile"], "late")
    async with house.resources.database.writing() as connection:
        await connection.exec_driver_sql("ALTER TABLE triggers RENAME TO away")
    with pytest.raises(DBAPIError):
        await house.intake.refusals.flush()
    async with house.resources.database.writing() as connection:
        await connection.exec_driver_sql("ALTER TABLE away RENAME TO triggers")
    house.intake.refusals.refuse("webhook", [row.trigger_id], "late")
    await house.intake.refusals.flush()
    [now] = await house.page()
    assert (now.refused, now.refusals, now.last_refusal) == (5, {"late": 4, "altered": 1}, "late")
    assert now.last_refused_at is not None


# Redis


@pytest.fixture
async def with_redis(migrated_url: str, redis_url: str) -> AsyncIterator[House]:
    async with opened(migrated_url, redis_url=redis_url) as house:
        yield house


@asynccontextmanager
async def listening(house: House) -> AsyncIterator[None]:
    """A scheduler that leads and listens."""
    stop = asyncio.Event()
    role = SchedulerRole(house.resources)
    running = asyncio.create_task(role.run(stop))
    try:
        await eventually(lambda: role.leader.is_leader)
        yield
    finally:
        stop.set()
        await running


def hears(house: House, kind: str, pattern: str) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        rows = await house.page(kind)
        return any(row.listening for row in rows if row.pattern == pattern)

    return check


def has_executions(house: House, count: int, **where: Any) -> Callable[[], Awaitable[list[Any]]]:
    async def check() -> list[Any]:
        rows = await house.executions(**where)
        assert len(rows) == count, rows
        return rows

    return check


@pytest.mark.spec("V4", "V7")
async def test_a_message_on_a_channel_fires_the_jobs_that_listen_to_it(with_redis: House) -> None:
    house = with_redis
    assert house.resources.redis is not None
    await house.job("naming", trigger_channel="content:new")
    await house.job("listed")
    async with listening(house):
        await house.add("channel", "content:*", "listed", params={"where": "channel", "id": "body.id"})
        await eventually(hears(house, "channel", "content:*"))
        await house.resources.redis.publish("content:new", b'{"id": 7}')
        # Both subscriptions are given the message; it fires once.
        rows = await eventually(has_executions(house, 2))
        await house.resources.redis.publish("content:old", b"not json")
        await eventually(has_executions(house, 3))
    assert {row.job_name: row.params for row in rows} == {
        "naming": {"id": 7, "where": "content:new"},
        "listed": {"id": 7, "where": "content:new"},
    }
    assert {row.trigger for row in rows} == {"channel:content:*"}
    assert house.told.count(TriggersFired("channel")) == 2
    assert TriggersMatched("channel", 2) in house.told


@pytest.mark.spec("V4", "G9")
async def test_what_floodmark_says_itself_fires_nothing(with_redis: House) -> None:
    """Else every run would fire the next one: a trigger that names it is refused, and a pattern that fits is deaf."""
    house = with_redis
    assert house.resources.redis is not None
    await house.job("greedy")
    for kind, name in (("stream", "crawler:events"), ("stream", "crawler:jobs:high"), ("channel", "crawler:signals")):
        with pytest.raises(InvalidInput, match="where Floodmark itself writes") as refused:
            await house.add(kind, name, "greedy")
        assert "depends_on" in refused.value.hint
    async with listening(house):
        await house.add("channel", "*", "greedy")
        await eventually(hears(house, "channel", "*"))
        for _ in range(3):
            await house.resources.redis.publish("crawler:signals", b"jobs")
        await house.resources.redis.publish("content:new", b"{}")
        await eventually(has_executions(house, 1))
        await house.resources.redis.publish("content:new", b"{}")
        rows = await eventually(has_executions(house, 2))
    assert len(rows) == 2


@pytest.mark.spec("V4", "G9")
async def test_a_run_whose_events_fire_it_again_ends_after_three_hops(with_redis: House) -> None:
    """By a stream of a sink and by a webhook: the third execution in a row is the last one, and the rest is refused."""
    house = with_redis
    redis, database = house.resources.redis, house.resources.database
    assert redis is not None
    await house.job("loop")
    await house.add("stream", "mine", "loop", params={"n": "body.key"})
    listener, sink = listeners(house)[1], RedisStreamSink(redis, "mine", hops=EventHops(database))
    await listener.step()
    now, ids = datetime.now(UTC), ["by hand"]
    for number in range(5):
        row = {"stream": "s", "key": f"k{number}", "collected_at": now, "data": {}, "content_hash": "", "fence": 1}
        async with database.writing() as connection:
            await connection.execute(insert(items).values(**row, execution_id=ids[-1]))
        shared = {"stream": "s", "key": f"k{number}", "revision": 1, "collected_at": now}
        nobody: dict[str, None] = {"occurred_at": None, "tenant_id": None, "user_id": None}
        kinds = {"kind": "item.new", "type": "item.new", "data": "{}"}
        event: dict[str, Any] = {**shared, **nobody, **kinds, "event_id": f"s/k{number}/1", "position": number + 1}
        await sink.send([Event(**event)])
        while await redis.xlen("mine") and (await redis.xinfo_groups("mine"))[0]["lag"] != 0:
            await listener.step()
        ids = ["by hand", *(row.execution_id for row in await house.executions())]
    assert len(ids) - 1 == 3
    await house.intake.refusals.flush()
    [trigger] = await house.page("stream")
    assert trigger.refusals == {"too many hops": 2}

    await house.add("webhook", "/loop", "loop")
    assert names(await house.hook("/loop", hops=3)) == ["loop"]
    with pytest.raises(TooManyHops, match="4 times in a row") as refused:
        await house.hook("/loop", hops=4)
    assert "streams of the sink" in refused.value.hint
    await house.intake.deliveries.forget(timedelta())
    assert await EventHops(database).find([]) == {}
    assert await database.fetch_value(select(execution_hops.c.hops).limit(1)), (
        "they are kept for as long as a sink lags"
    )


@pytest.mark.spec("V4", "V7")
async def test_a_job_that_names_a_channel_is_given_what_the_message_says(with_redis: House) -> None:
    house = with_redis
    assert house.resources.redis is not None
    async with listening(house):
        await house.operations.add_job(a_spec(name="news", trigger_channel="content:new", when=EVENT))

        async def heard_it() -> bool:
            hearing = await find_hearing(FleetRepository(house.resources.database, house.resources.clock), CHANNELS)
            return hearing is not None and hearing.patterns == ("content:new",)

        await eventually(heard_it)
        for message in (b'{"id": 7}', b"plain \xff text", b"[1, 2]"):
            await house.resources.redis.publish("content:new", message)
        rows = await eventually(has_executions(house, 3, trigger="channel:content:new"))
    assert [row.params for row in rows] == [{"id": 7}, {"message": "plain \ufffd text"}, {"message": "[1, 2]"}]
    [of_jobs] = (await house.operations.triggers_status()).of_jobs
    assert (of_jobs.pattern, of_jobs.jobs) == ("content:new", 1)


@pytest.mark.spec("V4")
async def test_of_two_schedulers_only_the_leader_fires(migrated_url: str, redis_url: str) -> None:
    async with opened(migrated_url, redis_url=redis_url) as one, opened(migrated_url, redis_url=redis_url) as other:
        assert one.resources.redis is not None
        await one.job("news")
        await one.add("channel", "c", "news")
        async with listening(one):
            stop = asyncio.Event()
            second = SchedulerRole(other.resources)
            waiting = asyncio.create_task(second.run(stop))
            await eventually(hears(one, "channel", "c"))
            assert await one.resources.redis.publish("c", "x") == 1
            await eventually(has_executions(one, 1))
        # The first has left; the second takes over and listens.
        await eventually(lambda: second.leader.is_leader)

        async def said() -> int:
            return int(await one.resources.redis.publish("c", "y"))  # type: ignore[union-attr]

        await eventually(said)
        await eventually(has_executions(one, 2))
        stop.set()
        await waiting


@pytest.mark.spec("V4")
@pytest.mark.thorough
async def test_listening_goes_on_after_redis_was_away(migrated_url: str) -> None:
    with Valkey.start(own=True) as valkey:
        async with opened(migrated_url, redis_url=valkey.url) as house:
            assert house.resources.redis is not None
            await house.job("news")
            await house.add("channel", "c", "news")
            await house.add("stream", "s", "news")
            async with listening(house):
                await eventually(hears(house, "channel", "c"))
                await eventually(hears(house, "stream", "s"))
                valkey.kill()
                await eventually(lambda: any(isinstance(e, StepFailed) and e.step == "channels" for e in house.told))
                valkey.start_again()
                redis = Redis.from_url(valkey.url)

                async def said() -> int:
                    return int(await redis.publish("c", "x"))

                await eventually(said)
                await eventually(has_executions(house, 1, trigger="channel:c"))

                async def is_group() -> Any:
                    return await redis.exists("s") and await redis.xinfo_groups("s")

                # Everything Redis knew is gone; the group is made anew.
                await eventually(is_group)
                await redis.xadd("s", {"n": "1"})
                await eventually(has_executions(house, 1, trigger="stream:s"))
                await redis.aclose()


class _Leads(Leader):
    @property
    def is_leader(self) -> bool:
        return True


def listeners(house: House) -> tuple[ChannelListener, StreamListener]:
    """The listeners of a leader."""
    leases = SqlLeases(house.resources.database, house.resources.clock)
    leader = _Leads(leases, house.resources.events, name="l", holder="h", ttl=SECOND)
    return build_listeners(house.resources, house.intake, leader)


@pytest.mark.spec("V4")
async def test_an_entry_of_a_stream_fires_once_even_when_it_is_delivered_again(with_redis: House) -> None:
    house = with_redis
    redis = house.resources.redis
    assert redis is not None
    await house.job("news")
    await redis.xadd("orders", {"n": "before it was registered"})
    await house.add("stream", "orders", "news", params={"n": "body.n", "id": "body.data.id"})
    await redis.xadd("orders", {"n": "1", "data": '{"id": 5}'})
    group = group_of(house.resources.settings.scheduler_queue_prefix)

    first = listeners(house)[1]
    for _ in range(3):
        await first.step()
    [row] = await house.executions()
    assert (row.trigger, row.params) == ("stream:orders", {"n": "1", "id": 5})
    assert (await redis.xpending("orders", group))["pending"] == 0

    # As after a crash between writing the executions and acknowledging: the entry comes again.
    await redis.xgroup_setid("orders", group, "0")
    await redis.xreadgroup(group, "leader", {"orders": ">"})
    second = listeners(house)[1]
    for _ in range(4):
        await second.step()
    assert (await redis.xpending("orders", group))["pending"] == 0
    assert sorted(row.params["n"] for row in await house.executions()) == ["1", "before it was registered"]


async def test_a_stream_that_was_flushed_goes_on_behind_its_last_entry(with_redis: House) -> None:
    house = with_redis
    redis = house.resources.redis
    assert redis is not None
    await house.job("news")
    await house.add("stream", "orders", "news")
    listener = listeners(house)[1]
    await redis.xadd("orders", {"n": "1"})
    for _ in range(3):
        await listener.step()
    await redis.delete("orders")
    await redis.xadd("orders", {"n": "2"})
    with pytest.raises(Exception, match="NOGROUP"):
        await listener.step()
    for _ in range(3):
        await listener.step()
    assert [row.params for row in await house.executions()] == [{"n": "1"}, {"n": "2"}]


async def test_a_key_that_is_no_stream_keeps_nobody_from_the_others(with_redis: House) -> None:
    house = with_redis
    redis = house.resources.redis
    assert redis is not None
    await house.job("news")
    await redis.set("text", "x")
    await house.add("stream", "text", "news")
    await house.add("stream", "orders", "news")
    await redis.xadd("orders", {"n": "1"})
    listener = listeners(house)[1]
    for _ in range(3):
        await listener.step()
    assert len(await house.executions()) == 1
    await house.intake.refusals.flush()
    [text, orders] = await house.page("stream")
    # A slow machine tries it again between two steps.
    assert text.refusals.keys() == {"not a stream"}
    assert (text.listening, orders.listening) == (False, True)


@pytest.mark.spec("V4")
@pytest.mark.parametrize(
    "pattern",
    ["content:*", "c?ntent:new", "[bc]ontent:*", "[^x]*new", "c[a-z]ntent:new", r"content\:*", "*", "*w*", "[c"],
)
async def test_patterns_of_channels_mean_what_redis_means(redis_url: str, pattern: str) -> None:
    channels = ["content:new", "content:", "context:new", "bontent:x", "xcontent:new", "cOntent:new", "c", "nw", "new"]
    redis = Redis.from_url(redis_url)
    pubsub = redis.pubsub()
    await pubsub.psubscribe(pattern)
    for channel in channels:
        await redis.publish(channel, channel)
    await redis.publish("the end", "")
    await pubsub.subscribe("the end")
    heard_of: list[str] = []
    while (message := await pubsub.get_message(timeout=60)) is not None and message["type"] != "subscribe":
        if message["type"] == "pmessage" and message["channel"] != b"the end":
            heard_of.append(message["channel"].decode())
    await pubsub.aclose()  # type: ignore[no-untyped-call]
    await redis.aclose()
    assert heard_of == [channel for channel in channels if channel_matches(pattern, channel)]


async def test_a_message_waits_for_a_database_that_fails(with_redis: House) -> None:
    house = with_redis
    redis = house.resources.redis
    assert redis is not None
    await house.job("news")
    await house.add("channel", "c", "news")
    listener = listeners(house)[0]
    await listener.step()
    await redis.publish("c", "x")
    async with house.resources.database.writing() as connection:
        await connection.exec_driver_sql("ALTER TABLE trigger_deliveries RENAME TO away")
    with pytest.raises((DBAPIError, asyncpg.PostgresError, sqlite3.Error)):
        await listener.step()
    async with house.resources.database.writing() as connection:
        await connection.exec_driver_sql("ALTER TABLE away RENAME TO trigger_deliveries")
    await listener.step()
    await listener.close()
    assert len(await house.executions()) == 1


async def test_without_redis_a_channel_says_that_nobody_listens(house: House) -> None:
    await house.add("channel", "content:new")
    [status] = (await house.operations.triggers_status()).triggers
    assert (status.listening, status.why_not) == (False, "there is no Redis: set REDIS_URL")


# Messages that cannot be read


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


# Each is read as text or skipped; none may stop the next one. Row 31 of the fault catalogue.
ODD = [
    nested(500),
    nested(900),
    nested(100_000),
    b'{"a": "' + b"x" * 10_000_000 + b'"}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b'{"a": 1e999, "b": -0.0}',
    b'{"a": "\\ud800"}',
    b'{"a\\u0000": "\\u0000"}',
    b"\xff\xfe\x00",
    b"",
    b"[[],{}]",
]


@pytest.mark.spec("V4", "G9")
async def test_no_message_on_a_channel_keeps_the_next_one_from_firing(with_redis: House) -> None:
    house = with_redis
    redis = house.resources.redis
    assert redis is not None
    await house.job("news")
    await house.job("naming", trigger_channel="named")
    await house.add("channel", "odd*", "news", params={"all": "body", "a": "body.a"})
    listener = listeners(house)[0]
    await listener.step()
    for message in ODD:
        await redis.publish("odd", message)
    # A name that fits a pattern can be as long and as odd as the message.
    await redis.publish(b"odd\x00" + b"x" * 100_000, b"{}")
    await redis.publish("named", nested(500))
    await redis.publish("named", b'{"last": true}')

    async def fired() -> bool:
        await listener.step()
        return {"last": True} in [row.params for row in await house.executions(job_name="naming")]

    await eventually(fired)
    await listener.close()
    await house.intake.refusals.flush()
    [trigger] = await house.page("channel")
    assert trigger.refusals == {"nested too deeply": 3, "too large": 1, "unreadable": 1}
    status = await house.operations.triggers_status()
    assert (status.unreadable.count, status.unreadable.last) == (6, "channel:named: nested too deeply")


@pytest.mark.spec("V4", "G9")
async def test_no_entry_of_a_stream_keeps_the_next_one_from_firing(with_redis: House) -> None:
    """Also not after a restart: it is acknowledged."""
    house = with_redis
    redis = house.resources.redis
    assert redis is not None
    await house.job("news")
    await house.add("stream", "orders", "news", params={"all": "body.x", "n": "body.n"})
    for message in ODD:
        await redis.xadd("orders", {"x": message})
    await redis.xadd("orders", {b"\xff\x00": b"\x00"})
    await redis.xadd("orders", {f"field{number}": "x" for number in range(5000)})
    await redis.xadd("orders", {"n": "last"})

    listener = listeners(house)[1]

    async def fired() -> bool:
        await listener.step()
        return {"n": "last"} in [row.params for row in await house.executions()]

    await eventually(fired)
    group = group_of(house.resources.settings.scheduler_queue_prefix)
    assert (await redis.xpending("orders", group))["pending"] == 0
    await house.intake.refusals.flush()
    [trigger] = await house.page("stream")
    assert trigger.refusals == {"nested too deeply": 3, "too large": 1}
    assert (await house.operations.triggers_status()).unreadable.count == 4
