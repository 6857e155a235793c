"""Opens the resources of one process. Only this module knows every adapter; the configured URLs select them."""

import asyncio
import math
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.exc import DBAPIError

from floodmark.coordination.leases.port import Leases
from floodmark.coordination.leases.sql import SqlLeases
from floodmark.coordination.partition import Partition
from floodmark.coordination.signals.local import LocalSignals
from floodmark.coordination.signals.port import Signals
from floodmark.errors import Unreachable
from floodmark.model.clock import Clock, SystemClock
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.observability.events import Events
from floodmark.observability.metrics_on_demand import MetricsOnDemand
from floodmark.observability.tracing import Tracing, tracing_of
from floodmark.outbound.caller import Caller, CallPolicy
from floodmark.outbound.client import Http, ResponseLimits
from floodmark.outbound.guard import Guard
from floodmark.outbound.polite import PoliteHttp
from floodmark.outbound.retrying import RetryPolicy
from floodmark.process.lazy import LazyModule
from floodmark.process.lock_files import FileLock, runtime_folder
from floodmark.process.process_lock import ProcessLock, key_of
from floodmark.queue.port import Queue
from floodmark.queue.sql import SqlQueue
from floodmark.repositories.forcing import RequestedRuns
from floodmark.repositories.known_jobs import KnownJobs
from floodmark.rules.breaker import Thresholds
from floodmark.settings import Settings
from floodmark.sources.form import find_patience
from floodmark.sources.validation import Validation
from floodmark.store.database import Database, PostgresDatabase, SqliteDatabase, open_database, tighten
from floodmark.store.migrate import migrate, require_newest
from floodmark.store.port import Firing, Keeping, Leasing, Spending, Upkeep
from floodmark.store.sqlite.firing import SqliteFiring
from floodmark.store.sqlite.keeping import SqliteKeeping
from floodmark.store.sqlite.leasing import SqliteLeasing
from floodmark.store.sqlite.spending import SqliteSpending
from floodmark.store.sqlite.upkeep import SqliteUpkeep
from floodmark.version import __version__

from .repositories import Repositories
from .search_on_demand import SearchOnDemand
from .write_check import WriteCheck

if TYPE_CHECKING:
    import structlog
    from prometheus_client import CollectorRegistry
    from redis.asyncio import Redis
else:
    # Many commands log nothing.
    structlog = LazyModule("structlog")

# A probe ends when its call times out; the margin is for recording the result.
_PROBE_MARGIN = timedelta(seconds=10)
# One page that fails repeatedly is broken itself; a domain is broken when several pages fail.
_WEB_ATTEMPTS = 2
_PING_AGAIN_SECONDS, _LOG_AGAIN_SECONDS = 0.5, 10.0
# The name that the parent process, which reports our death, has given us. It is removed from the environment when it
# is read: programs that this process starts must not use it.
PROCESS_NAME = "FLOODMARK_PROCESS_NAME"


class Resources(Struct, frozen=True, kw_only=True):
    """The resources of one process. Only the code that builds roles and commands takes all of them."""

    settings: Settings
    name: str
    """The name of this process: the host's name and a random id. No two processes have the same name."""
    clock: Clock
    events: Events
    metrics: MetricsOnDemand
    database: Database
    repositories: Repositories
    search: SearchOnDemand
    write_check: WriteCheck
    redis: "Redis | None"
    signals: Signals
    leases: Leases
    queue: Queue
    runs: RequestedRuns
    known_jobs: KnownJobs
    firing: Firing
    leasing: Leasing
    keeping: Keeping
    upkeep: Upkeep
    spending: Spending
    caller: Caller
    http: Http
    polite: PoliteHttp
    partition: Partition
    """The share of this process among the workers of the installation."""
    lock: ProcessLock
    """Held by a process with a role, so that others can see that it is alive."""
    tracing: Tracing | None = None
    validation: Validation = Validation()
    """Checks jobs and params, whichever way they come in."""

    @property
    def registry(self) -> "CollectorRegistry":
        """The registry of the metrics of this process."""
        return self.metrics.registry

    def __repr__(self) -> str:
        # asyncio describes every result of a task when it sets its signal handlers, and the fields are long.
        return f"<Resources of {self.name}>"


def call_policy(settings: Settings) -> CallPolicy:
    """Return the timeouts, retries and circuit breakers of calls to Telegram, web sites and Redis."""
    probe = settings.telegram_call_timeout + _PROBE_MARGIN
    retry = RetryPolicy(
        attempts=settings.retry_max_attempts,
        elapsed=timedelta(seconds=settings.retry_max_elapsed_seconds),
        base=timedelta(seconds=settings.backoff_base_seconds),
        longest=timedelta(seconds=settings.backoff_max_seconds),
    )
    return CallPolicy(
        call_timeout=settings.telegram_call_timeout,
        retry=retry,
        breaker=Thresholds(
            failures=settings.circuit_breaker_failure_threshold,
            window=timedelta(seconds=settings.circuit_breaker_window_seconds),
            open_for=timedelta(seconds=settings.circuit_breaker_open_timeout_seconds),
            probe=probe,
        ),
        others={
            "web": Thresholds(
                failures=settings.scheduler_cb_threshold,
                window=None,
                open_for=settings.scheduler_cb_timeout,
                probe=settings.http_timeout + _PROBE_MARGIN,
            )
        },
        # `Http` ends its requests itself.
        timeouts={"web": None},
        retries={"web": replace(retry, attempts=min(retry.attempts, _WEB_ATTEMPTS))},
        is_adaptive=settings.rate_limit_strategy == "adaptive",
    )


