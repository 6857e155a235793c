"""Hands the resources of a process to its extensions."""

from concurrent.futures import Executor

import structlog

from floodmark.extensions.services import Services
from floodmark.process.threads import DaemonThreads

from .resources import Resources


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
        process=resources.name,
        threads=threads or DaemonThreads(1),
    )
