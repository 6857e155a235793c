"""Loads installed and configured sinks, both built-in and from other packages."""

from collections.abc import Callable

from floodmark.extensions.services import Services
from floodmark.process.entry_points import open_extensions

from .port import SINKS, EventSink


def open_sinks(services_for: Callable[[str], Services]) -> dict[str, EventSink]:
    """Return every configured sink by the name of its entry point."""
    return open_extensions(SINKS, services_for)


def is_relayed(sink: EventSink) -> bool:
    """Return whether the relay calls the sink while it numbers the events."""
    return getattr(sink, "is_relayed", False)
