"""Loads installed and configured sinks, both built-in and from other packages.

A sink is configured by settings of its own, such as ARTIFACTS_DIR or those of its package, and then has the name of its
entry point; or by SINKS, which names any number of each kind, and `SINK_<NAME>_...`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from floodmark.errors import Conflict, InvalidInput
from floodmark.extensions.services import Services
from floodmark.model.sinks import parse_sinks
from floodmark.process.entry_points import load_extension, open_extensions
from floodmark.rules.stream_patterns import StreamPatterns
from floodmark.settings import Settings

from .delivery import ConfiguredSink
from .options import SinkOptions, option_key
from .port import SINKS, EventSink, SinkTraits

# Options of every sink.
_STREAMS, _FROM = "streams", "from"


def open_sinks(settings: Settings, services_for: Callable[[str], Services]) -> list[ConfiguredSink]:
    """Return every configured sink, by name."""
    found = {name: _configure(settings, name, name, sink) for name, sink in _open_unnamed(services_for)}
    for name, kind in parse_sinks(settings.sinks or "").items():
        if name in found:
            raise InvalidInput(
                f"SINKS names a sink {name}, and there already is one of that name", hint="choose another name"
            )
        found[name] = _open_named(settings, services_for, name, kind)
    return [found[name] for name in sorted(found)]


def open_one(settings: Settings, services_for: Callable[[str], Services], name: str) -> ConfiguredSink:
    """Return the sink of this name, or raise `Conflict` if this process does not have its settings."""
    kind = parse_sinks(settings.sinks or "").get(name)
    if kind is not None:
        return _open_named(settings, services_for, name, kind)
    for each, sink in _open_unnamed(services_for):
        if each == name:
            return _configure(settings, name, name, sink)
    raise Conflict(
        f"the sink {name} is not configured in this process",
        hint="run the command with the settings of the schedulers, or with --url and an API server that has them",
    )


def _open_unnamed(services_for: Callable[[str], Services]) -> list[tuple[str, EventSink]]:
    return sorted(open_extensions(SINKS, services_for).items())


def _open_named(settings: Settings, services_for: Callable[[str], Services], name: str, kind: str) -> ConfiguredSink:
    section = {key: text for key, text in settings.sink_section(name).items() if key not in (_STREAMS, _FROM)}
    open_sink = load_extension(SINKS, kind)
    sink: EventSink | None = open_sink(replace(services_for(name), section=section, instance=name))
    if sink is None:
        raise InvalidInput(
            f"SINKS names the {kind} sink {name}, but it is not configured",
            hint=f"set its options, {option_key(name, '...')}",
        )
    return _configure(settings, name, kind, sink)


def _configure(settings: Settings, name: str, kind: str, sink: EventSink) -> ConfiguredSink:
    """Return a sink with the options that every sink has."""
    options, traits = SinkOptions(name, settings.sink_section(name)), getattr(sink, "traits", SinkTraits())
    try:
        streams = StreamPatterns.parse(options.text(_STREAMS))
    except ValueError as error:
        raise InvalidInput(f"{option_key(name, _STREAMS)}: {error}", hint="use `*`, as in telegram:*") from None
    starts = options.choice(_FROM, traits.starts, "oldest", "newest")
    traits = replace(traits, starts="newest" if starts == "newest" else "oldest")
    return ConfiguredSink(name=name, kind=kind, sink=sink, streams=streams, traits=traits)
