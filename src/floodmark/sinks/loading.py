"""Loads installed and configured sinks, both built-in and from other packages."""

from collections.abc import Callable

from floodmark.extensions.services import Services
from floodmark.process.entry_points import find_extensions, load_extension

from .port import SINKS, EventSink, OpenSink


def open_sinks(services_for: Callable[[str], Services]) -> dict[str, EventSink]:
    """Return every configured sink by the name of its entry point."""
    found: dict[str, EventSink] = {}
    for name in sorted(find_extensions(SINKS)):
        open_sink: OpenSink = load_extension(SINKS, name)
        sink = open_sink(services_for(name))
        if sink is not None:
            found[name] = sink
    return found


def is_relayed(sink: EventSink) -> bool:
    """Return whether the relay calls the sink while it numbers the events."""
    return getattr(sink, "is_relayed", False)
