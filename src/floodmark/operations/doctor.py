"""Is everything there that should be, and does everything hold that must? `floodmark doctor`.

The environment comes first: what does not answer cannot be examined. Then the invariants, by the names they have
in the description of the protocol. Two of them need more than the store: I1 (no hole) needs to know what there was
to collect, see `check_stream`; I9 (files) needs the files.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from floodmark.coordination.leases.port import Leases
from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import Unavailable
from floodmark.model.clock import Clock
from floodmark.model.fleet import Finding
from floodmark.sources.cookies.browser import BrowserMissing, require_browser
from floodmark.sources.telegram.tables import accounts
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database, SqliteDatabase
from floodmark.store.dialects import present_moment
from floodmark.store.fleet import FleetRepository
from floodmark.store.migrate import current, newest
from floodmark.store.tables import items, job_executions, jobs, outbox

from .invariants import INVARIANTS, Invariant, Window, examples, window

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from floodmark.wiring.resources import Resources

# An execution may lie for one lease, one round of upkeep (15 s) and one of the requeuer (60 s).
_UPKEEP = timedelta(seconds=75)
_CLOCK_TOLERANCE = timedelta(seconds=1)
_OLDEST_REDIS = (7, 0)
_REDIS_IDS = 10_000
_KEYS_AT_ONCE = 5000
_SHOWN = 5
_MOST_COUNTED = 10_000
_GIGABYTE = 1_000_000_000
# Room for some days of a busy installation, so that there is time to act.
_LEAST_FREE = 2 * _GIGABYTE


def doctor_of(resources: "Resources") -> "Doctor":
    """The doctor for the installation that a process has opened."""
    settings = resources.settings
    return Doctor(
        resources.database,
        resources.clock,
        leases=resources.leases,
        leader_key=settings.scheduler_leader_key,
        execution_lease=settings.execution_lease,
        redis=resources.redis,
        prefix=settings.scheduler_queue_prefix,
        hostname=settings.hostname,
        find_browser=lambda: require_browser(settings.floodmark_chromium, os.environ),
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
        hostname: str = "",
        find_browser: Callable[[], Path] | None = None,
    ) -> None:
        self._database, self._clock, self._redis = database, clock, redis
        self._leases, self._leader_key = leases, leader_key
        self._hostname, self._find_browser = hostname, find_browser
        self._patience, self._known = execution_lease + _UPKEEP, f"{prefix}:jobs:known"

    async def check(self) -> list[Finding]:
        """Everything that was looked at, good and bad, in the order in which one would mend it."""
        found = await self._database_findings()
        if not all(finding.ok for finding in found):
            return found
        found += [await self._clocks()]
        if self._redis is not None:
            found += await self._redis_findings(self._redis)
        found += [await self._leader(), await self._workers(), *await self._browser()]
        found += [*await self._disk(), await self._letters(), await self._paused(), await self._schedules()]
        found += await self._accounts()
        return found + await self._invariants()

    async def check_stream(self, stream: str, expected_keys: Iterable[str]) -> list[Finding]:
        """I1 and I2 for a stream of which it is known what it should hold: every item once, with its events."""
        expected = set(expected_keys)
        async with self._database.reading() as connection:
            stored = {key async for key in _keys(connection, stream)}
            events = (await connection.execute(_events_of(stream))).one()
        return [
            _compared("I1.missing", "no item is missing", "items are missing", sorted(expected - stored)),
            _compared("I1.unexpected", "no item is made up", "items nobody expected", sorted(stored - expected)),
            _events_finding(events, len(stored)),
        ]

    async def _database_findings(self) -> list[Finding]:
        try:
            await self._database.ping()
            found, wanted = await current(self._database), newest()
        except Unavailable as error:
            return [Finding(code="database", ok=False, text=str(error), hint=error.hint)]
        answers = Finding(code="database", ok=True, text=f"{self._database.dialect} answers")
        if found == wanted:
            return [answers, Finding(code="schema", ok=True, text=f"the schema is the newest ({found})")]
        text = f"the schema is {found or 'empty'}, this version of Floodmark needs {wanted}"
        return [answers, Finding(code="schema", ok=False, text=text, hint="bring it up to date: floodmark migrate")]

    async def _clocks(self) -> Finding:
        async with self._database.reading() as connection:
            return await self._compared_clocks("clock", "this machine", connection, self._here)

    async def _here(self) -> datetime:
        return self._clock.now()

    async def _compared_clocks(
        self, code: str, whose: str, connection: AsyncConnection, ask: Callable[[], Awaitable[datetime]]
    ) -> Finding:
        """Their time lies between two of the database's: outside of these it is off by the rest."""
        before = await present_moment(self._database, self._clock, connection)
        theirs = await ask()
        after = await present_moment(self._database, self._clock, connection)
        off = max(before - theirs, theirs - after, timedelta())
        if off < _CLOCK_TOLERANCE:
            return Finding(code=code, ok=True, text=f"the clocks of {whose} and the database agree")
        text = f"the clocks of {whose} and the database differ by {off.total_seconds():.1f} s"
        return Finding(code=code, ok=False, text=text, hint="set both by NTP; leases end early or late until then")

    async def _redis_findings(self, redis: "Redis") -> list[Finding]:
        try:
            info = await redis.info()
            async with self._database.reading() as connection:
                clocks = await self._compared_clocks("redis.clock", "Redis", connection, lambda: _redis_time(redis))
                known = await self._known_to_redis(redis, connection)
        except redis_errors() as error:
            text = f"Redis does not answer: {error}; the database serves instead"
            return [Finding(code="redis", ok=False, text=text, hint="check REDIS_URL with: floodmark settings")]
        return [Finding(code="redis", ok=True, text="Redis answers"), _version(info), _eviction(info), clocks, known]

    async def _known_to_redis(self, redis: "Redis", connection: AsyncConnection) -> Finding:
        """Redis first: what is put there was committed before, so nothing can be missing that is just new."""
        ids: list[str] = []
        async for key, _entry in redis.hscan_iter(self._known, count=1000):
            ids.append(key.decode() if isinstance(key, bytes) else str(key))
            if len(ids) >= _REDIS_IDS:
                break
        stored: set[str] = set()
        column = job_executions.c.execution_id
        for start in range(0, len(ids), 500):
            stored.update(
                (await connection.execute(select(column).where(column.in_(ids[start : start + 500])))).scalars()
            )
        hint = "does REDIS_URL or SCHEDULER_QUEUE_PREFIX belong to another installation? workers drop these"
        unknown = [execution_id for execution_id in ids if execution_id not in stored]
        holds, broken = "everything in Redis is in the database", "executions are known to Redis only"
        return _compared("I5", holds, broken, unknown, hint)

    async def _leader(self) -> Finding:
        holder = await self._leases.holder(self._leader_key)
        if holder is not None:
            return Finding(code="leader", ok=True, text=f"{holder} schedules")
        hint = "start one with: floodmark up, or floodmark scheduler"
        return Finding(code="leader", ok=False, text="no scheduler is running", hint=hint)

    async def _workers(self) -> Finding:
        alive = [worker for worker in await FleetRepository(self._database, self._clock).workers() if worker.alive]
        able = [worker for worker in alive if worker.slots]
        if able:
            slots = sum(worker.slots for worker in able)
            return Finding(code="workers", ok=True, text=f"{len(able)} running, with room for {slots} executions")
        hint = "start one with: floodmark up, or floodmark worker"
        return Finding(code="workers", ok=False, text="no worker is running", hint=hint)

    async def _browser(self) -> list[Finding]:
        """Nothing to say where nobody scans, or where scans run on other machines than this."""
        workers = [worker for worker in await FleetRepository(self._database, self._clock).workers() if worker.alive]
        is_elsewhere = workers and all(worker.hostname != self._hostname for worker in workers)
        async with self._database.reading() as connection:
            cell = jobs.c
            query = select(cell.name).where(cell.source == "cookies", ~cell.paused).limit(1)
            name = (await connection.execute(query)).scalar()
        if name is None or self._find_browser is None or is_elsewhere:
            return []
        try:
            return [Finding(code="browser", ok=True, text=f"cookie scans use {self._find_browser()}")]
        except BrowserMissing as missing:
            return [Finding(code="browser", ok=False, text=f"{missing}, as for {name}", hint=missing.hint)]

    async def _disk(self) -> list[Finding]:
        """The disk of this machine that holds the database; a server's disk is not ours to see."""
        if not isinstance(self._database, SqliteDatabase):
            return []
        usage = shutil.disk_usage(self._database.path.parent)
        free, is_enough = f"{usage.free / _GIGABYTE:.1f} GB", usage.free >= _LEAST_FREE
        if is_enough:
            return [Finding(code="disk", ok=True, text=f"{free} are free where the database is")]
        text = f"only {free} are free where the database is ({self._database.path.parent.absolute()})"
        return [Finding(code="disk", ok=False, text=text, hint="make room; a full disk stops collecting")]

    async def _letters(self) -> Finding:
        async with self._database.reading() as connection:
            cell = job_executions.c
            some = select(cell.job_id).where(cell.state == "dead").limit(_MOST_COUNTED)
            found = (await connection.execute(some)).scalars().all()
        if not found:
            return Finding(code="dead letters", ok=True, text="no execution has failed for good")
        count = f"{len(found):,}{'+' if len(found) == _MOST_COUNTED else ''}"
        text = f"{count} execution{'' if len(found) == 1 else 's'} failed for good"
        return Finding(code="dead letters", ok=True, text=text, hint="see why: floodmark dlq; then retry or drop them")

    async def _paused(self) -> Finding:
        async with self._database.reading() as connection:
            cell = jobs.c
            query = select(cell.name, cell.pause_reason).where(cell.paused).order_by(cell.name).limit(_MOST_COUNTED)
            rows = (await connection.execute(query)).all()
        if not rows:
            return Finding(code="paused jobs", ok=True, text="no job is paused")
        are = "job is" if len(rows) == 1 else "jobs are"
        text = f"{len(rows)} {are} paused: {_named([(row.name, row.pause_reason) for row in rows])}"
        hint = f"let it run again: floodmark resume {rows[0].name}"
        return Finding(code="paused jobs", ok=True, text=text, hint=hint)

    async def _schedules(self) -> Finding:
        """Schedules that were written by SQL and cannot be planned: their jobs never run."""
        async with self._database.reading() as connection:
            cell = jobs.c
            query = select(cell.name, cell.invalid_reason).where(cell.invalid_reason.is_not(None))
            rows = (await connection.execute(query.order_by(cell.name).limit(_MOST_COUNTED))).all()
        if not rows:
            return Finding(code="schedules", ok=True, text="every schedule can be planned")
        have = "job has" if len(rows) == 1 else "jobs have"
        named = _named([(row.name, row.invalid_reason) for row in rows])
        text = f"{len(rows)} {have} an invalid schedule and will not run: {named}"
        hint = f"correct it, for example: floodmark edit {rows[0].name} --every 15m"
        return Finding(code="schedules", ok=False, text=text, hint=hint)

    async def _accounts(self) -> list[Finding]:
        async with self._database.reading() as connection:
            cell = accounts.c
            rows = (await connection.execute(select(cell.name, cell.state, cell.reason).order_by(cell.name))).all()
        if not rows:
            return []
        lost = [row for row in rows if row.state != "active"]
        if not lost:
            text = f"{len(rows)} Telegram account{' is' if len(rows) == 1 else 's are'} in use"
            return [Finding(code="accounts", ok=True, text=text)]
        named = ", ".join(f"{row.name} ({row.reason or row.state})" for row in lost[:_SHOWN])
        text = f"{len(lost)} of {len(rows)} Telegram accounts cannot be used: {named}"
        hint = f"test it with: floodmark accounts test {lost[0].name}"
        return [Finding(code="accounts", ok=False, text=text, hint=hint)]

    async def _invariants(self) -> list[Finding]:
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
            within = await window(connection, now=now, patience=self._patience)
        return [await self._invariant(rule, within) for rule in INVARIANTS]

    async def _invariant(self, rule: Invariant, within: Window) -> Finding:
        try:
            # A reading of its own for each: a long one must not keep old row versions alive for all.
            async with self._database.reading_long() as connection:
                found = await examples(connection, rule, within)
        except (SQLAlchemyError, TimeoutError) as error:
            text = f"could not be checked: {str(error).partition(chr(10))[0]}"
            return Finding(code=rule.code, ok=False, text=text, hint="try again when the database is less busy")
        return _compared(rule.code, rule.holds, rule.broken, found, rule.hint)


