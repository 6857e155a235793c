"""The checks of `floodmark doctor`.

The environment comes first, because the rest depends on it. Then come the invariants, by their names in the description
of the protocol. Two of them need more than the store: I1 (nothing is missing) needs the expected items, see
`check_stream`; I9 needs the files.
"""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, func, select
from sqlalchemy.exc import SQLAlchemyError

from floodmark.coordination.leases.port import Leases
from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import Unavailable
from floodmark.model.clock import Clock
from floodmark.model.fleet import Finding, WorkerInfo
from floodmark.model.search import IndexStatus
from floodmark.notifications.loading import configured_channels
from floodmark.repositories.fleet import FleetRepository
from floodmark.repositories.ledgers import Ledgers
from floodmark.rules.sinks import is_stuck
from floodmark.sinks.repository import SinkRepository
from floodmark.sources.form import CheckTools, find_forms
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database, SqliteDatabase
from floodmark.store.dialects import chunks, present_moment
from floodmark.store.migrate import current, newest
from floodmark.store.tables import items, job_executions, jobs, outbox
from floodmark.watches.checkup import check_watches

from .health import describe_stuck, search_status
from .invariants import INVARIANTS, Invariant, Window, examples, window

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from floodmark.settings import Settings
    from floodmark.wiring.resources import Resources

# An execution may wait for one lease, one run of maintenance (15 s) and one of the requeuer (60 s).
_UPKEEP = timedelta(seconds=75)
_CLOCK_TOLERANCE = timedelta(seconds=1)
_OLDEST_REDIS = (7, 0)
_REDIS_IDS = 10_000
_KEYS_AT_ONCE = 5000
_SHOWN = 5
_MOST_GAPS = 100
_MOST_COUNTED = 10_000
_GIGABYTE = 1_000_000_000
# Space for some days of a busy installation, to have time to act.
_LEAST_FREE = 2 * _GIGABYTE
# Longer than the index needs to catch up after a busy minute.
_SEARCH_LAG = 300.0


def doctor_of(resources: "Resources") -> "Doctor":
    """Return the doctor of the installation that a process has opened."""
    settings = resources.settings
    return Doctor(
        resources.database,
        resources.clock,
        leases=resources.leases,
        leader_key=settings.scheduler_leader_key,
        execution_lease=settings.execution_lease,
        redis=resources.redis,
        prefix=settings.scheduler_queue_prefix,
        settings=settings,
        read_search=partial(search_status, resources),
        find_channels=lambda: configured_channels(resources),
    )


