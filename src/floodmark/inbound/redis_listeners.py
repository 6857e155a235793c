"""Redis channels and streams. Only the leader listens: otherwise every message would fire once per scheduler.

channels    Pub/Sub: Redis keeps no copy, so messages are lost while nobody listens
streams     a consumer group `<prefix>:triggers` on each: unacknowledged entries are read again, and an id fires once

Both reload their patterns every half second, and at once on a signal. The facts `triggers.channels` and
`triggers.streams` hold the patterns to which the leader listens.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.exc import DataError, SQLAlchemyError

from floodmark.coordination.leader import Leader
from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import InvalidInput, Unavailable
from floodmark.model.clock import Clock
from floodmark.model.strict_json import TooDeep, require_shallow
from floodmark.observability.events import Events, StepFailed
from floodmark.repositories.fleet import FleetRepository
from floodmark.triggers.matching import LONGEST, channel_matches, is_glob
from floodmark.wiring.resources import Resources

from .hops import TooManyHops
from .intake import Arrival, BadParams, Intake, Matches, read_message
from .triggers import Rule

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.client import PubSub

    from floodmark.coordination.redis_connection import PubSubReader

CHANNELS, STREAMS = "triggers.channels", "triggers.streams"
# The same name for every leader: the next one finds the entries that the last one has read and not acknowledged.
CONSUMER = "leader"

# Short, because a stopping process waits for it.
_PATIENCE_SECONDS = 0.25
_RELOAD_EVERY_SECONDS = 0.5
_ANNOUNCE_EVERY_SECONDS = 5.0
_AT_ONCE = 100
_AGAIN = timedelta()
_LONGEST_COUNT = 6


class Hearing(Struct, frozen=True, kw_only=True):
    """The patterns to which the leader listens, as last announced."""

    holder: str
    patterns: tuple[str, ...]
    at: datetime

    def is_recent(self, now: datetime) -> bool:
        """Return whether it still holds: a leader repeats it every few seconds."""
        return now - self.at < timedelta(seconds=3 * _ANNOUNCE_EVERY_SECONDS)


class Announcer:
    """Stores the patterns to which this process listens: at every change, and every few seconds."""

    def __init__(self, fleet: FleetRepository, clock: Clock, name: str, fact: str) -> None:
        self._fleet, self._clock, self._name, self._fact = fleet, clock, name, fact
        self._announced: tuple[str, ...] | None = None
        self._until = 0.0

    async def announce(self, patterns: Sequence[str]) -> None:
        """Store that this process listens to `patterns` and to nothing else."""
        wanted = tuple(sorted(patterns))
        if wanted == self._announced and time.monotonic() < self._until:
            return
        value = {"holder": self._name, "patterns": list(wanted), "at": self._clock.now().isoformat()}
        await self._fleet.set_fact(self._fact, value)
        self._announced, self._until = wanted, time.monotonic() + _ANNOUNCE_EVERY_SECONDS

    def forget(self) -> None:
        """Announce again at the next call, because this process does not listen at the moment."""
        self._announced = None


async def find_hearing(fleet: FleetRepository, fact: str) -> Hearing | None:
    """Return the patterns that the leader has announced last."""
    value = await fleet.get_fact(fact)
    return None if value is None else msgspec.convert(value, Hearing)


class ChannelListener:
    """Fires the jobs of Pub/Sub messages. While the database is away, messages are kept and tried again."""

    def __init__(
        self,
        redis: "Redis",
        intake: Intake,
        leader: Leader,
        events: Events,
        announcer: Announcer,
        *,
        prefix: str,
        step: timedelta,
    ) -> None:
        self._redis, self._intake, self._leader, self._events = redis, intake, leader, events
        self._announcer, self._own, self._step = announcer, own_names(prefix), step
        self._pubsub: PubSub | None = None
        self._listening: PubSubReader | None = None
        self._subscribed: tuple[str, ...] = ()
        self._loaded_at = -_RELOAD_EVERY_SECONDS
        self._waiting: deque[tuple[Arrival, bytes]] = deque()

    async def step(self) -> timedelta | None:
        """Listen for a moment, and fire the jobs of the received messages."""
        if not self._leader.is_leader:
            await self.close()
            # Received while this process was the leader: no other process has them.
            await self._fire_waiting()
            return None
        try:
            return await self._listen()
        except redis_errors():
            # The next step opens a new connection and subscribes again.
            await self.close()
            raise

    async def close(self) -> None:
        """Stop listening."""
        pubsub, self._pubsub, self._listening, self._subscribed = self._pubsub, None, None, ()
        self._announcer.forget()
        if pubsub is not None:
            with suppress(*redis_errors()):
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _listen(self) -> timedelta | None:
        await self._fire_waiting()
        await self._subscribe()
        if self._listening is None:
            return None
        wait = _PATIENCE_SECONDS
        for _ in range(_AT_ONCE):
            message = await self._listening.next(wait)
            if message is None:
                break
            wait = 0.0
            self._receive(message)
        await self._fire_waiting()
        return _AGAIN

    async def _subscribe(self) -> None:
        """Bring the subscriptions up to date."""
        if time.monotonic() - self._loaded_at < _RELOAD_EVERY_SECONDS and self._pubsub is not None:
            return
        known = await self._intake.triggers.rules("channel")
        wanted = tuple(sorted({rule.pattern for rule in known.registered} | set(known.of_jobs)))
        self._loaded_at = time.monotonic()
        if not wanted:
            await self.close()
        elif wanted != self._subscribed:
            await self._change(wanted)
        await self._announcer.announce(wanted)

    async def _change(self, wanted: tuple[str, ...]) -> None:
        if self._pubsub is None:
            from floodmark.coordination.redis_connection import PubSubReader  # noqa: PLC0415 - only where there is a Redis

            self._pubsub = self._redis.pubsub()
            self._listening = PubSubReader(self._pubsub, step=self._step)
        pubsub, more, less = self._pubsub, set(wanted) - set(self._subscribed), set(self._subscribed) - set(wanted)
        for patterns, plain, glob in (
            (more, pubsub.subscribe, pubsub.psubscribe),
            (less, pubsub.unsubscribe, pubsub.punsubscribe),
        ):
            exact, globs = [p for p in patterns if not is_glob(p)], [p for p in patterns if is_glob(p)]
            if exact:
                await plain(*exact)
            if globs:
                await glob(*globs)
        self._subscribed = wanted

    def _receive(self, message: Mapping[str, Any]) -> None:
        """Keep a message to fire it. Redis sends one copy per matching subscription; only the first one counts."""
        channel = _text(message["channel"])
        if channel in self._own:
            # A pattern such as `*` matches Floodmark's own messages: every run would fire the next one.
            return
        through = _text(message["pattern"]) if message["type"] == "pmessage" else channel
        fitting = sorted((p for p in self._subscribed if channel_matches(p, channel)), key=lambda p: (is_glob(p), p))
        if fitting and through == fitting[0]:
            self._waiting.append((Arrival(kind="channel", subject=channel), message["data"]))

    async def _fire_waiting(self) -> None:
        """Fire the jobs of the received messages together. Those that could not be taken are tried again."""
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
            try:
                done = await asyncio.gather(*map(self._take, some), return_exceptions=True)
            except asyncio.CancelledError:
                self._waiting.extendleft(reversed(some))
                raise
            failed = [(message, failure) for message, failure in zip(some, done, strict=True) if failure is not None]
            self._waiting.extendleft(message for message, _ in reversed(failed))
            for _, failure in failed:
                raise failure

    async def _take(self, message: tuple[Arrival, bytes]) -> None:
        arrival, data = message
        await _fire(self._intake, arrival, partial(_read_data, data, self._intake.body_max), self._events)


class StreamListener:
    """Fires the jobs of stream entries. An entry is acknowledged when its executions are written."""

    def __init__(
        self, redis: "Redis", intake: Intake, leader: Leader, events: Events, announcer: Announcer, *, prefix: str
    ) -> None:
        self._redis, self._intake, self._leader, self._events = redis, intake, leader, events
        self._announcer, self._group = announcer, group_of(prefix)
        self._keys: tuple[str, ...] = ()
        self._is_behind = True
        self._loaded_at = -_RELOAD_EVERY_SECONDS

    async def step(self) -> timedelta | None:
        """Read entries, waiting a moment for new ones, and fire their jobs."""
        if not self._leader.is_leader:
            self._forget()
            return None
        try:
            return await self._listen()
        except Exception:
            self._forget()
            raise

    def _forget(self) -> None:
        # Listening starts again with the entries that were read and not acknowledged.
        self._keys, self._is_behind, self._loaded_at = (), True, -_RELOAD_EVERY_SECONDS
        self._announcer.forget()

    async def _listen(self) -> timedelta | None:
        await self._load_streams()
        if not self._keys:
            return None
        entries = await self._read()
        await self._take_all(entries)
        if not entries:
            self._is_behind = False
        return _AGAIN

    async def _read(self) -> list[tuple[str, bytes, Mapping[bytes, bytes]]]:
        """Return the entries that were read and not acknowledged; once there are none, the new entries."""
        found: Any = await self._redis.xreadgroup(
            self._group,
            CONSUMER,
            dict.fromkeys(self._keys, "0" if self._is_behind else ">"),
            count=_AT_ONCE,
            block=None if self._is_behind else int(_PATIENCE_SECONDS * 1000),
        )
        return [(_text(key), entry_id, fields) for key, entries in found or () for entry_id, fields in entries]

    async def _take_all(self, entries: Sequence[tuple[str, bytes, Mapping[bytes, bytes]]]) -> None:
        """Fire the jobs of entries together, and acknowledge those that were taken."""
        done = await asyncio.gather(*map(self._take, entries), return_exceptions=True)
        taken: dict[str, list[bytes]] = {}
        for (key, entry_id, _), failure in zip(entries, done, strict=True):
            if failure is None:
                taken.setdefault(key, []).append(entry_id)
        for key, ids in taken.items():
            await self._redis.xack(key, self._group, *ids)
        for failure in done:
            if failure is not None:
                raise failure

    async def _take(self, entry: tuple[str, bytes, Mapping[bytes, bytes]]) -> None:
        key, entry_id, fields = entry
        # An entry without fields was deleted after it was read.
        if fields:
            arrival = Arrival(kind="stream", subject=key, delivery_id=_text(entry_id), hops=_count_hops(fields))
            await _fire(self._intake, arrival, partial(_read_fields, fields, self._intake.body_max), self._events)

    async def _load_streams(self) -> None:
        """Bring the list of streams up to date, and create missing groups."""
        if time.monotonic() - self._loaded_at < _RELOAD_EVERY_SECONDS:
            return
        rules = (await self._intake.triggers.rules("stream")).registered
        ready = [rule.pattern for rule in rules if await self._is_ready(rule)]
        if set(ready) - set(self._keys):
            self._is_behind = True
        self._keys, self._loaded_at = tuple(ready), time.monotonic()
        await self._announcer.announce(ready)

    async def _is_ready(self, rule: Rule) -> bool:
        if rule.pattern in self._keys:
            return True
        from redis.exceptions import ResponseError  # noqa: PLC0415 - see `redis_errors`

        try:
            last = await self._intake.deliveries.last_id(rule.trigger_id)
            await make_group(self._redis, rule.pattern, self._group, since=last or "$")
        except ResponseError as error:
            # One key that is no stream must not block the others.
            self._events.emit(StepFailed(step="streams", error=f"{rule.pattern}: {error}"))
            self._intake.refusals.refuse("stream", [rule.trigger_id], "not a stream")
            return False
        return True


def build_listeners(resources: Resources, intake: Intake, leader: Leader) -> tuple[ChannelListener, StreamListener]:
    """Return the listeners of a process that has a Redis."""
    redis, events, settings = resources.redis, resources.events, resources.settings
    assert redis is not None
    prefix, fleet = settings.scheduler_queue_prefix, resources.repositories.fleet
    channels, streams = (Announcer(fleet, resources.clock, resources.name, fact) for fact in (CHANNELS, STREAMS))
    return (
        ChannelListener(redis, intake, leader, events, channels, prefix=prefix, step=settings.step_timeout),
        StreamListener(redis, intake, leader, events, streams, prefix=prefix),
    )


def own_names(prefix: str) -> frozenset[str]:
    """Return the channels and streams to which Floodmark itself writes. A trigger on them would fire itself."""
    return frozenset(f"{prefix}:{name}" for name in ("signals", "events", "jobs:high", "jobs:normal", "jobs:low"))


def group_of(prefix: str) -> str:
    """Return the name of the consumer group, the same for all processes of an installation."""
    return f"{prefix}:triggers"


async def make_group(redis: "Redis", key: str, group: str, *, since: str = "$") -> None:
    """Create the group, unless it exists. It starts after the entry `since`, by default with new entries."""
    from redis.exceptions import ResponseError  # noqa: PLC0415 - see `redis_errors`

    try:
        await redis.xgroup_create(key, group, id=since, mkstream=True)
    except ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


class _TooLarge(InvalidInput):
    """A message of more bytes than a webhook may have."""


async def _fire(intake: Intake, arrival: Arrival, read: Callable[[], Any], events: Events) -> None:
    """Fire the jobs of a message. A message that can never be taken is counted and skipped.

    An error of the database or of Redis is raised: the message is tried again. Any other error is caused by the message
    itself and must not block the next ones.
    """
    matches = Matches(rules=(), of_jobs=())
    try:
        matches = await intake.matching(arrival)
        if matches.rules or matches.of_jobs:
            _check_subject(arrival)
            await intake.take(replace(arrival, body=read()), matches)
    except Exception as error:
        if _may_pass(error):
            raise
        reason = _REASONS.get(type(error), "unreadable")
        intake.refusals.unreadable(arrival.kind, arrival.subject, [rule.trigger_id for rule in matches.rules], reason)
        text = f"{arrival.kind}:{arrival.subject[:200]}: skipped, {type(error).__name__}: {str(error)[:200]}"
        events.emit(StepFailed(step=f"trigger {arrival.kind}", error=text))


def _count_hops(fields: Mapping[bytes, bytes]) -> int:
    """Return the hops of an entry: one more than its event has, if it is an event of a sink of Floodmark."""
    if b"event_id" not in fields or b"position" not in fields:
        return 0
    text = fields.get(b"hops", b"0")
    return 1 + (int(text) if text.isdigit() and len(text) <= _LONGEST_COUNT else 0)


_REASONS: Mapping[type[Exception], str] = {
    TooDeep: "nested too deeply",
    _TooLarge: "too large",
    BadParams: BadParams.reason,
    TooManyHops: TooManyHops.reason,
}


def _may_pass(error: Exception) -> bool:
    """Return whether the same message may be taken later. A `DataError` is about its values, not about the server."""
    if isinstance(error, DataError | asyncpg.DataError):
        return False
    servers = (asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.OperationalError, OSError, *redis_errors())
    return isinstance(error, (Unavailable, SQLAlchemyError, *servers))


def _check_subject(arrival: Arrival) -> None:
    if len(arrival.subject) > LONGEST:
        raise InvalidInput(f"the name of the {arrival.kind} is too long", hint=f"use at most {LONGEST} characters")


def _read_data(data: bytes, most: int) -> Any:
    _check_size(len(data), most)
    return read_message(data)


def _read_fields(fields: Mapping[bytes, bytes], most: int) -> dict[str, Any]:
    _check_size(sum(len(name) + len(value) for name, value in fields.items()), most)
    body = {_text(name): read_message(value) for name, value in fields.items()}
    require_shallow(body)
    return body


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise _TooLarge(f"a message of {size} bytes is too large", hint="send less, or raise API_BODY_MAX")


def _text(data: Any) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
