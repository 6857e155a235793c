"""An embedded Floodmark that collects the channels of the demo."""

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from msgspec import Struct

from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.api.turnstile import BESIDE_WORK
from floodmark.app import Floodmark
from floodmark.dashboard.routes import dashboard_routes
from floodmark.errors import Conflict, NotFound
from floodmark.model.execution import ENDED
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import CallRetried, ExecutionSettled, ModeChosen, RateLimited
from floodmark.operations.views import Views
from floodmark.outbound.limits import Limits
from floodmark.repositories.events import EventLog
from floodmark.rules.explain import explain
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.runtime.worker_role import WorkerRole
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.telegram.accounts import Accounts
from floodmark.testing.telegram import LoopbackTelegram, trust_loopback
from floodmark.wiring.resources import Resources

from .channels import ACCOUNTS, CHANNEL_PLANS, ChannelPlan, DemoChannels

_POLL_SECONDS = 0.5
_DRAIN_SECONDS = 60.0
_TITLE_CHARACTERS = 100


class ChannelView(Struct, frozen=True, kw_only=True):
    """One channel for display. `new`: posts since the start; `lag`: seconds for which a post has been waiting."""

    name: str
    every: timedelta
    mode: str
    posts: int
    collected: int
    new: int
    lag: float
    code: str
    sentence: str


class DemoView(Struct, frozen=True, kw_only=True):
    """The state of the demo. `arrived` are the texts of new posts since the last view, oldest first.

    `is_ending`: the channels have stopped posting, and the remaining posts are being collected.
    """

    channels: tuple[ChannelView, ...]
    arrived: tuple[str, ...]
    done: int
    waited: int
    retried: int
    is_ending: bool = False


class Summary(Struct, frozen=True, kw_only=True):
    """The result of the demo. `new` posts were collected this time, `collected` in total."""

    posts: int
    collected: int
    new: int
    duplicates: int
    missing: int
    executions: int
    waited: int
    retried: int
    took: timedelta
    doubled_sessions: int
    impatient_calls: int

    @property
    def is_right(self) -> bool:
        """Return whether every post was collected once, and no call was made during a flood wait."""
        return not (self.duplicates or self.missing or self.doubled_sessions or self.impatient_calls)