def http_of(settings: Settings, events: Events | None = None) -> Http:
    """Return the guarded HTTP client. It opens no connection before the first request."""
    most, timeout = settings.http_max_body_bytes, settings.http_timeout
    return Http(
        Guard(allowed_hosts(settings.http_allow_hosts)),
        user_agent=settings.http_user_agent or f"floodmark/{__version__}",
        limits=ResponseLimits(body_bytes=most, unpacked_bytes=2 * most, total=timeout, head=timeout),
        resolve=resolved_hosts(settings.http_resolve),
        events=events,
    )


def new_name(settings: Settings) -> str:
    """Return a unique name for a process."""
    return f"{settings.hostname}-{secrets.token_hex(4)}"


@asynccontextmanager
async def open_resources(
    settings: Settings,
    *,
    events: Events | None = None,
    clock: Clock | None = None,
    validation: Validation | None = None,
    waits: bool = False,
) -> AsyncIterator[Resources]:
    """Open the database, Redis if it is configured, and the signals; close them at the end.

    With `waits` a database that does not answer yet is awaited for up to STARTUP_WAIT, as services do.
    """
    events = events or Events()
    metrics = MetricsOnDemand(events, settings.metrics_max_label_values)
    if waits:
        events.prepare()
    name = os.environ.pop(PROCESS_NAME, None) or new_name(settings)
    tracing = tracing_of(settings, name, events)
    async with AsyncExitStack() as stack:
        if tracing is not None:
            stack.push_async_callback(tracing.close)
        database = open_database(
            settings.database_url,
            events=events,
            pool_min=settings.database_pool_min,
            pool_max=settings.database_pool_max,
            step=settings.step_timeout,
        )
        stack.push_async_callback(database.close)
        clock = clock or SystemClock()
        search = SearchOnDemand(database, clock)
        stack.push_async_callback(search.close)
        if os.name == "posix" and settings.floodmark_home.is_dir():
            # An earlier version let other users read the folder of the database and the key.
            tighten(settings.floodmark_home, 0o700)
        await _prepare(database, settings.startup_wait if waits else timedelta())
        redis = _open_redis(settings)
        if redis is not None:
            stack.push_async_callback(redis.aclose)
        signals = _signals(database, redis, settings, events, name)
        await signals.start()
        stack.push_async_callback(signals.stop)
        lock = _lock(database, signals, name)
        stack.callback(lock.release)
        resources = _wire(
            settings,
            name=name,
            tracing=tracing,
            http=await stack.enter_async_context(http_of(settings, events)),
            clock=clock,
            events=events,
            metrics=metrics,
            database=database,
            search=search,
            redis=redis,
            signals=signals,
            lock=lock,
            validation=validation or Validation(),
        )
        stack.push_async_callback(resources.runs.close)
        yield resources


async def _prepare(database: Database, patience: timedelta) -> None:
    """Wait for the database and check its schema; once more if the connection is lost in between."""
    await _wait_for(database, patience)
    try:
        await _check_schema(database)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        await _wait_for(database, patience)
        await _check_schema(database)


async def _wait_for(database: Database, patience: timedelta) -> None:
    """Wait until the database answers, and log it; raise `Unreachable` when the patience is over."""
    until, logged_at = time.monotonic() + patience.total_seconds(), -math.inf
    while True:
        try:
            return await database.ping()
        except Unreachable as error:
            left = until - time.monotonic()
            if left <= 0 and patience and error.may_return:
                waited = f"{error} (waited {patience.total_seconds():g} s, as STARTUP_WAIT says)"
                raise Unreachable(waited, hint=error.hint) from error
            if left <= 0 or not error.may_return:
                raise
            if time.monotonic() - logged_at >= _LOG_AGAIN_SECONDS:
                logged_at = time.monotonic()
                structlog.get_logger().warning(
                    "waiting for the database", reason=str(error), gives_up_in_seconds=round(left)
                )
        await asyncio.sleep(min(left, _PING_AGAIN_SECONDS))


async def _check_schema(database: Database) -> None:
    """Migrate SQLite. The schema of a server changes only on command: refuse an old one."""
    if isinstance(database, SqliteDatabase):
        await migrate(database)
    else:
        await require_newest(database)


def _open_redis(settings: Settings) -> "Redis | None":
    if settings.redis is None:
        return None
    # Imported here: it takes a third of a second, and most installations start without Redis.
    from floodmark.coordination.redis_connection import open_redis  # noqa: PLC0415

    return open_redis(settings.redis, max_connections=settings.redis_max_connections, step=settings.step_timeout)


