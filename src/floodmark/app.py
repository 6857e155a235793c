"""The API for Python programs: declare collectors, then run them here or on a cluster."""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from .errors import InvalidInput
from .model.audit import Actor
from .model.clock import Clock
from .model.durations import parse_every
from .model.job import CatchUp, Overlap, Policy, Priority
from .model.moments import Moment
from .model.spec import JobSpec
from .model.streams import StoredItem
from .observability.events import Events
from .operations.event_consumer import EventConsumer
from .operations.health import health_of, readiness_of
from .operations.local import LocalOperations
from .outbound.push import is_pushed, is_scraped, push_metrics, require_gateway
from .process import eventloop
from .process.forced_exit import Watchdog
from .process.lazy import LazyModule
from .process.tasks import end_tasks
from .process.threads import DaemonThreads
from .runtime.installation import Installation
from .runtime.mounting import MountableApp
from .settings import Settings, load
from .sources.loading import Sources, open_source
from .sources.port import Source
from .sources.python import DECLARED_AS, Collector, Pick, PythonSource, argument_names
from .sources.validation import Validation, refuse_unknown_names
from .store.port import Event
from .triggers.parsing import priority_of, when_of
from .wiring.resources import Resources, open_resources
from .wiring.services import services_for

if TYPE_CHECKING:
    import structlog
    from starlette.types import ASGIApp

    from .api.server import HttpServer
    from .model.search import SearchHit, SearchOrder
    from .runtime.api_role import ApiRole
    from .runtime.scheduler_role import SchedulerRole
    from .runtime.worker_role import WorkerRole