def _named(found: list[tuple[str, str | None]]) -> str:
    """The first few names, each with its reason, and how many more there are."""
    named = ", ".join(f"{name} ({reason})" if reason else name for name, reason in found[:_SHOWN])
    return f"{named} and {len(found) - _SHOWN} more" if len(found) > _SHOWN else named


def _compared(code: str, holds: str, broken: str, found: list[str], hint: str = "") -> Finding:
    if not found:
        return Finding(code=code, ok=True, text=holds)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Finding(code=code, ok=False, text=f"{broken}: {', '.join(found[:_SHOWN])}{more}", hint=hint)


def _version(info: dict[str, Any]) -> Finding:
    name, version = "Redis", str(info.get("redis_version", "0"))
    if "valkey_version" in info:
        name, version = "Valkey", str(info["valkey_version"])
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    is_new = numbers >= _OLDEST_REDIS
    hint = "" if is_new else "upgrade to Redis 7.0, Valkey 7.2 or newer"
    return Finding(code="redis.version", ok=is_new, text=f"{name} {version}", hint=hint)


def _eviction(info: dict[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    is_safe = not policy.startswith(("allkeys-", "volatile-"))
    text = f"maxmemory-policy is {policy}" + ("" if is_safe else ": a full Redis throws away the queue")
    hint = "" if is_safe else "set it with: redis-cli config set maxmemory-policy noeviction"
    return Finding(code="redis.eviction", ok=is_safe, text=text, hint=hint)


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
    """How many events the stream has, how many of them differ, and how many it should have had."""
    told = select(outbox.c.key, outbox.c.revision).where(outbox.c.stream == stream)
    different = select(func.count()).select_from(told.distinct().subquery()).scalar_subquery()
    due = select(func.coalesce(func.sum(items.c.revision), 0)).where(items.c.stream == stream).scalar_subquery()
    oldest = select(func.min(outbox.c.seq)).scalar_subquery()
    every = select(func.count()).select_from(told.subquery()).scalar_subquery()
    return select(every.label("told"), different.label("different"), due.label("due"), oldest.label("oldest"))


def _events_finding(events: Any, stored: int) -> Finding:
    counts = f"{stored} items with {events.due} revisions, {events.told} events of which {events.different} differ"
    # Once events have been pruned, too few of them proves nothing; too many always does.
    is_complete = events.told == events.due or (events.oldest != 1 and events.told < events.due)
    is_once = events.told == events.different
    ok = is_once and is_complete
    return Finding(code="I2", ok=ok, text=counts, hint="" if ok else "every revision must have exactly one event")
