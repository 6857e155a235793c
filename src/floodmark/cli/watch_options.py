"""The options of a watch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.watches import KINDS, WatchFields
from floodmark.rules.notification_times import parse_threshold

_WHAT, _WHERE, _WHEN = "What it looks for", "Where it looks", "When it notifies"
# The fields that `--clear` empties, by the names of their options.
CLEARABLE = {
    "words": "query",
    "pattern": "pattern",
    "where": "where",
    "stream": "streams",
    "source": "sources",
    "tag": "tags",
    "threshold": "threshold",
    "digest": "digest",
    "quiet": "quiet",
    "cooldown": "cooldown_seconds",
    "max-age": "max_age_seconds",
}


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """What to look for, and where."""

    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"One of {', '.join(KINDS)} (items).", rich_help_panel=_WHAT),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(metavar="RE2", help="Regular expression in the syntax of RE2.", rich_help_panel=_WHAT),
    ] = None
    word: Annotated[
        bool, typer.Option("--word", help="The pattern matches whole words, in every script.", rich_help_panel=_WHAT)
    ] = False
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Condition on a field, as in 'views >= 1000'; can be repeated.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Stream, or job that collects it; * is any text; can be repeated.",
            rich_help_panel=_WHERE,
        ),
    ] = None
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Kind of source; can be repeated.", rich_help_panel=_WHERE),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Tag of jobs; can be repeated.", rich_help_panel=_WHERE),
    ] = None
    max_age: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Items older than this that a run finds late are back-fill (default: WATCH_MAX_AGE).",
            rich_help_panel=_WHERE,
        ),
    ] = None

    def fields(self, words: str | None, before: WatchFields) -> WatchFields:
        """Return the watch `before` with what is given."""
        given: dict[str, Any] = {
            "query": words,
            "kind": None if self.kind is None else self.kind.replace("-", "_"),
            "pattern": self.pattern,
            "whole_word": self.word or None,
            "where": _tuple(self.where),
            "streams": _tuple(self.stream),
            "sources": _tuple(self.source),
            "tags": _tuple(self.tag),
            "max_age_seconds": _seconds(self.max_age),
        }
        return replace(before, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class NotifyOptions:
    """Whom to notify, and when."""

    notify: Annotated[
        list[str] | None,
        typer.Option(metavar="CHANNEL", help="Channels, as in slack,email; can be repeated.", rich_help_panel=_WHEN),
    ] = None
    threshold: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help='Only after this many matches, as in "20 in 10m".', rich_help_panel=_WHEN),
    ] = None
    digest: Annotated[
        str | None,
        typer.Option(metavar="hourly|daily", help="One message at the end of each hour or day.", rich_help_panel=_WHEN),
    ] = None
    quiet: Annotated[
        str | None,
        typer.Option(
            "--quiet",
            metavar="HOURS",
            help="Hold messages back in these hours, as in 22:00-07:00, and send one afterwards.",
            rich_help_panel=_WHEN,
        ),
    ] = None
    cooldown: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Minimum time between two messages, as in 30m.", rich_help_panel=_WHEN),
    ] = None
    tz: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of digests and quiet hours (UTC).", rich_help_panel=_WHEN),
    ] = None

    def fields(self, before: WatchFields) -> WatchFields:
        """Return the watch `before` with what is given."""
        threshold = None if self.threshold is None else parse_threshold(self.threshold)
        given: dict[str, Any] = {
            "notify": None if self.notify is None else _split_commas(self.notify),
            "threshold_count": None if threshold is None else threshold.count,
            "threshold_seconds": None if threshold is None else threshold.within.total_seconds(),
            "digest": self.digest,
            "quiet": self.quiet,
            "cooldown_seconds": _seconds(self.cooldown),
            "timezone": self.tz,
        }
        return replace(before, **{name: value for name, value in given.items() if value is not None})


def clear_fields(fields: WatchFields, words: Sequence[str], given: WatchFields) -> WatchFields:
    """Return the watch without the fields that `--clear` names. `fields` is what it was, `given` what it becomes."""
    default, changes = WatchFields(), dict[str, Any]()
    for word in words:
        if word not in CLEARABLE:
            raise InvalidInput(f"--clear {word[:60]!r} is not a field that can be cleared", hint=", ".join(CLEARABLE))
        names = ("threshold_count", "threshold_seconds") if word == "threshold" else (CLEARABLE[word],)
        if any(getattr(fields, name) != getattr(given, name) for name in names):
            raise InvalidInput(f"--clear {word} contradicts the new value", hint="use only one of them")
        changes |= {name: getattr(default, name) for name in names}
        if word == "pattern":
            changes["whole_word"] = False
    return replace(given, **changes)


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _split_commas(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found: timedelta = timedelta() if text.strip() == "0" else parse_every(text)
    return found.total_seconds()
