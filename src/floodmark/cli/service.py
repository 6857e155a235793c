"""How the roles are started from a command line: logs, a word of welcome, and a clean end."""

import asyncio
import os
import sys

import structlog

from floodmark.api.server import HttpServer
from floodmark.app import Floodmark
from floodmark.model.job import Job
from floodmark.observability.logs import LogListener, configure
from floodmark.outbound.push import is_pushed, is_scraped, require_gateway
from floodmark.process.eventloop import run
from floodmark.runtime.processes import Supervisor
from floodmark.security.masking import mask_text
from floodmark.settings import Settings
from floodmark.sources.telegram.hints import HOW_TO_ADD
from floodmark.sources.telegram.services import TelegramServices
from floodmark.sources.telegram.source import explain_missing_account
from floodmark.version import __version__
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for

from .root import Desk
from .showing import facts

_GLANCE_SECONDS = 1.0


def serve(
    desk: Desk, *, port: int | None, seconds: float | None, scheduler: bool, worker: bool, parent: int | None
) -> None:
    """Do the work of these roles until told to stop."""
    app = desk.application()
    configure(app.settings.log_level, app.settings.log_format)
    LogListener(structlog.get_logger()).attach(app.events)
    roles = {(True, True): "up", (True, False): "scheduler", (False, True): "worker", (False, False): "api"}
    role = roles[scheduler, worker]
    run(_served(desk, app, role, port=port, seconds=seconds, parent=parent))


def supervise(desk: Desk, processes: int, *, port: int | None, seconds: float | None) -> None:
    """Keep so many worker processes running until told to stop."""
    settings = desk.application().settings
    configure(settings.log_level, settings.log_format)
    # The supervisor shows and pushes the sum of what its processes count.
    overrides = {**desk.overrides, "METRICS_MODE": "scrape"}
    options = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "floodmark", "--quiet", *options, "worker", "--processes", "1", "--port", "0"]
    supervisor = Supervisor(settings, [*command, "--parent", str(os.getpid())], processes)
    run(supervisor.run(port=port, seconds=seconds, ready=lambda server: _welcome(desk, settings, "worker", server)))


async def _served(
    desk: Desk, app: Floodmark, role: str, *, port: int | None, seconds: float | None, parent: int | None
) -> None:
    stop = asyncio.Event()
    greeting: list[asyncio.Task[None]] = []

    def ready(resources: Resources, server: HttpServer) -> None:
        greeting.append(asyncio.create_task(_greet(desk, resources, role, server)))

    watching = asyncio.create_task(_leave_with(parent, stop)) if parent is not None else None
    try:
        await app.serve(
            scheduler=role in ("up", "scheduler"),
            worker=role in ("up", "worker"),
            port=port,
            seconds=seconds,
            stop=stop,
            ready=ready,
        )
    finally:
        await asyncio.gather(*greeting)
        if watching is not None:
            watching.cancel()
    if not desk.is_quiet:
        desk.out.print("Stopped.", highlight=False)


async def _leave_with(parent: int, stop: asyncio.Event) -> None:
    """A worker process whose supervisor was killed must not stay behind."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing tells us but the process table
        await asyncio.sleep(_GLANCE_SECONDS)
    stop.set()


async def _greet(desk: Desk, resources: Resources, role: str, server: HttpServer) -> None:
    _welcome(desk, resources.settings, role, server)
    if role != "worker" and not await _some_job(resources):
        desk.note("No jobs yet. Add one: floodmark add python package.module:function --every 15m")
    telegram = TelegramServices.of(services_for(resources, "telegram"))
    missing = await explain_missing_account(telegram) if role in ("up", "worker") else None
    if missing is not None:
        desk.note(f"[yellow]{missing}.[/] {HOW_TO_ADD}")


async def _some_job(resources: Resources) -> list[Job]:
    return await resources.repositories.jobs.find(limit=1)


def _welcome(desk: Desk, settings: Settings, role: str, server: HttpServer) -> None:
    what = {
        "up": "Floodmark",
        "scheduler": "A scheduler of Floodmark",
        "worker": "A worker of Floodmark",
        "api": "The API of Floodmark",
    }[role]
    desk.note(f"[bold]{what} {__version__} is up.[/] Stop it with Ctrl-C.")
    desk.note(
        facts(
            [
                ("  database", mask_text(settings.database_url)),
                ("  redis", mask_text(settings.redis) if settings.redis else "none, the database is the queue"),
                ("  collectors", settings.floodmark_app),
                ("  api", f"{server.url}/api/v2" if role in ("up", "api") else None),
                ("  health", f"{server.url}/health"),
                ("  metrics", f"{server.url}/metrics" if is_scraped(settings) else None),
                ("  pushed to", mask_text(require_gateway(settings)) if is_pushed(settings) else None),
            ]
        )
    )
