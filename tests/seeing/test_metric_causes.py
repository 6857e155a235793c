"""Every metric is moved by what it is about: by real parts, not by events made up for it.

A metric of the catalogue that no table here names fails the last test.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, update

from floodmark import Floodmark, Permanent
from floodmark.coordination.service import Service, run_services
from floodmark.errors import Fenced
from floodmark.inbound.intake import Arrival, build_intake
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.completeness import Coverage
from floodmark.model.outcome import Dead
from floodmark.observability.metrics.catalogue import CATALOGUE
from floodmark.operations.jobs import JobFilter
from floodmark.operations.local import LocalOperations
from floodmark.outbound.limits import Limits
from floodmark.repositories.staleness import Staleness
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.runtime.worker_role import WorkerRole
from floodmark.scheduler.requeuer import Requeuer
from floodmark.scheduler.rescuer import Rescuer
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.sources.telegram.tables import accounts
from floodmark.store.database import PostgresDatabase
from floodmark.store.postgres_connection import Connection
from floodmark.store.tables import budgets, job_executions, watermarks
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, change_jobs, expire, given_job, given_lease, given_queued, settle, take
from floodmark.testing.telegram import Channel, LoopbackTelegram
from floodmark.testing.web import Site, status
from floodmark.wiring.resources import Resources
from telegram_desk import QUICK
from telegram_desk import Desk as TelegramDesk
from web_desk import Desk as WebDesk

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("T9", "F7", "V9", "B4")

HISTORY = "messages.getHistory"
Values = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def values(resources: Resources) -> Values:
    """All series of a process."""
    samples = [sample for metric in resources.registry.collect() for sample in metric.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def unmoved(names: tuple[str, ...], before: Values, after: Values) -> list[str]:
    """Those of these metrics of which no series is other than it was."""
    moved = {
        name.removesuffix("_count") for (name, labels), value in after.items() if value != before.get((name, labels), 0)
    }
    return [name for name in names if name not in moved]


class Town:
    """Floodmark at work on a loopback Telegram and a loopback site."""

    resources: Resources
    telegram: TelegramDesk
    web: WebDesk

    def __init__(self, server: LoopbackTelegram, site: Site, app: Floodmark) -> None:
        """Before anything is opened: it declares what is to be collected."""
        self.server, self.site, self.release, self.posts = server, site, asyncio.Event(), 0

        @app.collector(once=True, key="id")
        async def held(since: Any) -> AsyncIterator[dict[str, Any]]:
            await self.release.wait()
            yield {"id": 1}

        @app.collector(key="id", watermark="id", occurred_at="at")
        async def fresh(since: Any) -> AsyncIterator[dict[str, Any]]:
            self.posts += 1
            yield {"id": 0, "at": datetime(2026, 1, 1, tzinfo=UTC)}
            yield {"id": self.posts, "at": datetime.now(UTC) - timedelta(minutes=1)}

        @app.collector(adaptive=True, key="id", watermark="id", occurred_at="at")
        async def polled(since: Any) -> AsyncIterator[dict[str, Any]]:
            self.posts += 1
            yield {"id": self.posts, "at": datetime.now(UTC) - timedelta(seconds=2)}

        @app.collector()
        def hopeless(since: Any) -> list[Any]:
            raise Permanent("the page is empty")


async def begin(town: Town) -> None:
    """It has begun; a job that was due at once runs and is held."""


async def release(town: Town) -> None:
    town.release.set()


async def collect_twice(town: Town) -> None:
    job = await town.telegram.jobs.get("fresh")
    await town.telegram.run(job)
    await town.telegram.run(job)


async def poll_twice(town: Town) -> None:
    job = await town.telegram.jobs.get("polled")
    await town.telegram.run(job)
    await town.telegram.run(job)


async def read_a_channel(town: Town) -> None:
    await town.telegram.collected()


async def break_the_line(town: Town) -> None:
    town.server.fail(HISTORY, "INTERNAL_SERVER_ERROR", code=500)
    await town.telegram.run(await town.telegram.jobs.get("telegram-harbour"))


async def tell_to_wait(town: Town) -> None:
    town.server.flood(HISTORY, seconds=1)
    await town.telegram.run(await town.telegram.jobs.get("telegram-harbour"))


async def come_back_after_days(town: Town) -> None:
    job = await town.telegram.jobs.get("telegram-harbour")
    await town.telegram.change_watermark(job, last_checked_at=datetime.now(UTC) - timedelta(days=2))
    await town.telegram.run(job)


async def fail_again_and_again(town: Town) -> None:
    town.server.fail(HISTORY, "INTERNAL_SERVER_ERROR", code=500, times=None)
    await town.telegram.ask(await town.telegram.jobs.get("telegram-harbour"))


async def crawl(town: Town) -> None:
    town.site.page("/", "Welcome", links=["/page"])
    town.site.page("/page", "A page")
    await town.web.run(await town.web.job())


async def crawl_a_broken_site(town: Town) -> None:
    for path in ("/", "/page"):
        town.site.always(path, status(500))
    await town.web.ask(await town.web.operations.job("web-127-0-0-1"))


async def give_up(town: Town) -> None:
    await town.telegram.run(await town.telegram.jobs.get("hopeless"))


async def scan_without_a_browser(town: Town) -> None:
    await town.web.run(await town.web.job("example.com", source="cookies"))


async def receive_a_webhook(town: Town) -> None:
    job = await town.telegram.jobs.get("fresh")
    await change_jobs(town.resources, [job.job_id], trigger_webhook="/orders")
    intake, arrival = build_intake(town.resources), Arrival(kind="webhook", subject="/orders", path=("orders",))
    await intake.take(arrival, await intake.matching(arrival))
    intake.refusals.refuse("webhook", (), "unsigned")


async def receive_a_hint(town: Town) -> None:
    job = await town.telegram.jobs.get("polled")
    await change_jobs(town.resources, [job.job_id], trigger_webhook="/news")
    intake, arrival = build_intake(town.resources), Arrival(kind="webhook", subject="/news", path=("news",))
    await intake.take(arrival, await intake.matching(arrival))


async def stumble(town: Town) -> None:
    stumbled = asyncio.Event()

    async def step() -> None:
        stumbled.set()
        raise ValueError("a stone")

    async with run_services([Service("stumbling", step, timedelta(seconds=1))], town.resources.events):
        await stumbled.wait()


async def be_replaced(town: Town) -> None:
    """Another worker has what this one runs."""
    town.release.clear()
    execution = await town.telegram.ask(await town.telegram.jobs.get("held"))
    await town.telegram.reaches(execution, "running")
    async with town.resources.database.writing() as connection:
        this = update(job_executions).where(job_executions.c.execution_id == execution)
        await connection.execute(this.values(worker="another", fence=job_executions.c.fence + 1))


Cause = Callable[[Town], Awaitable[None]]
AT_WORK: dict[Cause, tuple[str, ...]] = {
    begin: (
        "crawler_scheduler_is_leader",
        "crawler_scheduler_leader_election_attempts_total",
        "scheduler_lock_acquired_total",
        "scheduler_last_tick_ts_seconds",
        "scheduler_interval_seconds",
        "floodmark_info",
        "crawler_scheduler_worker_pool_size",
        "crawler_scheduler_workers_idle",
        "crawler_scheduler_jobs_scheduled_total",
        "floodmark_fire_lateness_seconds",
        "crawler_scheduler_queue_enqueued_total",
        "crawler_scheduler_queue_dequeued_total",
        "floodmark_queue_wait_seconds",
        "crawler_scheduler_jobs_currently_running",
        "crawler_scheduler_workers_busy",
    ),
    release: (
        "crawler_scheduler_jobs_executed_total",
        "crawler_scheduler_job_duration_seconds",
        "floodmark_items_total",
    ),
    collect_twice: ("floodmark_freshness_seconds", "deduplicated_messages_total"),
    poll_twice: (
        "floodmark_item_delay_seconds",
        "floodmark_expected_items_total",
        "floodmark_found_items_total",
        "floodmark_budget_requests_total",
    ),
    read_a_channel: (
        "parser_runs_total",
        "posts_parsed_total",
        "parser_run_duration_seconds",
        "incremental_watermark_age_seconds",
        "fetch_duration_seconds",
        "fetch_lag_seconds",
    ),
    break_the_line: ("parser_retries_total", "retries_total", "last_retry_delay_seconds"),
    tell_to_wait: ("rate_limit_hits_total", "parser_floodwait_seconds_total"),
    come_back_after_days: ("parser_mode_forced_total",),
    fail_again_and_again: ("breaker_state", "breaker_open_total"),
    crawl: ("floodmark_pages_total", "floodmark_http_requests_total"),
    crawl_a_broken_site: (
        "crawler_scheduler_circuit_breaker_state",
        "crawler_scheduler_circuit_breaker_trips_total",
    ),
    give_up: ("floodmark_executions_dead_total", "floodmark_notifications_total"),
    scan_without_a_browser: ("floodmark_scans_total",),
    receive_a_webhook: (
        "crawler_scheduler_triggers_fired_total",
        "crawler_scheduler_triggers_matched_total",
        "floodmark_triggers_refused_total",
    ),
    receive_a_hint: ("floodmark_hints_total",),
    stumble: ("floodmark_step_failures_total",),
    be_replaced: ("floodmark_lease_lost_total",),
}
MEASURED = (
    "crawler_scheduler_queue_depth",
    "floodmark_dead_letters",
    "floodmark_limits_in_force",
    "floodmark_accounts_parked",
    "floodmark_stale_sources",
    "floodmark_outbox_pending",
    "floodmark_outbox_lag_seconds",
    "floodmark_budget_requests_allowed",
    "floodmark_budget_price",
    "floodmark_gaps",
)
# Of runs that have not finished: test_unfinished_channels.py.
UNFINISHED = ("parser_hwm_age_seconds", "floodmark_channel_info")
REPAIRED = (
    "floodmark_executions_rescued_total",
    "floodmark_executions_requeued_total",
    "floodmark_store_retries_total",
    "floodmark_stale_commits_refused_total",
)
# By test_affinity.py, with several workers.
SHARED = ("floodmark_executions_offered_total",)
# By test_websub.py, with a real hub.
REFUSED = ("floodmark_hints_refused_total",)
# By sources/test_telegram_media.py.
DOWNLOADED = ("floodmark_media_files_total", "floodmark_media_bytes_total")
# By system/test_search.py.
INDEXED = ("floodmark_search_items_total", "floodmark_search_lag_seconds")
# By delivering/test_sinks.py, with real receivers.
DELIVERED = (
    "floodmark_sink_events_total",
    "floodmark_sink_failures_total",
    "floodmark_sink_lag_events",
    "floodmark_sink_lag_seconds",
    "floodmark_sink_dead_letters",
    "floodmark_sink_paused",
)
# By tests/watches/test_seeing.py.
WATCHED = ("floodmark_watch_events_total", "floodmark_watch_matches_total", "floodmark_watch_lag_seconds")
# By test_push.py, with a real gateway.
PUSHED = ("floodmark_pushes_total", "floodmark_last_push_timestamp_seconds")


@asynccontextmanager
async def at_work(server: LoopbackTelegram, site: Site, url: str) -> AsyncIterator[Town]:
    given: dict[str, Any] = {
        **QUICK,
        **site.settings(),
        "web_domain_delay": timedelta(),
        "circuit_breaker_failure_threshold": 4,
        "scheduler_cb_threshold": 2,
        "floodmark_chromium": "no/such/browser",
        "notify_slack_url": f"{site.url}/slack",
        "notify_group_wait": timedelta(),
    }
    app = Floodmark(Settings(database_url=url, hostname="test", **given))
    town, stop = Town(server, site, app), asyncio.Event()
    async with app.open() as resources, app.opened_sources(resources) as sources:
        town.resources, town.telegram, town.web = resources, TelegramDesk(resources, server), WebDesk(resources, site)
        scheduler, worker = SchedulerRole(resources, is_alone=False), WorkerRole(resources, sources)
        working = asyncio.gather(scheduler.run(stop), worker.run(stop))
        try:
            yield town
        finally:
            town.release.set()
            stop.set()
            await working


@pytest.mark.thorough
async def test_what_happens_at_work_moves_its_metrics(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with Site() as site, at_work(server, site, sqlite_copy) as town:
        before: Values = {}
        for cause, names in AT_WORK.items():
            await cause(town)

            def all_moved(names: tuple[str, ...] = names, before: Values = before, cause: Cause = cause) -> bool:
                left = unmoved(names, before, values(town.resources))
                assert not left, f"{cause.__name__} did not move {', '.join(left)}"
                return True

            await eventually(all_moved)
            before = values(town.resources)
        assert not town.resources.events.failures


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.mark.thorough
async def test_what_stands_in_the_database_is_measured_by_the_leader(opened: Opened) -> None:
    async with opened() as resources:
        role, before = SchedulerRole(resources), values(resources)
        await settle(resources, await given_lease(resources), Dead(error="no such thing"))
        await SqlSink(resources.keeping, resources.events).keep(
            await given_lease(resources),
            Batch([Item("1", "new")], coverage=Coverage(ranges=[(1, 9)], unseen=[(4, 5)])),
        )
        await Limits(resources.database, resources.clock).set("telegram:a", timedelta(hours=1), "told to wait")
        async with resources.database.writing() as connection:
            lost = {"name": "a", "api_id": 1, "secrets": "", "state": "parked"}
            await connection.execute(insert(accounts).values(**lost))
            news = {"name": "news", "requests": 30, "interval_seconds": 2.02, "price": 12.5}
            await connection.execute(insert(budgets).values(**news))
        names = await given_stale(resources)
        await given_queued(resources, 3)
        await role.tick()
        await role.measure()
        assert unmoved(MEASURED, before, values(resources)) == list(MEASURED), "only the leader measures"

        await role.leader.step()
        await role.tick()
        await role.measure()

        found = resources.registry.get_sample_value
        assert [found(name) for name in MEASURED[1:6]] == [1, 1, 1, len(names), 1]
        assert found("crawler_scheduler_queue_depth", {"priority": "normal"}) == 3
        assert found("floodmark_budget_requests_allowed", {"budget": "news"}) == 30
        assert found("floodmark_budget_price", {"budget": "news"}) == 12.5
        assert found("floodmark_gaps", {"source": "test"}) == 1
        lag = found("floodmark_outbox_lag_seconds")
        await role.measure()
        assert 0 < (lag or 0) < (found("floodmark_outbox_lag_seconds") or 0), "it grows while nothing is sent"
        staleness = Staleness(
            resources.database, resources.clock, find_patience=lambda: {"telegram": timedelta(hours=24)}
        )
        assert [job.name for job in await staleness.page()] == names
        operations = LocalOperations(resources, Actor(who="ada", via="cli"))
        everything = {job.name for job in (await operations.jobs()).items}
        assert [job.name for job in (await operations.jobs(JobFilter(stale=True))).items] == sorted(names)
        assert {job.name for job in (await operations.jobs(JobFilter(stale=False))).items} == everything - set(names)

        await role.leader.resign()
        assert unmoved(MEASURED, before, values(resources)) == list(MEASURED), "whoever leads now knows better"


async def given_stale(resources: Resources) -> list[str]:
    """Jobs of all kinds, some of them stale; the names of those."""
    now = datetime.now(UTC)

    async def job(name: str, hours: float, **columns: Any) -> None:
        usual = {
            "name": name,
            "schedule_type": "interval",
            "interval_seconds": 3600.0,
            "next_run": now + timedelta(days=9),
        }
        await given_job(resources, **{**usual, "created_at": now - timedelta(hours=hours), **columns})

    await job("daily", 49, schedule_type="calendar", frequency="daily")
    await job("telegram old", 30, source="telegram")
    await job(
        "cron", 20, schedule_type="cron", planned_until=now - timedelta(hours=1), next_run=now + timedelta(hours=1)
    )
    await job("hourly", 3)
    await job("hourly checked", 50, stream="checked")
    await job("telegram", 3, source="telegram")
    await job("daily well", 47, schedule_type="calendar", frequency="daily")
    await job("weekly cron", 20, schedule_type="cron", planned_until=now, next_run=now + timedelta(days=7))
    await job("paused", 99, paused=True)
    await job("disabled", 99, schedule_enabled=False)
    await job("of another scheduler", 99, scheduler_version=1)
    await job("on demand", 99, schedule_type="event")
    async with resources.database.writing() as connection:
        checked = {"stream": "checked", "last_checked_at": now - timedelta(hours=1)}
        await connection.execute(insert(watermarks).values(**checked))
    return ["daily", "telegram old", "cron", "hourly"]


async def test_what_is_repaired_is_counted(redis_on_postgres: Opened) -> None:
    async with redis_on_postgres() as resources:
        before, sink = values(resources), SqlSink(resources.keeping, resources.events)
        role = SchedulerRole(resources)
        await role.leader.step()
        first = await given_lease(resources)
        await expire(resources, first)
        await Rescuer(resources.upkeep, resources.queue, resources.events, rescue_max=3).step()
        await take(resources)
        with pytest.raises(Fenced):
            await sink.keep(first, Batch([Item("1", "late")]))

        await given_queued(resources, 2)
        assert resources.redis is not None
        await resources.redis.flushdb()
        await Requeuer(resources.upkeep, resources.queue, resources.events, older_than=-timedelta(seconds=1)).step()

        attempts = 0

        async def cut_off(connection: Connection) -> int:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            return attempts

        assert isinstance(resources.database, PostgresDatabase)
        assert await resources.database.hot("wake", cut_off) == 2
        assert unmoved(REPAIRED, before, values(resources)) == []


def test_no_metric_is_without_a_cause() -> None:
    caused = [
        name
        for names in (
            *AT_WORK.values(),
            MEASURED,
            REPAIRED,
            UNFINISHED,
            SHARED,
            REFUSED,
            DOWNLOADED,
            INDEXED,
            DELIVERED,
            PUSHED,
            WATCHED,
        )
        for name in names
    ]
    assert len(caused) == len(set(caused)), "each once"
    assert set(caused) == set(CATALOGUE)
