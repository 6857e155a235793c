"""A loopback Telegram, and Floodmark processes that collect its channels while things are taken from them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import redis

from chaos.fleet import Fleet, Probe, eventually
from chaos.invariants import check_events, check_health, prepare
from chaos.process import Order
from floodmark import Job
from floodmark.model.posts import PARSED
from floodmark.testing.telegram import Channel, LoopbackTelegram
from telegram_desk import SECRET, Desk, opened, stream_of

HISTORY = "messages.getHistory"
PREFIX = "town"
EVERY = timedelta(seconds=2)

SETTINGS: dict[str, Any] = {
    "floodmark_secret_key": SECRET,
    "scheduler_queue_prefix": PREFIX,
    "execution_lease": "1",
    "scheduler_leader_ttl": "1",
    # A process that gets no CPU for this long would lose its session.
    "telegram_session_ttl": "6",
    "telegram_session_linger": "0.5",
    "telegram_call_timeout": "10",
    "execution_retry_base": "0.2",
    "execution_retry_max": "1",
    "backoff_base_seconds": 0.1,
    # So often killed for no fault of its own, an execution must not be taken for what kills its workers.
    "execution_rescue_max": 1000,
}

_AT_WORK = """
SELECT DISTINCT e.worker FROM executions e JOIN accounts a ON a.holder = e.worker WHERE e.state = 'running'
"""
_UNENDED = "SELECT job_name, state, error_message FROM executions WHERE state NOT IN ('done', 'skipped')"


class Town:
    """Processes, the Telegram they read, and the store they fill."""

    def __init__(self, fleet: Fleet, server: LoopbackTelegram, desk: Desk, settings: dict[str, Any]) -> None:
        self.fleet, self.server, self.desk, self._settings = fleet, server, desk, settings
        self.probe = Probe(settings["database_url"])

    @property
    def channels(self) -> list[Channel]:
        return list(self.server.backend.channels.values())

    async def start(self, *names: str, failpoint: str = "") -> None:
        """Processes called `up...`, `worker...` or `scheduler...`; they are ready when this returns."""
        for name in names:
            self.fleet.start(
                Order(
                    name=name,
                    settings=self._settings,
                    folder=str(self.fleet.folder),
                    scheduler=not name.startswith("worker"),
                    worker=not name.startswith("scheduler"),
                    failpoint=failpoint,
                )
            )
        await self.fleet.ready(*names)

    async def at_work(self) -> list[str]:
        """The living processes that read a channel at this moment, with a session of their own."""
        working = {row[0] for row in await self.probe.rows(_AT_WORK)}
        notes = {note["worker"]: note for note in self.fleet.happened("ready") if note["worker"] in working}
        living = self.fleet.children
        return sorted(note["process"] for note in notes.values() if living.get(note["process"]) == note["child"])

    async def left_running(self, child: int) -> int:
        """How many executions a process that is gone has not come to the end of."""
        [note] = self.fleet.happened("ready", child=child)
        unfinished = f"SELECT count(*) FROM executions WHERE state = 'running' AND worker = '{note['worker']}'"
        return int(await self.probe.value(unfinished))

    async def stored(self) -> int:
        return int(await self.probe.value("SELECT count(*) FROM items"))

    async def stores(self, count: int) -> None:
        """Wait until so many messages are stored."""
        await eventually(self.stored, lambda stored: stored >= count, seconds=180, what=f"{count} messages stored")

    async def reaches(self, execution_id: str, state: str, *, seconds: float = 180) -> None:
        """Wait until an execution is in this state."""
        query = f"SELECT state, coalesce(error_message, reason) FROM executions WHERE execution_id = '{execution_id}'"

        async def look() -> tuple[Any, ...]:
            [row] = await self.probe.rows(query)
            return row

        await eventually(look, lambda seen: seen[0] == state, seconds=seconds, what=f"{execution_id} is {state}")

    async def comes_to_rest(self) -> None:
        """Wait until every execution has ended and every event was sent."""
        for what in ("executions WHERE completed_at IS NULL", "outbox WHERE position IS NULL"):

            async def left(what: str = what) -> int:
                return int(await self.probe.value(f"SELECT count(*) FROM {what}"))

            await eventually(left, lambda count: count == 0, seconds=180, what=f"nothing in {what}")

    async def collected(self, channels: Sequence[Channel] | None = None, *, seconds: float = 180) -> None:
        """Wait until everything of these channels is stored."""
        wanted = {stream_of(channel): len(channel.ids()) for channel in channels or self.channels}

        async def missing() -> dict[str, int]:
            rows = dict(await self.probe.rows("SELECT stream, count(*) FROM items GROUP BY 1"))
            return {stream: count - rows.get(stream, 0) for stream, count in wanted.items()}

        await eventually(
            missing, lambda left: not any(left.values()), seconds=seconds, what=f"{wanted} stored; missing"
        )

    async def check(self) -> None:
        """Everything was collected, no execution failed, and there is nothing to mend."""
        assert await self.probe.rows(_UNENDED) == []
        expected = {stream_of(channel): keys_of(channel) for channel in self.channels}
        await self.check_posts(expected)
        await check_health({stream: set(keys) for stream, keys in expected.items()}, self._settings)
        if self._settings.get("redis_url"):
            self._check_published(sum(map(len, expected.values())))

    async def check_posts(self, expected: Mapping[str, list[str]]) -> None:
        """These and no others are stored, each once and with one event, in the order of its channel."""
        streams = {row[0] for row in await self.probe.rows("SELECT DISTINCT stream FROM items")}
        assert streams == set(expected)
        for stream, keys in expected.items():
            rows = await self.probe.rows(f"SELECT key, revision FROM items WHERE stream = '{stream}'")
            assert len(rows) == len(keys), f"{stream} holds {len(rows)} items instead of {len(keys)}"
            assert {key for key, _ in rows} == set(keys), stream
            assert {revision for _, revision in rows} <= {1}, stream
            told = await self.probe.rows(f"SELECT key FROM outbox WHERE stream = '{stream}' ORDER BY position")
            assert [row[0] for row in told] == keys, f"events of {stream} are missing, doubled or out of order"
        assert await self.probe.value("SELECT count(*) FROM item_revisions") == 0
        await check_events(self.probe)

    def _check_published(self, count: int) -> None:
        """Readers of the Redis stream are told of each post; told again only under the same id."""
        with redis.Redis.from_url(self._settings["redis_url"], decode_responses=True) as client:
            entries = [fields for _, fields in client.xrange(f"{PREFIX}:events") or ()]
        assert {entry["type"] for entry in entries} == {PARSED}
        told = {entry["event_id"]: (entry["stream"], entry["key"]) for entry in entries}
        assert len(told) == len(set(told.values())) == count


@asynccontextmanager
async def town_on(
    fleet: Fleet, server: LoopbackTelegram, database_url: str, redis_url: str | None = None, **settings: Any
) -> AsyncIterator[Town]:
    """Everything set up, the accounts of the backend stored, and nothing running yet."""
    chosen = {**SETTINGS, **settings, "database_url": database_url, "redis_url": redis_url}
    await prepare(database_url)
    async with opened(server, **chosen) as desk:
        for name in server.backend.accounts:
            await desk.account(name)
        yield Town(fleet, server, desk, chosen)
        fleet.stop_all()


def keys_of(channel: Channel) -> list[str]:
    """The keys of all its messages, oldest first."""
    return [f"{channel.channel_id}:{message_id}" for message_id in channel.ids()]


async def add_job(town: Town, channel: Channel, **fields: Any) -> Job:
    """All of a channel's history; runs when it is asked to, unless told otherwise."""
    return await town.desk.job(f"@{channel.username}", params={"history": "all"}, **fields)