else:
    # Many commands log nothing.
    structlog = LazyModule("structlog")

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
        self.internal_events = events or Events()
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
        adaptive: bool = False,
        timezone: str = "UTC",
        key: Pick = None,
        watermark: Pick = None,
        occurred_at: Pick = None,
        batch_size: int = 100,
        blocking: bool = True,
        priority: Priority | str | int = Priority.NORMAL,
        timeout: str | timedelta | None = None,
        retry_max: int | None = None,
        overlap: Overlap | str | None = None,
        catch_up: CatchUp | str | None = None,
        jitter: str | timedelta | None = None,
        budget: str | None = None,
        max_delay: str | timedelta | None = None,
        weight: float = 1.0,
        stream: str | None = None,
        depends_on: tuple[str, ...] = (),
        limit_key: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: tuple[str, ...] = (),
    ) -> Callable[[F], F]:
        """Declare a collector and its schedule. Without a schedule it runs only with `floodmark run NAME`.

        `key` is the name of the field (or a function) that identifies an item; `watermark` that of the field that
        becomes `since`. With `adaptive=True` it runs when enough new items are expected, within the requests of its
        `budget` and at least every `max_delay`; `weight` says how much the delay of its items counts.

        A plain function or generator runs on a thread, because it may block. With `blocking=False` it runs in the event
        loop, which is cheaper: use it only for functions that never wait for anything.
        """
        when = when_of(
            every=every,
            cron=cron,
            hourly=hourly,
            daily=daily,
            weekly=weekly,
            monthly=monthly,
            once=once,
            adaptive=adaptive,
            timezone=timezone,
        )
        spec = JobSpec(
            source="python",
            target="",
            when=when,
            stream=stream,
            policy=self.policy(overlap=overlap, catch_up=catch_up, jitter=jitter),
            params=params or {},
            tags=tags,
            priority=priority_of(priority),
            timeout=self._timeout(timeout),
            retry_max=self.settings.parser_retry_max if retry_max is None else retry_max,
            depends_on=depends_on,
            limit_key=limit_key,
            budget=budget,
            max_delay=_parse_duration(max_delay),
            weight=weight,
        )

        def declare(function: F) -> F:
            made = Collector(
                function=function,
                key=key,
                watermark=watermark,
                occurred_at=occurred_at,
                batch_size=batch_size,
                blocking=blocking,
            )
            self._declare(name or function.__name__, made, spec)
            return function

        return declare

    def _declare(self, name: str, collector: Collector, spec: JobSpec) -> None:
        if name in self.collectors:
            raise InvalidInput(f"there are two collectors named {name!r}", hint="Give one of them a name=")
        refuse_unknown_names(spec.params, argument_names(collector.function), f"the collector {name!r}")
        self.collectors[name] = collector
        if inspect.isfunction(collector.function):
            # So that `floodmark add python module:function` reads its items the same way.
            setattr(collector.function, DECLARED_AS, collector)
        self._declared.append(replace(spec, name=name, target=name))

    def policy(
        self,
        *,
        overlap: Overlap | str | None = None,
        catch_up: CatchUp | str | None = None,
        jitter: str | timedelta | None = None,
    ) -> Policy:
        """Return the policy of a new job: the given values, otherwise those of the settings."""
        usual = self.settings.default_policy()
        if overlap is not None and overlap not in tuple(Overlap):
            raise InvalidInput(f"{overlap!r} is not an overlap policy", hint=f"Use one of {', '.join(Overlap)}")
        if catch_up is not None and catch_up not in tuple(CatchUp):
            raise InvalidInput(f"{catch_up!r} is not a catch-up policy", hint=f"Use one of {', '.join(CatchUp)}")
        return replace(
            usual,
            overlap=usual.overlap if overlap is None else Overlap(overlap),
            catch_up=usual.catch_up if catch_up is None else CatchUp(catch_up),
            jitter=_parse_duration(jitter) or timedelta(),
        )

    def _timeout(self, timeout: str | timedelta | None) -> timedelta:
        given = _parse_duration(timeout)
        return self.settings.scheduler_job_timeout if given is None else given

    @asynccontextmanager
    async def open(self, *, waits: bool = False) -> AsyncIterator[Resources]:
        """Open the application and store the declared collectors as jobs. `waits`: wait for the database."""
        async with open_resources(
            self.settings, events=self.internal_events, clock=self._clock, validation=self.validation, waits=waits
        ) as resources:
            await resources.repositories.jobs.declare_all(_sort_by_dependency(self._declared))
            yield resources

    @property
    def validation(self) -> Validation:
        """Return the validation of jobs and params by the sources of this application; it imports no modules."""
        return Validation(lambda: self.sources(imports=False))

    def sources(self, *, imports: bool = True) -> Sources:
        """Return every installed source; they can check jobs. `opened_sources` can also collect."""
        found = Sources(self.settings)
        python = found["python"]
        assert isinstance(python, PythonSource)
        python.declare(self.collectors, imports=imports)
        return found

    @asynccontextmanager
    async def opened_sources(self, resources: Resources) -> AsyncIterator[Sources]:
        """Open every source with the services of this process; close them at the end."""
        sources, threads = self.sources(), DaemonThreads(self.settings.max_workers)
        async with AsyncExitStack() as stack:
            for name, source in sources.items():
                await open_source(source, services_for(resources, name, threads), stack)
            yield sources

    async def search(
        self,
        query: str,
        *,
        stream: str | Sequence[str] | None = None,
        tag: str | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: "SearchOrder" = "newest",
    ) -> "AsyncIterator[SearchHit]":
        """Yield collected items that match a query, newest or best first.

        async for hit in app.search("fire OR smoke", stream="telegram:*"):
            print(hit.stream, hit.key)
        """
        async with self._operations() as operations:
            async for hit in operations.each_hit(
                query, stream=stream, tag=tag, source=source, since=since, until=until, order=order
            ):
                yield hit

    async def items(
        self,
        *streams: str,
        since: Moment | None = None,
        until: Moment | None = None,
        revisions: bool = False,
        deleted: bool = False,
    ) -> AsyncGenerator[StoredItem, None]:
        """Yield the stored items of streams, jobs or patterns such as `telegram:*`; of all streams if none is named.

        `since` and `until` are times, days (the last one is included), durations such as `"7d"`, or texts for one of
        them. `revisions` includes earlier revisions, `deleted` items that were deleted at their source.
        """
        async with self._operations() as operations:
            async for item in operations.read_items(
                *streams, since=since, until=until, revisions=revisions, deleted=deleted
            ):
                yield item

    async def events(
        self,
        *,
        after: int | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield events in order; with `follow` wait for new ones.

        They start after the position `after`, or with the oldest stored event. With the name of a `consumer` its stored
        position counts instead, if it has one: an event is processed when the next one is requested, and after a crash
        the last events are read again.
        """
        async with self._operations() as operations:
            reader = EventConsumer(operations, consumer, after=after, stream=stream, follow=follow)
            await reader.open()
            async with aclosing(reader.read(commits=consumer is not None)) as found:
                async for event in found:
                    yield event

    @asynccontextmanager
    async def consumer(
        self, name: str, *, after: int | None = None, stream: str | None = None, follow: bool = False
    ) -> AsyncIterator[EventConsumer]:
        """Read events under a name, and store its position when `commit` is called; see `EventConsumer`."""
        async with (
            self._operations() as operations,
            operations.consumer(name, after=after, stream=stream, follow=follow) as events,
        ):
            yield events

    @asynccontextmanager
    async def _operations(self) -> AsyncIterator[LocalOperations]:
        """Open the store for reading; the declared collectors are not stored as jobs."""
        async with open_resources(
            self.settings, events=self.internal_events, clock=self._clock, validation=self.validation
        ) as resources:
            yield LocalOperations(resources, Actor(who="application", via="python"))

    def run(self, *, seconds: float | None = None) -> None:
        """Schedule and run jobs in this process until Ctrl-C, SIGTERM, or for this many seconds, and log events."""
        from .observability.logs import LogListener, configure  # noqa: PLC0415 - only a process that stays logs

        configure(self.settings.log_level, self.settings.log_format)
        LogListener(structlog.get_logger()).attach(self.internal_events)
        eventloop.run(self.serve(seconds=seconds))

    async def serve(
        self,
        *,
        scheduler: bool = True,
        worker: bool = True,
        port: int | None = None,
        seconds: float | None = None,
        stop: asyncio.Event | None = None,
        ready: "Callable[[Resources, HttpServer], None] | None" = None,
    ) -> None:
        """Run the given roles until stopped. `ready` is called once everything has started.

        Both roles, or none, also serve the API; a single role serves only `/health` and `/metrics`.
        """
        stop, watchdog = stop or asyncio.Event(), Watchdog()
        try:
            async with (
                self._opened_roles(scheduler=scheduler, worker=worker) as (resources, roles, installation),
                _stop_on_signals(stop, seconds, lambda: watchdog.arm(self.settings.shutdown_grace)),
            ):
                serving = await self._server(resources, port, scheduler=scheduler, worker=worker)
                async with serving as server, installation.guard_prefix(stop):
                    for role in roles:
                        await role.announce()
                    if ready is not None:
                        ready(resources, server)
                    tasks = [asyncio.create_task(role.run(stop)) for role in roles]
                    try:
                        await asyncio.gather(*tasks)
                    finally:
                        # If one has failed, the others end before the database is closed that they use.
                        await end_tasks(*tasks)
        finally:
            watchdog.disarm()

    def asgi(self, *, scheduler: bool = True, worker: bool = True) -> MountableApp:
        """Return the dashboard and the API as an ASGI application, to mount into another one or to serve directly.

        It opens the database and runs the given roles while its `running()` block runs.
        """
        return MountableApp(lambda: self._mounted(scheduler=scheduler, worker=worker))

    @asynccontextmanager
    async def _mounted(self, *, scheduler: bool, worker: bool) -> "AsyncIterator[ASGIApp]":
        from .api.app import create_app, lifespan_of  # noqa: PLC0415 - slow to import
        from .api.turnstile import ALONE, BESIDE_WORK  # noqa: PLC0415
        from .dashboard.routes import dashboard_routes  # noqa: PLC0415

        if not structlog.is_configured():
            # By default structlog shows local variables with an error, and they may be secrets.
            from .observability.logs import configure  # noqa: PLC0415 - only a process that stays logs

            configure(self.settings.log_level, self.settings.log_format)
        stop = asyncio.Event()
        async with self._opened_roles(scheduler=scheduler, worker=worker) as (resources, roles, installation):
            app = create_app(resources, turns=BESIDE_WORK if scheduler or worker else ALONE, pages=dashboard_routes())
            async with installation.guard_prefix(stop), lifespan_of(app):
                for role in roles:
                    await role.announce()
                tasks = [asyncio.create_task(_log_failure(role.run(stop))) for role in roles]
                try:
                    yield app
                finally:
                    stop.set()
                    app.state.live.close()
                    await asyncio.gather(*tasks)

    @asynccontextmanager
    async def _opened_roles(
        self, *, scheduler: bool, worker: bool
    ) -> "AsyncIterator[tuple[Resources, list[SchedulerRole | WorkerRole | ApiRole], Installation]]":
        """Open the application for these roles; the caller runs them."""
        if scheduler and not worker and not self.settings.scheduler_v2_enabled:
            raise InvalidInput(
                "a scheduler has nothing to do: SCHEDULER_V2_ENABLED is false", hint="set SCHEDULER_V2_ENABLED=true"
            )
        if is_pushed(self.settings):
            require_gateway(self.settings)
        async with (
            self.open(waits=True) as resources,
            push_metrics(self.settings, resources.name, resources.metrics.render, resources.events),
            self.opened_sources(resources) as sources,
        ):
            installation = Installation(
                resources.redis, resources.repositories.fleet, resources.events, resources.settings
            )
            await installation.claim()
            if resources.tracing is not None:
                resources.tracing.prepare()
            fires = scheduler and self.settings.scheduler_v2_enabled
            if scheduler and not fires:
                structlog.get_logger().warning("schedules are not fired: SCHEDULER_V2_ENABLED is false")
            yield resources, _make_roles(resources, sources, scheduler=fires, worker=worker), installation

    async def _server(self, resources: Resources, port: int | None, *, scheduler: bool, worker: bool) -> "HttpServer":
        # Slow to import, and most commands that import this module serve nothing.
        from .api.health import health_app  # noqa: PLC0415
        from .api.server import HttpServer  # noqa: PLC0415

        host = self.settings.host
        name = "port" if scheduler == worker else "scheduler_port" if scheduler else "worker_port"
        # A port that was asked for is never replaced: clients would connect to another program.
        is_any = port is None and self.settings.origin(name) == "default"
        usual: int = getattr(self.settings, name)
        if scheduler != worker:
            metrics = resources.metrics.render if is_scraped(self.settings) else None
            page = health_app(metrics, lambda: health_of(resources), lambda: readiness_of(resources))
            return HttpServer(page, host, usual if port is None else port, fallback=is_any)
        from .api.access import require_token_to_listen  # noqa: PLC0415
        from .api.app import create_app  # noqa: PLC0415
        from .api.turnstile import ALONE, BESIDE_WORK  # noqa: PLC0415
        from .dashboard.routes import dashboard_routes  # noqa: PLC0415
        from .runtime.page_server import OffloadRefreshes, PageServer  # noqa: PLC0415

        await require_token_to_listen(resources, host)
        # Both roles, or none: then nothing else is done here.
        app = create_app(resources, turns=BESIDE_WORK if worker else ALONE, pages=dashboard_routes())
        served = OffloadRefreshes(app, PageServer(resources.name, self.settings, app.state.live)) if worker else app
        return HttpServer(served, host, usual if port is None else port, fallback=is_any, leaving=app.state.live.close)


async def _log_failure(work: Awaitable[None]) -> None:
    """Wait for the work of a role. The application that mounts us goes on without it."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - logged; health and dashboard show that the role is gone
        structlog.get_logger().exception("a role has failed", error=type(error).__name__)


def _parse_duration(given: str | timedelta | None) -> timedelta | None:
    return parse_every(given) if isinstance(given, str) else given


def _make_roles(
    resources: Resources, sources: Mapping[str, Source], *, scheduler: bool, worker: bool
) -> "list[SchedulerRole | WorkerRole | ApiRole]":
    """Return the roles of the process; without scheduler and worker it serves the API."""
    from .runtime.api_role import ApiRole  # noqa: PLC0415 - only a process that stays needs a role
    from .runtime.scheduler_role import SchedulerRole  # noqa: PLC0415
    from .runtime.worker_role import WorkerRole  # noqa: PLC0415

    roles: list[SchedulerRole | WorkerRole | ApiRole] = []
    if scheduler:
        roles.append(SchedulerRole(resources, is_alone=not worker))
    if worker:
        roles.append(WorkerRole(resources, sources))
    return roles or [ApiRole(resources)]


def _sort_by_dependency(declared: Sequence[JobSpec]) -> list[JobSpec]:
    """Return the collectors with dependencies first, independent of their order in the code."""
    by_name = {spec.name: spec for spec in declared}
    waits_for = {name: [other for other in spec.depends_on if other in by_name] for name, spec in by_name.items()}
    try:
        return [by_name[name] for name in TopologicalSorter(waits_for).static_order()]
    except CycleError as error:
        cycle = " -> ".join(str(name) for name in error.args[1])
        raise InvalidInput(
            f"collectors depend on each other in a cycle: {cycle}", hint="Remove one of these dependencies"
        ) from error


@asynccontextmanager
async def _stop_on_signals(
    stop: asyncio.Event, seconds: float | None, stopping: Callable[[], object]
) -> AsyncIterator[None]:
    with eventloop.stopped_by_signals(stop, seconds, stopping=stopping):
        yield