class Doctor:
    """Examines an installation without changing anything."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        leases: Leases,
        leader_key: str = "scheduler-leader",
        execution_lease: timedelta = timedelta(seconds=15),
        redis: "Redis | None" = None,
        prefix: str = "crawler",
        settings: "Settings | None" = None,
        read_search: Callable[..., Awaitable[IndexStatus]] | None = None,
        find_channels: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        self._database, self._clock, self._redis = database, clock, redis
        self._leases, self._leader_key = leases, leader_key
        self._settings = settings
        self._read_search, self._find_channels = read_search, find_channels
        self._patience, self._known = execution_lease + _UPKEEP, f"{prefix}:jobs:known"

    async def check(self) -> list[Finding]:
        """Return all findings, good and bad; fix them in this order."""
        found = await self._check_database()
        if not all(finding.ok for finding in found):
            return found
        found += [await self._check_clocks()]
        if self._redis is not None:
            found += await self._check_redis(self._redis)
        found += [await self._check_leader(), await self._check_workers()]
        found += [
            *await self._check_disk(),
            *await self._check_search(),
            await self._check_letters(),
            await self._check_paused(),
            await self._check_schedules(),
            *await self._check_sinks(),
            *await self._check_completeness(),
        ]
        found += await self._check_sources()
        if self._find_channels is not None:
            found += await check_watches(self._database, await self._find_channels())
        return found + await self._check_invariants()

    async def check_stream(self, stream: str, expected_keys: Iterable[str]) -> list[Finding]:
        """Check I1 and I2 for a stream whose expected items are known: every item once, with its events."""
        expected = set(expected_keys)
        async with self._database.reading() as connection:
            stored = {key async for key in _keys(connection, stream)}
            events = (await connection.execute(_events_of(stream))).one()
        return [
            _compare("I1.missing", "no item is missing", "items are missing", sorted(expected - stored)),
            _compare("I1.unexpected", "no item is unexpected", "items are unexpected", sorted(stored - expected)),
            _events_finding(events, len(stored)),
        ]

    async def _check_database(self) -> list[Finding]:
        try:
            await self._database.ping()
            found, wanted = await current(self._database), newest()
        except Unavailable as error:
            return [Finding(code="database", ok=False, text=str(error), hint=error.hint)]
        answers = Finding(code="database", ok=True, text=f"{self._database.dialect} answers")
        old = f"the schema is {found or 'empty'}, this version of Floodmark needs {wanted}"
        hint = "bring it up to date: floodmark migrate"
        return [answers, _finding("schema", found == wanted, f"the schema is the newest ({found})", old, hint)]

    async def _check_clocks(self) -> Finding:
        async def now() -> datetime:
            return self._clock.now()

        async with self._database.reading() as connection:
            return await self._compare_clocks("clock", "this machine", connection, now)

    async def _compare_clocks(
        self, code: str, whose: str, connection: AsyncConnection, ask: Callable[[], Awaitable[datetime]]
    ) -> Finding:
        """Compare a clock with that of the database, read before and after it."""
        before = await present_moment(self._database, self._clock, connection)
        theirs = await ask()
        after = await present_moment(self._database, self._clock, connection)
        off, clocks = max(before - theirs, theirs - after, timedelta()), f"the clocks of {whose} and the database"
        differ = f"{clocks} differ by {off.total_seconds():.1f} s"
        hint = "set both by NTP; leases end early or late until then"
        return _finding(code, off < _CLOCK_TOLERANCE, f"{clocks} agree", differ, hint)

    async def _check_redis(self, redis: "Redis") -> list[Finding]:
        try:
            info = await redis.info()
            async with self._database.reading() as connection:
                clocks = await self._compare_clocks("redis.clock", "Redis", connection, lambda: _redis_time(redis))
                known = await self._known_to_redis(redis, connection)
        except redis_errors() as error:
            text = f"Redis does not answer: {error}; the database serves instead"
            return [Finding(code="redis", ok=False, text=text, hint="check REDIS_URL with: floodmark settings")]
        return [Finding(code="redis", ok=True, text="Redis answers"), _version(info), _eviction(info), clocks, known]

    async def _known_to_redis(self, redis: "Redis", connection: AsyncConnection) -> Finding:
        """Compare the executions in Redis with the database. Redis is read first: its entries were committed before."""
        ids: list[str] = []
        async for key, _entry in redis.hscan_iter(self._known, count=1000):
            ids.append(key.decode() if isinstance(key, bytes) else str(key))
            if len(ids) >= _REDIS_IDS:
                break
        stored: set[str] = set()
        column = job_executions.c.execution_id
        for some in chunks(ids):
            stored.update((await connection.execute(select(column).where(column.in_(some)))).scalars())
        hint = "does REDIS_URL or SCHEDULER_QUEUE_PREFIX belong to another installation? workers drop these"
        unknown = [execution_id for execution_id in ids if execution_id not in stored]
        holds, broken = "everything in Redis is in the database", "executions are known to Redis only"
        return _compare("I5", holds, broken, unknown, hint)

    async def _check_leader(self) -> Finding:
        holder = await self._leases.holder(self._leader_key)
        hint = "start one with: floodmark up, or floodmark scheduler"
        return _finding("leader", holder is not None, f"{holder} schedules", "no scheduler is running", hint)

    async def _check_workers(self) -> Finding:
        able = [worker for worker in await self._live_workers() if worker.slots]
        slots = sum(worker.slots for worker in able)
        hint = "start one with: floodmark up, or floodmark worker"
        running = f"{len(able)} running, with room for {slots} executions"
        return _finding("workers", bool(able), running, "no worker is running", hint)

    async def _check_sources(self) -> list[Finding]:
        """Return the findings of sources that have a check of their own: see `JobForm`."""
        if self._settings is None:
            return []
        tools = CheckTools(database=self._database, settings=self._settings, workers=await self._live_workers())
        checks = [form.check for form in find_forms().values() if form.check is not None]
        return [finding for check in checks for finding in await check(tools)]

    async def _check_disk(self) -> list[Finding]:
        """Check the disk of a SQLite database; the disk of a server is not visible."""
        if not isinstance(self._database, SqliteDatabase):
            return []
        folder = self._database.path.parent
        bytes_free = shutil.disk_usage(folder).free
        free, hint = f"{bytes_free / _GIGABYTE:.1f} GB", "make room; a full disk stops collecting"
        enough = f"{free} are free where the database is"
        low = f"only {free} are free where the database is ({folder.absolute()})"
        return [_finding("disk", bytes_free >= _LEAST_FREE, enough, low, hint)]

    async def _check_search(self) -> list[Finding]:
        """Check the search index. It is bad only if a scheduler is running that should have updated it."""
        if self._read_search is None:
            return []
        is_followed = await self._leases.holder(self._leader_key) is not None
        try:
            status = await self._read_search(is_followed=is_followed)
        except Unavailable as error:
            return [Finding(code="search", ok=False, text=str(error), hint=error.hint)]
        return [] if status.condition == "off" else [_search_finding(status)]

    async def _check_letters(self) -> Finding:
        cell = job_executions.c
        found = await self._rows(select(cell.job_id).where(cell.state == "dead").limit(_MOST_COUNTED))
        if not found:
            return Finding(code="dead letters", ok=True, text="no execution has failed permanently")
        count = f"{len(found):,}{'+' if len(found) == _MOST_COUNTED else ''}"
        text = f"{count} execution{'' if len(found) == 1 else 's'} failed permanently"
        return Finding(code="dead letters", ok=True, text=text, hint="see why: floodmark dlq; then retry or drop them")

    async def _check_paused(self) -> Finding:
        query = select(jobs.c.name, jobs.c.pause_reason).where(jobs.c.paused).order_by(jobs.c.name)
        rows = await self._rows(query.limit(_MOST_COUNTED))
        if not rows:
            return Finding(code="paused jobs", ok=True, text="no job is paused")
        are = "job is" if len(rows) == 1 else "jobs are"
        text = f"{len(rows)} {are} paused: {_names(rows)}"
        hint = f"let it run again: floodmark resume {rows[0].name}"
        return Finding(code="paused jobs", ok=True, text=text, hint=hint)

    async def _check_schedules(self) -> Finding:
        """Check for schedules that were written by SQL and cannot be planned: their jobs never run."""
        query = select(jobs.c.name, jobs.c.invalid_reason).where(jobs.c.invalid_reason.is_not(None))
        rows = await self._rows(query.order_by(jobs.c.name).limit(_MOST_COUNTED))
        if not rows:
            return Finding(code="schedules", ok=True, text="every schedule can be planned")
        have = "job has" if len(rows) == 1 else "jobs have"
        text = f"{len(rows)} {have} an invalid schedule and will not run: {_names(rows)}"
        hint = f"correct it, for example: floodmark edit {rows[0].name} --every 15m"
        return Finding(code="schedules", ok=False, text=text, hint=hint)

    async def _check_sinks(self) -> list[Finding]:
        """Check that events reach the sinks; nothing if there are none."""
        sinks = await SinkRepository(self._database, self._clock).rows()
        used = [sink for sink in sinks if sink.state != "removed"]
        if not used:
            return []
        stuck, paused = [sink for sink in used if is_stuck(sink)], [sink for sink in used if sink.state == "paused"]
        if stuck:
            text = "; ".join(describe_stuck(sink) for sink in stuck[:_SHOWN])
            return [Finding(code="sinks", ok=False, text=text, hint=f"see: floodmark sinks show {stuck[0].name}")]
        if paused:
            named = _list([f"{sink.name} (events behind: {sink.lag_events:,})" for sink in paused])
            text = f"{len(paused)} of {len(used)} sinks {'is' if len(paused) == 1 else 'are'} paused: {named}"
            hint = f"deliver again: floodmark sinks resume {paused[0].name}"
            return [Finding(code="sinks", ok=True, text=text, hint=hint)]
        text = f"{len(used)} sink{' gets its' if len(used) == 1 else 's get their'} events"
        letters = next((sink for sink in used if sink.dead_letters), None)
        if letters is not None:
            hint = f"see why: floodmark sinks dead-letters {letters.name}"
            return [Finding(code="sinks", ok=True, text=f"{text}, but some were refused", hint=hint)]
        return [Finding(code="sinks", ok=True, text=text)]

    async def _check_completeness(self) -> list[Finding]:
        """Say what is known about the completeness of targets; gaps are no fault of the installation."""
        ledgers = Ledgers(self._database, self._clock)
        known = await ledgers.page(limit=1)
        if not known:
            return []
        rows = await ledgers.page(with_gaps=True, limit=_MOST_GAPS)
        if not rows:
            return [Finding(code="completeness", ok=True, text="no target has gaps")]
        count = f"{len(rows)}{'+' if len(rows) == _MOST_GAPS else ''}"
        named = _list([f"{row.job or row.stream}: {row.summary}" for row in rows])
        text = f"{count} {'target has' if len(rows) == 1 else 'targets have'} gaps: {named}"
        hint = f"see why: floodmark gaps; fill them: floodmark gaps {rows[0].job or 'JOB'} --fill"
        return [Finding(code="completeness", ok=True, text=text, hint=hint)]

    async def _live_workers(self) -> list[WorkerInfo]:
        return [worker for worker in await FleetRepository(self._database, self._clock).workers() if worker.alive]

    async def _rows(self, query: Select[Any]) -> list[Any]:
        async with self._database.reading() as connection:
            return list(await connection.execute(query))

    async def _check_invariants(self) -> list[Finding]:
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
            within = await window(connection, now=now, patience=self._patience)
        return [await self._check_invariant(rule, within) for rule in INVARIANTS]

    async def _check_invariant(self, rule: Invariant, within: Window) -> Finding:
        try:
            # One transaction per rule: a long one would keep old row versions alive.
            async with self._database.reading_long() as connection:
                found = await examples(connection, rule, within)
        except (SQLAlchemyError, TimeoutError) as error:
            text = f"could not be checked: {str(error).partition(chr(10))[0]}"
            return Finding(code=rule.code, ok=False, text=text, hint="try again when the database is less busy")
        return _compare(rule.code, rule.holds, rule.broken, found, rule.hint)


def _finding(code: str, ok: bool, good: str, bad: str, hint: str) -> Finding:
    return Finding(code=code, ok=ok, text=good if ok else bad, hint="" if ok else hint)


def _search_finding(status: IndexStatus) -> Finding:
    text = f"{status.items:,} items can be searched"
    if status.condition == "ready":
        return Finding(code="search", ok=True, text=text)
    hint = "see its progress: floodmark index" if status.is_followed else "update it: floodmark index update"
    if status.condition == "behind":
        text += f", {status.pending:,} newer ones not yet; the oldest waits for {status.lag_seconds:.0f} s"
    elif status.condition == "building":
        text += "; the search index is being built"
    elif status.most_items:
        text = "there is no search index yet"
    else:
        return Finding(code="search", ok=True, text="nothing was collected that could be searched")
    is_stuck = status.is_followed and status.condition == "behind" and status.lag_seconds > _SEARCH_LAG
    return Finding(
        code="search", ok=not is_stuck, text=text, hint="see the logs of the scheduler" if is_stuck else hint
    )


def _names(rows: Sequence[tuple[str, str | None]]) -> str:
    """Return the first few names, each with its reason, and the number of others."""
    return _list([f"{name} ({reason})" if reason else name for name, reason in rows])


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _compare(code: str, holds: str, broken: str, found: list[str], hint: str = "") -> Finding:
    return _finding(code, not found, holds, f"{broken}: {_list(found)}", hint)


def _version(info: dict[str, Any]) -> Finding:
    name, version = "Redis", str(info.get("redis_version", "0"))
    if "valkey_version" in info:
        name, version = "Valkey", str(info["valkey_version"])
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    text, hint = f"{name} {version}", "upgrade to Redis 7.0, Valkey 7.2 or newer"
    return _finding("redis.version", numbers >= _OLDEST_REDIS, text, text, hint)


def _eviction(info: dict[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    text, is_safe = f"maxmemory-policy is {policy}", not policy.startswith(("allkeys-", "volatile-"))
    hint = "set it with: redis-cli config set maxmemory-policy noeviction"
    return _finding("redis.eviction", is_safe, text, f"{text}: a full Redis deletes the queue", hint)


async def _redis_time(redis: "Redis") -> datetime:
    seconds, microseconds = await redis.time()
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=microseconds)


async def _keys(connection: AsyncConnection, stream: str) -> AsyncIterator[str]:
    after: str | None = None
    while True:
        query = select(items.c.key).where(items.c.stream == stream).order_by(items.c.key).limit(_KEYS_AT_ONCE)
        keys = (await connection.execute(query if after is None else query.where(items.c.key > after))).scalars().all()
        for key in keys:
            yield key
        if len(keys) < _KEYS_AT_ONCE:
            return
        after = keys[-1]


def _events_of(stream: str) -> Any:
    """Return the query that counts the events of a stream, the different ones, and the expected ones."""
    events = select(outbox.c.key, outbox.c.revision).where(outbox.c.stream == stream)
    different = select(func.count()).select_from(events.distinct().subquery()).scalar_subquery()
    due = select(func.coalesce(func.sum(items.c.revision), 0)).where(items.c.stream == stream).scalar_subquery()
    oldest = select(func.min(outbox.c.seq)).scalar_subquery()
    every = select(func.count()).select_from(events.subquery()).scalar_subquery()
    return select(every.label("total"), different.label("different"), due.label("due"), oldest.label("oldest"))


def _events_finding(events: Any, stored: int) -> Finding:
    counts = f"{stored} items with {events.due} revisions, {events.total} events of which {events.different} differ"
    # After pruning, too few events prove nothing; too many always do.
    is_complete = events.total == events.due or (events.oldest != 1 and events.total < events.due)
    is_once = events.total == events.different
    ok = is_once and is_complete
    return Finding(code="I2", ok=ok, text=counts, hint="" if ok else "every revision must have exactly one event")
