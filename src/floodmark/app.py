"""Floodmark for Python developers: declare collectors, then run them here or on a cluster."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from . import eventloop
from .api.health import health_app
from .api.server import HttpServer
from .clock import Clock
from .durations import parse_every
from .errors import InvalidInput
from .health import health_of
from .job import CatchUp, Overlap, Policy, Priority
from .parts import Parts, open_parts
from .roles import SchedulerRole, WorkerRole
from .settings import Settings, load
from .sources.port import Source
from .sources.python import Collector, Pick, PythonSource
from .spec import JobSpec
from .store.jobs import Jobs
from .telemetry.events import Events
from .telemetry.metrics import render
from .when import priority_of, when_of

F = TypeVar("F", bound=Callable[..., Any])


class Floodmark:
    """One application: its settings and its collectors.

    app = Floodmark()

    @app.collector(every="15m", key="id")
    async def news(since):
        async for post in fetch(newer_than=since):
            yield post

    app.run()
    """

    def __init__(
        self, settings: Settings | None = None, *, events: Events | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or load({}, folder=Path.cwd(), environ=os.environ)
        self.events = events or Events()
        self.collectors: dict[str, Collector] = {}
        self._clock, self._declared = clock, list[JobSpec]()

    def collector(
        self,
        *,
        name: str | None = None,
        every: str | timedelta | None = None,
        cron: str | None = None,
        hourly: str | None = None,
        daily: str | None = None,
        weekly: str | None = None,
        monthly: str | None = None,
        once: bool = False,
        timezone: str = "UTC",
        key: Pick = None,
        watermark: Pick = None,
        occurred_at: Pick = None,
        batch_size: int = 100,
        priority: Priority | str | int = Priority.NORMAL,
        timeout: str | timedelta | None = None,
        retry_max: int | None = None,
        overlap: Overlap | str | None = None,
        depends_on: tuple[str, ...] = (),
        limit_key: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: tuple[str, ...] = (),
    ) -> Callable[[F], F]:
        """Declare a collector and when it runs. Without any time it runs when someone says `floodmark run NAME`.

        `key` names the field (or is a function) that identifies an item; `watermark` the one that becomes `since`.
        """
        when = when_of(
            every=every,
            cron=cron,
            hourly=hourly,
            daily=daily,
            weekly=weekly,
            monthly=monthly,
            once=once,
            timezone=timezone,
        )

        def declare(function: F) -> F:
            called: str = name or function.__name__
            if called in self.collectors:
                raise InvalidInput(f"there are two collectors named {called!r}", hint="Give one of them a name=")
            self.collectors[called] = Collector(
                function=function, key=key, watermark=watermark, occurred_at=occurred_at, batch_size=batch_size
            )
            self._declared.append(
                JobSpec(
                    name=called,
                    source="python",
                    target=called,
                    when=when,
                    policy=self.policy(overlap=overlap),
                    params=params or {},
                    tags=tags,
                    priority=priority_of(priority),
                    timeout=self._timeout(timeout),
                    retry_max=self.settings.parser_retry_max if retry_max is None else retry_max,
                    depends_on=depends_on,
                    limit_key=limit_key,
                )
            )
            return function

        return declare

    def policy(
        self,
        *,
        overlap: Overlap | str | None = None,
        catch_up: CatchUp | None = None,
        jitter: timedelta = timedelta(),
    ) -> Policy:
        """The policy of a new job: what the settings say, unless said otherwise."""
        settings = self.settings
        usual = Overlap.REPLACE if settings.job_replace_existing_instance else Overlap.SKIP
        if overlap is not None and overlap not in tuple(Overlap):
            raise InvalidInput(f"{overlap!r} is not a way to overlap", hint=f"Use one of {', '.join(Overlap)}")
        return Policy(
            overlap=usual if overlap is None else Overlap(overlap),
            max_instances=settings.job_max_instances,
            coalesce=settings.job_coalesce,
            misfire_grace=settings.job_misfire_grace_time,
            catch_up=catch_up or settings.job_catch_up,
            jitter=jitter,
        )

    def _timeout(self, timeout: str | timedelta | None) -> timedelta:
        if timeout is None:
            return self.settings.scheduler_job_timeout
        return timeout if isinstance(timeout, timedelta) else parse_every(timeout)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Parts]:
        """Everything opened, and the collectors declared in code written down as jobs."""
        async with open_parts(self.settings, events=self.events, clock=self._clock) as parts:
            jobs = Jobs(parts.database, parts.clock)
            for spec in self._declared:
                await jobs.declare(spec)
            yield parts

    def sources(self, threads: ThreadPoolExecutor) -> dict[str, Source]:
        """Every source this process can collect from."""
        found: dict[str, Source] = {"python": PythonSource(self.collectors, threads)}
        for entry in entry_points(group="floodmark.sources"):
            if entry.name not in found:
                found[entry.name] = entry.load()(self.settings)
        return found

    def run(self, *, seconds: float | None = None) -> None:
        """Schedule and work in this process until Ctrl-C, SIGTERM, or for so many seconds."""
        eventloop.run(self.serve(seconds=seconds))

    async def serve(
        self,
        *,
        scheduler: bool = True,
        worker: bool = True,
        port: int | None = None,
        seconds: float | None = None,
        stop: asyncio.Event | None = None,
        ready: Callable[[Parts, HttpServer], None] | None = None,
    ) -> None:
        """Do the work of the given roles until stopped. `ready` is called once everything is up."""
        stop = stop or asyncio.Event()
        chosen = self._port(scheduler, worker) if port is None else port
        async with self.open() as parts, _stopped_by_signals(stop, seconds):
            with ThreadPoolExecutor(self.settings.max_workers, thread_name_prefix="collector") as threads:
                roles: list[SchedulerRole | WorkerRole] = (
                    [SchedulerRole(parts, is_alone=not worker)] if scheduler else []
                )
                if worker:
                    roles.append(WorkerRole(parts, self.sources(threads)))
                page = health_app(lambda: render(parts.registry), lambda: health_of(parts))
                async with HttpServer(page, self.settings.host, chosen, fallback=port is None) as server:
                    if ready is not None:
                        ready(parts, server)
                    await asyncio.gather(*(role.run(stop) for role in roles))

    def _port(self, scheduler: bool, worker: bool) -> int:
        if scheduler and worker:
            return self.settings.port
        return self.settings.scheduler_port if scheduler else self.settings.worker_port


@asynccontextmanager
async def _stopped_by_signals(stop: asyncio.Event, seconds: float | None) -> AsyncIterator[None]:
    """SIGTERM and Ctrl-C set `stop`, a second one ends the process at once: that is safe, if less polite."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, asked)
    timer = loop.call_later(seconds, stop.set) if seconds is not None else None
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        for number in signals:
            loop.remove_signal_handler(number)
