"""Hands the resources of a process to its extensions."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from floodmark.coordination.partition import Partition
from floodmark.coordination.signals.local import LocalSignals
from floodmark.extensions.services import Services
from floodmark.model.clock import SystemClock
from floodmark.observability.events import Events
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.caller import Caller
from floodmark.outbound.limits import Limits
from floodmark.outbound.polite import PoliteHttp
from floodmark.process.lazy import LazyModule
from floodmark.process.threads import DaemonThreads
from floodmark.settings import Settings
from floodmark.store.database import Database, open_database

from .resources import Resources, call_policy, http_of, new_name

if TYPE_CHECKING:
    import structlog
else:
    # Many commands log nothing.
    structlog = LazyModule("structlog")


def services_for(resources: Resources, name: str, threads: Executor | None = None) -> Services:
    """Return the services for the extension `name`. Without `threads` it gets one thread of its own."""
    return Services(
        settings=resources.settings,
        section=resources.settings.section(name),
        clock=resources.clock,
        log=structlog.get_logger().bind(extension=name),
        events=resources.events,
        http=resources.polite,
        guarded_http=resources.http,
        caller=resources.caller,
        database=resources.database,
        redis=resources.redis,
        signals=resources.signals,
        process=resources.name,
        partition=resources.partition,
        threads=threads or DaemonThreads(1),
    )


@asynccontextmanager
async def unconnected_services(settings: Settings) -> AsyncIterator[Callable[[str], Services]]:
    """Make services for a command that needs no database; the database is opened at its first use."""
    events, clock, threads = Events(), SystemClock(), DaemonThreads(1)
    unopened = _UnopenedDatabase(settings.database_url, events)
    database, name_of_process = cast(Database, unopened), new_name(settings)
    caller = Caller(Limits(database, clock), Breakers(database, clock), call_policy(settings), clock, events)
    async with http_of(settings, events) as http:

        def services_of(name: str) -> Services:
            return Services(
                settings=settings,
                section=settings.section(name),
                clock=clock,
                log=structlog.get_logger().bind(extension=name),
                events=events,
                http=PoliteHttp(http, caller, clock, events),
                guarded_http=http,
                caller=caller,
                database=database,
                redis=None,
                signals=LocalSignals(),
                process=name_of_process,
                partition=Partition(name_of_process),
                threads=threads,
            )

        try:
            yield services_of
        finally:
            await unopened.close()


class _UnopenedDatabase:
    """Opens the database at its first use, because opening SQLite creates the file."""

    def __init__(self, url: str, events: Events) -> None:
        self._url, self._events = url, events

    @cached_property
    def _opened(self) -> Database:
        return open_database(self._url, events=self._events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    async def close(self) -> None:
        if "_opened" in self.__dict__:
            await self._opened.close()
