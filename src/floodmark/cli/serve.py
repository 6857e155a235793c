"""Run roles from the command line: logs, a start message, and a clean stop."""

import asyncio
import os
import sys

import structlog

from floodmark.api.server import HttpServer
from floodmark.app import Floodmark
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

from .output import facts
from .root import CliContext

_POLL_SECONDS = 1.0


def serve(
    cli: CliContext, *, port: int | None, seconds: float | None, scheduler: bool, worker: bool, parent: int | None
) -> None:
    """Run these roles until they are stopped."""
    app = cli.application()
    configure(app.settings.log_level, app.settings.log_format)
    LogListener(structlog.get_logger()).attach(app.internal_events)
    if app.settings.telegram_test_server is not None:
        from floodmark.testing.telegram import trust_loopback  # noqa: PLC0415 - for a test server only

        trust_loopback()
    roles = {(True, True): "up", (True, False): "scheduler", (False, True): "worker", (False, False): "api"}
    role = roles[scheduler, worker]
    run(_serve_role(cli, app, role, port=port, seconds=seconds, parent=parent))


def supervise(cli: CliContext, processes: int, *, port: int | None, seconds: float | None) -> None:
    """Keep this number of worker processes running until it is stopped."""
    settings = cli.application().settings
    configure(settings.log_level, settings.log_format)
    # The supervisor exports the sum of the metrics of its processes.
    overrides = {**cli.overrides, "METRICS_MODE": "scrape"}
    options = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "floodmark", "--quiet", *options, "worker", "--processes", "1", "--port", "0"]
    supervisor = Supervisor(settings, [*command, "--parent", str(os.getpid())], processes)
    run(
        supervisor.run(
            port=port, seconds=seconds, ready=lambda server: _print_addresses(cli, settings, "worker", server)
        )
    )


async def _serve_role(
    cli: CliContext, app: Floodmark, role: str, *, port: int | None, seconds: float | None, parent: int | None
) -> None:
    stop = asyncio.Event()
    greeting: list[asyncio.Task[None]] = []

    def ready(resources: Resources, server: HttpServer) -> None:
        greeting.append(asyncio.create_task(_print_start(cli, resources, role, server)))

    watching = asyncio.create_task(_stop_with_parent(parent, stop)) if parent is not None else None
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
    if not cli.is_quiet:
        cli.out.print("Stopped.")


async def _stop_with_parent(parent: int, stop: asyncio.Event) -> None:
    """Stop the worker if its supervisor was killed."""
    while os.getppid() == parent:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(_POLL_SECONDS)
    stop.set()


async def _print_start(cli: CliContext, resources: Resources, role: str, server: HttpServer) -> None:
    _print_addresses(cli, resources.settings, role, server)
    if role != "worker" and not await resources.repositories.jobs.find(limit=1):
        cli.note("No jobs yet. Add one: floodmark add python package.module:function --every 15m")
    telegram = TelegramServices.of(services_for(resources, "telegram"))
    missing = await explain_missing_account(telegram) if role in ("up", "worker") else None
    if missing is not None:
        cli.note(f"[yellow]{missing}.[/] {HOW_TO_ADD}")


def _print_addresses(cli: CliContext, settings: Settings, role: str, server: HttpServer) -> None:
    what = {
        "up": "Floodmark",
        "scheduler": "Floodmark scheduler",
        "worker": "Floodmark worker",
        "api": "Floodmark API",
    }[role]
    cli.note(f"[bold]{what} {__version__} is up.[/] Press Ctrl-C to stop.")
    cli.note(
        facts(
            [
                ("  database", mask_text(settings.database_url)),
                ("  redis", mask_text(settings.redis) if settings.redis else "none, the database is the queue"),
                ("  collectors", settings.floodmark_app),
                ("  dashboard", f"{server.url}/" if role in ("up", "api") else None),
                ("  api", f"{server.url}/api/v2" if role in ("up", "api") else None),
                ("  health", f"{server.url}/health"),
                ("  metrics", f"{server.url}/metrics" if is_scraped(settings) else None),
                ("  pushed to", mask_text(require_gateway(settings)) if is_pushed(settings) else None),
            ]
        )
    )
