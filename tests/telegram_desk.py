"""Floodmark at work on a loopback Telegram, and the questions tests ask of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import select, update

from floodmark import Floodmark, Job
from floodmark.model.batch import Watermark
from floodmark.model.clock import Clock
from floodmark.model.execution import Execution, Lease
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events, InternalEvent
from floodmark.operations.views import Views
from floodmark.outbound.limits import Limits
from floodmark.repositories.dead_letters import DeadLetters
from floodmark.repositories.history import ExecutionHistory
from floodmark.repositories.jobs import Jobs
from floodmark.repositories.watermarks import Watermarks
from floodmark.rules.explain import explain
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.services import TelegramServices
from floodmark.sources.telegram.source import TelegramSource
from floodmark.store.tables import items, watermarks
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import take
from floodmark.testing.serving import served
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from floodmark.wiring.resources import Resources, open_resources
from floodmark.wiring.services import services_for

ENDED = ("done", "dead", "cancelled", "skipped")
SECRET = "a secret key for tests, long enough"
# Short where a test would otherwise wait for it.
QUICK: dict[str, Any] = {
    "floodmark_secret_key": SECRET,
    "backoff_base_seconds": 0.01,
    "telegram_call_timeout": timedelta(seconds=5),
    "execution_retry_base": timedelta(milliseconds=10),
    "telegram_session_linger": timedelta(seconds=5),
}


class Desk:
    """One process of an installation, and what can be asked of it."""

    def __init__(self, resources: Resources, server: LoopbackTelegram, url: str = "") -> None:
        self.resources, self._server = resources, server
        self.url = url
        given = (resources.database, resources.clock)
        self.jobs, self.history, self.views = Jobs(*given), ExecutionHistory(*given), Views(*given)
        self.limits, self.letters, self.watermarks = Limits(*given), DeadLetters(*given), Watermarks(*given)
        self.services = TelegramServices.of(services_for(resources, "telegram"))
        self.seen: list[InternalEvent] = []

    async def account(self, name: str = "reader1", **fields: Any) -> None:
        """Store the session of an account of the loopback Telegram."""
        accounts = Accounts(
            self.resources.database, self.resources.clock, Vault.of(self.resources.settings), self.resources.events
        )
        await accounts.add(name, api_id=1, api_hash="hash", session=self._server.session(name), **fields)

    async def job(self, target: str = "@harbour", **fields: Any) -> Job:
        """A job that runs when it is told to."""
        usual: dict[str, Any] = {"when": When(schedule_type=ScheduleType.EVENT)}
        return await self.jobs.add(JobSpec(source="telegram", target=target, **{**usual, **fields}))

    async def collected(self, target: str = "@harbour", **fields: Any) -> Job:
        """An account, and a job that has read the channel with it once."""
        await self.account()
        job = await self.job(target, **fields)
        await self.run(job)
        return job

    async def ask(self, job: Job, trigger: str = "schedule") -> str:
        """Ask for a run; the id of its execution."""
        forced = await self.jobs.force_run(await self.jobs.get(job.job_id), trigger=trigger)
        await self.resources.queue.put([forced.queued] if forced.queued else [])
        return forced.execution_id

    async def run(self, job: Job, trigger: str = "schedule") -> Execution:
        """Run a job and wait until that has ended."""
        return await self.reaches(await self.ask(job, trigger), *ENDED)

    async def reaches(self, execution_id: str, *states: str) -> Execution:
        """Wait until an execution is in one of these states."""

        async def check() -> Execution:
            seen = await self.history.get_execution(execution_id)
            assert seen.state in states, f"{seen.state}: {seen.reason or seen.error_message}"
            return seen

        return await eventually(check)

    async def watermark(self, job: Job) -> dict[str, Any]:
        """The row of a job's watermark."""
        query = select(watermarks).where(watermarks.c.stream == job.stream)
        async with self.resources.database.reading() as connection:
            return dict((await connection.execute(query)).mappings().one())

    async def change_watermark(self, job: Job, **columns: Any) -> None:
        """Change it as SQL typed by hand would."""
        async with self.resources.database.writing() as connection:
            await connection.execute(update(watermarks).where(watermarks.c.stream == job.stream).values(**columns))

    async def posts(self, stream: str) -> dict[int, dict[str, Any]]:
        """What is kept of a channel, by message id: data, revision, deleted, tenant and user."""
        async with self.resources.database.reading() as connection:
            rows = await connection.execute(select(items).where(items.c.stream == stream))
            found = [dict(row) for row in rows.mappings()]
        return {row["data"]["id"]: row for row in sorted(found, key=lambda row: int(row["data"]["id"]))}

    async def explain(self, job: Job) -> str:
        """Why it is not running, in one sentence."""
        leader = await self.resources.leases.holder(self.resources.settings.scheduler_leader_key)
        return explain(await self.views.load(await self.jobs.get(job.job_id), leader=leader)).sentence

    def happened(self, kind: type[InternalEvent]) -> list[Any]:
        """The events of a kind, oldest first."""
        return [event for event in self.seen if type(event) is kind]