def _signals(database: Database, redis: "Redis | None", settings: Settings, events: Events, name: str) -> Signals:
    # PostgreSQL first: only its triggers also report changes by SQL typed by hand.
    if isinstance(database, PostgresDatabase):
        from floodmark.coordination.signals.postgres import PostgresSignals  # noqa: PLC0415 - SQLite needs none of it

        return PostgresSignals(database, events, lock_key=key_of(name))
    assert isinstance(database, SqliteDatabase)
    if redis is not None:
        from floodmark.coordination.signals.redis import RedisSignals  # noqa: PLC0415 - see `_open_redis`

        return RedisSignals(redis, settings.scheduler_queue_prefix, events, step=settings.step_timeout)
    return LocalSignals(database)


def _lock(database: Database, signals: Signals, name: str) -> ProcessLock:
    """Return the lock: beside the SQLite file that processes share; on PostgreSQL in a folder of this machine."""
    if isinstance(database, SqliteDatabase):
        return ProcessLock(FileLock(database.path.with_name(f"{database.path.name}-locks"), name))
    from floodmark.coordination.signals.postgres import PostgresSignals  # noqa: PLC0415 - see `_signals`

    assert isinstance(signals, PostgresSignals)
    return ProcessLock(FileLock(runtime_folder(), name), signals)


def _open_store(
    database: Database, clock: Clock, patience: timedelta
) -> tuple[Firing, Leasing, Keeping, Upkeep, Spending]:
    if isinstance(database, PostgresDatabase):
        from floodmark.store.postgres.firing import PostgresFiring  # noqa: PLC0415 - SQLite needs none of it
        from floodmark.store.postgres.keeping import PostgresKeeping  # noqa: PLC0415
        from floodmark.store.postgres.leasing import PostgresLeasing  # noqa: PLC0415
        from floodmark.store.postgres.spending import PostgresSpending  # noqa: PLC0415
        from floodmark.store.postgres.upkeep import PostgresUpkeep  # noqa: PLC0415

        return (
            PostgresFiring(database, patience=patience),
            PostgresLeasing(database, patience=patience),
            PostgresKeeping(database, clock=clock),
            PostgresUpkeep(database, patience=patience),
            PostgresSpending(database),
        )
    assert isinstance(database, SqliteDatabase)
    return (
        SqliteFiring(database, patience=patience, clock=clock),
        SqliteLeasing(database, patience=patience, clock=clock),
        SqliteKeeping(database, clock=clock),
        SqliteUpkeep(database, patience=patience, clock=clock),
        SqliteSpending(database, clock=clock),
    )


def _use_redis(
    redis: "Redis", leases: SqlLeases, queue: SqlQueue, *, leasing: Leasing, events: Events, settings: Settings
) -> tuple[Leases, Queue]:
    """Return leases and a queue in Redis that fall back to those of the database."""
    from floodmark.coordination.leases.redis import RedisLeases  # noqa: PLC0415 - see `_open_redis`
    from floodmark.queue.redis_streams import RedisStreamsQueue  # noqa: PLC0415

    prefix, patience = settings.scheduler_queue_prefix, settings.queue_patience
    return (
        RedisLeases(redis, leases, events, prefix=prefix),
        RedisStreamsQueue(redis, leasing, queue, events, prefix=prefix, patience=patience),
    )


def _wire(
    settings: Settings,
    *,
    name: str,
    tracing: Tracing | None,
    clock: Clock,
    events: Events,
    metrics: MetricsOnDemand,
    database: Database,
    search: SearchOnDemand,
    redis: "Redis | None",
    signals: Signals,
    http: Http,
    lock: ProcessLock,
    validation: Validation,
) -> Resources:
    firing, leasing, keeping, upkeep, spending = _open_store(database, clock, settings.queue_patience)
    sql = SqlLeases(database, clock), SqlQueue(database, leasing, signals, events)
    leases, queue = sql if redis is None else _use_redis(redis, *sql, leasing=leasing, events=events, settings=settings)
    repositories = Repositories.of(
        database,
        clock,
        # Only when it is needed: it loads the forms of all sources.
        find_patience=lambda: find_patience(settings),
        default_budget=settings.budget_default_per_minute,
    )
    caller = Caller(repositories.limits, repositories.breakers, call_policy(settings), clock, events, tracing=tracing)
    polite = PoliteHttp(
        http, caller, clock, events, concurrency=settings.web_domain_concurrency, delay=settings.web_domain_delay
    )
    return Resources(
        settings=settings,
        name=name,
        tracing=tracing,
        clock=clock,
        events=events,
        metrics=metrics,
        database=database,
        repositories=repositories,
        search=search,
        write_check=WriteCheck(database),
        redis=redis,
        signals=signals,
        leases=leases,
        queue=queue,
        runs=RequestedRuns(database, clock, queue.put),
        known_jobs=KnownJobs(repositories.jobs),
        firing=firing,
        leasing=leasing,
        keeping=keeping,
        upkeep=upkeep,
        spending=spending,
        caller=caller,
        http=http,
        polite=polite,
        partition=Partition(name),
        lock=lock,
        validation=validation,
    )