class Demo:
    """The channels and an embedded Floodmark that collects them, in one process and one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.channels = folder, DemoChannels(folder)
        self.app = Floodmark(_settings(folder))
        self._counted: Counter[str] = Counter()
        self._modes: dict[str, str] = {}
        self._before: dict[str, int] = {}
        self._position = 0
        self._is_ending = False
        self.app.internal_events.listen(ExecutionSettled, self._count_settled)
        self.app.internal_events.listen(CallRetried, lambda _: self._counted.update(retried=1))
        self.app.internal_events.listen(RateLimited, lambda _: self._counted.update(waited=1))
        self.app.internal_events.listen(ModeChosen, lambda event: self._modes.update({event.stream: event.mode}))

    def _count_settled(self, event: ExecutionSettled) -> None:
        self._counted["done"] += event.status == "done"
        self._counted["retried"] += event.error is not None

    async def run(
        self,
        stop: asyncio.Event,
        look: Callable[[DemoView], None],
        *,
        port: int | None = None,
        served: Callable[[str], None] = lambda url: None,
    ) -> Summary:
        """Collect until `stop` and pass the state to `look`; then collect the remaining posts and return the result.

        `served` is called with the address of the dashboard, which is at `port`.
        """
        began = time.monotonic()
        async with (
            self.channels.open() as server,
            self._open(server) as resources,
            _serve(resources, port) as dashboard,
        ):
            await self._prepare(resources, server)
            served(f"{dashboard.url}/")
            log = resources.repositories.events
            self._position = await log.last_position()
            self._before = {plan.name: await log.count(self._stream(plan)) for plan in CHANNEL_PLANS}
            async with self._run_roles(resources):
                while not stop.is_set():
                    look(await self._view(resources, log))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_SECONDS):
                            await stop.wait()
                self.channels.stop_posting(server)
                self._is_ending = True
                look(await self._view(resources, log))
                await self._drain(resources)
                self._is_ending = False
                look(await self._view(resources, log))
            return await self._summary(log, server, timedelta(seconds=time.monotonic() - began))

    @asynccontextmanager
    async def _open(self, server: LoopbackTelegram) -> AsyncIterator[Resources]:
        """Open the application; people who log in to an account do so at the server of the demo."""
        trust_loopback()
        self.app.settings = self.app.settings.model_copy(update={"telegram_test_server": f"127.0.0.1:{server.port}"})
        async with self.app.open() as resources:
            yield resources

    async def _prepare(self, resources: Resources, server: LoopbackTelegram) -> None:
        """Do what a user would do: `floodmark accounts add`, then `floodmark add telegram` for each channel."""
        accounts = Accounts(resources.database, resources.clock, Vault.of(resources.settings), resources.events)
        for name in ACCOUNTS:
            await accounts.add(name, api_id=1, api_hash="demo", session=server.session(name), replace=True)
        await resources.repositories.jobs.declare_all([_job(plan) for plan in CHANNEL_PLANS])

    @asynccontextmanager
    async def _run_roles(self, resources: Resources) -> AsyncIterator[None]:
        ending = asyncio.Event()
        async with self.app.opened_sources(resources) as sources:
            roles = (SchedulerRole(resources, is_alone=False), WorkerRole(resources, sources))
            await roles[1].announce()
            tasks = [asyncio.create_task(role.run(ending)) for role in roles]
            try:
                yield
            finally:
                ending.set()
                await asyncio.gather(*tasks)

    async def _view(self, resources: Resources, log: EventLog) -> DemoView:
        arrived = await self._read_arrived(log)
        leader = await resources.leases.holder(resources.settings.scheduler_leader_key)
        jobs, views = resources.repositories.jobs, Views(resources.database, resources.clock)
        channels = []
        for plan in CHANNEL_PLANS:
            code, sentence = "removed", "its job was removed"
            with suppress(NotFound):
                explanation = explain(await views.load(await jobs.get(plan.name), leader=leader))
                code, sentence = explanation.code, explanation.sentence
            collected = await log.count(self._stream(plan))
            channels.append(
                ChannelView(
                    name=plan.name,
                    every=plan.every,
                    mode=self._modes.get(f"telegram:@{plan.name}", ""),
                    posts=self.channels.count(plan.name),
                    collected=collected,
                    new=collected - self._before[plan.name],
                    lag=self.channels.waiting(plan.name, collected),
                    code=code,
                    sentence=sentence,
                )
            )
        return DemoView(
            channels=tuple(channels),
            arrived=arrived,
            done=self._counted["done"],
            waited=self._counted["waited"],
            retried=self._counted["retried"],
            is_ending=self._is_ending,
        )

    async def _read_arrived(self, log: EventLog) -> tuple[str, ...]:
        """Return the texts that were announced since the last call."""
        names = {self._stream(plan): plan.name for plan in CHANNEL_PLANS}
        titles: list[str] = []
        while page := await log.after(self._position, limit=1000):
            self._position = page[-1].position
            titles += [
                f"@{names[event.stream]} {event.key.rpartition(':')[2]}: {_title(json.loads(event.data)['post'])}"
                for event in page
            ]
        return tuple(titles)

    async def _drain(self, resources: Resources) -> None:
        """Collect each channel once more, after the execution that may be running."""
        jobs, history = resources.repositories.jobs, resources.repositories.executions
        limits = resources.repositories.limits
        forced = []
        for plan in CHANNEL_PLANS:
            # Somebody may have removed it in the dashboard.
            with suppress(NotFound):
                forced.append(await jobs.force_run(await jobs.get(plan.name)))
        await resources.queue.put([one.queued for one in forced if one.queued is not None])
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                for one in forced:
                    while (await history.get_execution(one.execution_id)).state not in ENDED:
                        await _clear_past(limits)
                        await asyncio.sleep(0.1)

    async def _summary(self, log: EventLog, server: LoopbackTelegram, took: timedelta) -> Summary:
        """Compare the posts of the channels with the stored and the announced posts."""
        missing = duplicates = collected = 0
        for plan in CHANNEL_PLANS:
            stream, channel_id = self._stream(plan), self.channels.channels[plan.name].channel_id
            kept = {key async for key in _keys(log, stream)}
            wanted = {f"{channel_id}:{number}" for number in range(1, self.channels.count(plan.name) + 1)}
            missing += len(wanted - kept)
            # The table cannot hold two items with one key, so duplicates are looked for in the events.
            announced = Counter([key async for key in _announced_keys(log, stream)])
            duplicates += sum(announced.values()) - len(announced) + len(kept - wanted)
            collected += len(kept)
        return Summary(
            posts=sum(self.channels.count(plan.name) for plan in CHANNEL_PLANS),
            collected=collected,
            new=collected - sum(self._before.values()),
            duplicates=duplicates,
            missing=missing,
            executions=self._counted["done"],
            waited=self._counted["waited"],
            retried=self._counted["retried"],
            took=took,
            doubled_sessions=len(server.duplicates),
            impatient_calls=len(server.violations),
        )

    def _stream(self, plan: ChannelPlan) -> str:
        return f"telegram:{self.channels.channels[plan.name].channel_id}"


def _serve(resources: Resources, port: int | None) -> HttpServer:
    """Return the server of the API and the dashboard, on this machine only."""
    app = create_app(resources, turns=BESIDE_WORK, pages=dashboard_routes())
    usual = resources.settings.port if port is None else port
    return HttpServer(app, port=usual, fallback=port is None, leaving=app.state.live.close)


async def _clear_past(limits: Limits) -> None:
    """Clear the reduced pace of ended rate limits, as `floodmark limits clear` does.

    At that pace the last collection would take a minute. Active limits are still honoured.
    """
    held = {row.key for row in await limits.page()}
    for row in await limits.page(with_past=True):
        if row.key not in held:
            await limits.clear(row.key)


def _title(post: Mapping[str, Any]) -> str:
    """Return one line of a post, or its kind if it has no text."""
    words = " ".join(post["text"].split())
    return words[:_TITLE_CHARACTERS] or f"[{(post.get('media') or {}).get('type', post['kind'])}]"


def _job(plan: ChannelPlan) -> JobSpec:
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=plan.every.total_seconds())
    return JobSpec(source="telegram", target=f"@{plan.name}", name=plan.name, when=when, params={"history": "all"})


async def _keys(log: EventLog, stream: str) -> AsyncIterator[str]:
    page = await log.items(stream, limit=1000)
    while page:
        for item in page:
            yield item.key
        page = await log.items(stream, page[-1].key, limit=1000)


async def _announced_keys(log: EventLog, stream: str) -> AsyncIterator[str]:
    page = await log.after(0, 1000, stream)
    while page:
        for event in page:
            yield event.key
        page = await log.after(page[-1].position, 1000, stream)


def _settings(folder: Path) -> Settings:
    """Return settings for embedded use, independent of the environment, with quick recovery from `kill -9`."""
    return Settings(
        database_url=f"sqlite:///{folder / 'floodmark.db'}",
        floodmark_home=folder,
        hostname="demo",
        scheduler_leader_ttl=timedelta(seconds=3),
        execution_lease=timedelta(seconds=5),
        execution_retry_base=timedelta(seconds=2),
        execution_retry_max=timedelta(seconds=4),
        telegram_session_ttl=timedelta(seconds=4),
        shutdown_grace=timedelta(seconds=4),
    )


@contextmanager
def demo_folder(home: Path, *, is_fresh: bool) -> Iterator[tuple[Path, TextIO]]:
    """Open the folder of the demo and its log, for one demo at a time."""
    folder = home / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    with (home / "demo.lock").open("a", encoding="utf-8") as lock:
        _lock(lock)
        if is_fresh:
            shutil.rmtree(folder)
            folder.mkdir()
        with (folder / "demo.log").open("a", encoding="utf-8") as log:
            yield folder, log


def _lock(file: TextIO) -> None:
    """Lock the file until it is closed; there is no lock on Windows."""
    with suppress(ImportError):
        import fcntl  # noqa: PLC0415 - not on Windows

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(
                f"a demo is already running in {Path(file.name).parent}",
                hint="stop it with Ctrl-C, or give this one another folder: --set FLOODMARK_HOME=/tmp/another",
            ) from None