@asynccontextmanager
async def working(
    server: LoopbackTelegram,
    database_url: str,
    *,
    listen: tuple[type[InternalEvent], ...] = (),
    clock: Clock | None = None,
    scheduler: bool = True,
    worker: bool = True,
    foreign: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Desk]:
    """Scheduler and worker in this process, as `floodmark up` starts them, until the block ends."""
    chosen = Settings(**{"database_url": database_url, "hostname": "test", **QUICK, **settings})
    chosen = chosen.with_foreign(foreign or {})
    events = Events()
    app = Floodmark(chosen, events=events, clock=clock)
    async with served(app, scheduler=scheduler, worker=worker) as (resources, url):
        desk = Desk(resources, server, url)
        for kind in listen:
            events.listen(kind, desk.seen.append)
        yield desk


@asynccontextmanager
async def opened(server: LoopbackTelegram, database_url: str, **settings: Any) -> AsyncIterator[Desk]:
    """The same stores, and nothing runs."""
    async with open_resources(
        Settings(**{"database_url": database_url, "hostname": "test", **QUICK, **settings})
    ) as resources:
        yield Desk(resources, server)


async def collect_some(desk: Desk, job: Job, *, batches: int) -> Lease:
    """Run a job here for so many batches, and then fall silent, as a worker does that is killed."""
    await desk.ask(job)
    [lease] = await take(desk.resources)
    source = TelegramSource(desk.resources.settings, desk.services)
    async with source, aclosing(reading(source, job, lease, lease.watermark)) as read:
        for _ in range(batches):
            await desk.resources.keeping.keep(lease, await anext(read))
    return lease


async def collect_all(
    desk: Desk, source: TelegramSource, job: Job, lease: Lease, since: Watermark | None
) -> Watermark | None:
    """Run a job here to its end; the watermark that it leaves."""
    async with aclosing(reading(source, job, lease, since)) as read:
        async for batch in read:
            await desk.resources.keeping.keep(lease, batch)
            since = batch.watermark or since
    return since


def reading(source: TelegramSource, job: Job, lease: Lease, since: Watermark | None) -> Any:
    target = Target(name=job.target, stream=job.stream, params=job.params, account=job.account)
    context = Context(
        execution_id=lease.execution_id,
        job_name=job.name,
        attempt=1,
        scheduled_for=lease.scheduled_for,
        trigger=lease.trigger,
        stopping=asyncio.Event(),
    )
    return source.collect(target, since, context)


def asked(server: LoopbackTelegram) -> list[str]:
    """The methods that were called, without those that come with connecting."""
    return [c.method for c in server.calls() if c.method.startswith(("messages.", "channels.", "contacts."))]


def expected(channel: Channel) -> list[int]:
    """The ids that are upstream."""
    return list(channel.ids())


def date_of(channel: Channel, message_id: int) -> datetime:
    """When a message was posted."""
    message = channel.message(message_id)
    assert message is not None
    date: datetime = message.date
    return date


def stream_of(channel: Channel, tenant: str | None = None) -> str:
    """Where the posts of a channel are kept."""
    return f"telegram:{tenant}:{channel.channel_id}" if tenant else f"telegram:{channel.channel_id}"


def a_past_day(backend: TelegramBackend) -> tuple[Channel, date]:
    """A channel with posts around a day that is over, whatever time it is now; and that day."""
    day = datetime.now(UTC).date() - timedelta(days=2)
    channel = backend.channel("pier")
    start = datetime.combine(day, time(), UTC) - timedelta(hours=5)
    channel.fill(250, start=start, every=timedelta(minutes=10), gaps=0.1)
    return channel, day
