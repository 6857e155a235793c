"""Supervises several worker processes: starts them, restarts them when they die, and stops them together.

Each is `floodmark worker --processes 1`. Its metrics are in files of a shared temporary folder
(PROMETHEUS_MULTIPROC_DIR), and /metrics of the supervisor shows their sums.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client.multiprocess import mark_process_dead

from floodmark.api.health import health_app
from floodmark.api.server import HttpServer
from floodmark.coordination.service import attempt
from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.observability.metrics import render_sum
from floodmark.operations.health import health_of, readiness_of
from floodmark.outbound.push import is_pushed, is_scraped, push_metrics, require_gateway
from floodmark.process.eventloop import stopped_by_signals
from floodmark.process.forced_exit import MARGIN, Watchdog
from floodmark.rules.backoff import backoff
from floodmark.settings import Settings
from floodmark.wiring.resources import PROCESS_NAME, Resources, new_name, open_resources

from .installation import Installation
from .scheduler_role import death_watch

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# After a process that lived this long, the next pause is short again.
_HEALTHY_SECONDS = 60.0
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)
# A process is killed this long after its own grace; it should have ended by itself by then.
_PATIENCE = MARGIN + timedelta(seconds=1)


class Supervisor:
    """Keeps `count` processes of `command` running."""

    def __init__(self, settings: Settings, command: Sequence[str], count: int) -> None:
        if settings.database_url.startswith("sqlite:"):
            raise InvalidInput(
                f"SQLite is for one worker process, not for {count}",
                hint="run more executions in one process with: floodmark worker --slots 20; "
                "or use PostgreSQL for more processes: --set DATABASE_URL=postgresql://...",
            )
        if is_pushed(settings):
            require_gateway(settings)
        self._settings, self._command, self._count = settings, command, count
        self._stop, self._watchdog = asyncio.Event(), Watchdog()
        self._grace = settings.shutdown_grace + _PATIENCE
        self._pids: dict[int, int] = {}
        self.restarts = 0

    async def run(
        self,
        *,
        port: int | None = None,
        seconds: float | None = None,
        ready: Callable[[HttpServer], None] | None = None,
    ) -> None:
        """Run until SIGTERM or Ctrl-C; return when the last process has ended."""
        with tempfile.TemporaryDirectory(prefix="floodmark-metrics-") as folder:
            os.environ[FOLDER] = folder
            try:
                async with open_resources(self._settings, waits=True) as resources:
                    await Installation(
                        resources.redis, resources.repositories.fleet, resources.events, self._settings
                    ).claim()
                    await self._serve(resources, port, seconds, ready)
            finally:
                self._watchdog.disarm()
                del os.environ[FOLDER]

    async def _serve(
        self, resources: Resources, port: int | None, seconds: float | None, ready: Callable[[HttpServer], None] | None
    ) -> None:
        def metrics() -> bytes:
            return render_sum(resources.registry)

        shown = metrics if is_scraped(self._settings) else None
        page = health_app(shown, lambda: self._health(resources), lambda: readiness_of(resources))
        chosen = self._settings.worker_port if port is None else port
        # As for a single process: only the default port may be replaced by a free one.
        is_any = port is None and self._settings.origin("worker_port") == "default"
        async with (
            push_metrics(self._settings, resources.name, metrics, resources.events),
            HttpServer(page, self._settings.host, chosen, fallback=is_any) as server,
        ):
            with stopped_by_signals(self._stop, seconds, stopping=lambda: self._watchdog.arm(self._grace)):
                if ready is not None:
                    ready(server)
                await asyncio.gather(*(self._keep_running(resources, place) for place in range(self._count)))

    async def _keep_running(self, resources: Resources, place: int) -> None:
        deaths, log = 0, structlog.get_logger()
        while not self._stop.is_set():
            began = time.monotonic()
            name = new_name(self._settings)
            code = await self._run_once(place, name)
            if code:
                # Other processes would notice it too, but later.
                await attempt(self._report(resources, name), resources.events)
            if self._stop.is_set():
                return
            was_healthy = time.monotonic() - began > _HEALTHY_SECONDS
            deaths = 1 if was_healthy else deaths + 1
            pause = backoff(deaths, base=_PAUSE, longest=_LONGEST_PAUSE).total_seconds()
            self.restarts += 1
            log.error("worker process died", place=place, code=code, again_in_seconds=round(pause, 3))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()

    async def _report(self, resources: Resources, name: str) -> None:
        """Hand on what a dead process held, and wake the leader to queue it again."""
        await death_watch(resources).hand_on(name, is_certain=True)
        await resources.signals.notify(Topic.WORKERS)

    async def _run_once(self, place: int, name: str) -> int:
        """Run one process with this name to its end; return its exit code."""
        # In its own group: Ctrl-C reaches only the supervisor, which stops each process once.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, PROCESS_NAME: name},
        )
        self._pids[place] = process.pid
        ended, stopped = asyncio.create_task(process.wait()), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._end(process, ended)
            return await ended
        finally:
            stopped.cancel()
            del self._pids[place]
            if process.returncode is None:
                process.kill()
                await process.wait()
            # Removes its gauges; its counters stay.
            mark_process_dead(process.pid)  # type: ignore[no-untyped-call]  # the library leaves it unannotated

    async def _end(self, process: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
        process.terminate()
        grace = self._grace.total_seconds()
        await asyncio.wait({ended}, timeout=grace)
        if not ended.done():
            structlog.get_logger().error("worker process did not leave, killing it", pid=process.pid, grace=grace)
            process.kill()

    async def _health(self, resources: Resources) -> dict[str, Any]:
        report = await health_of(resources)
        if report["status"] == "ok" and len(self._pids) < self._count:
            report["status"] = "degraded"
        return report | {"processes": sorted(self._pids.values()), "restarts": self.restarts}
