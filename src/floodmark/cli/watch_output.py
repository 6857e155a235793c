"""Show watches, their matches and their messages."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rich.text import Text

from floodmark.model.durations import format_duration
from floodmark.model.watches import ChannelState, WatchFields, WatchMatch, WatchNotificationRow, WatchRow
from floodmark.rules.watch_words import KIND_WORDS, describe_places, describe_search

from .output import counted, facts, safe, short, table
from .root import CliContext
from .times import absolute, both, relative


def print_list(cli: CliContext, rows: Sequence[WatchRow]) -> None:
    """Print watches as a table."""
    now = datetime.now(UTC)
    columns = ("name", "looks for", "in", "notifies", "matches", "last match", "state")
    cells = [
        [
            Text(safe(row.name), style="bold"),
            short(describe_search(row), 50),
            short(describe_places(row) or "all streams", 40),
            ", ".join(row.notify),
            f"{row.matches:,}",
            "never" if row.last_match_at is None else relative(row.last_match_at, now),
            _state(row),
        ]
        for row in rows
    ]
    cli.out.print(table(*columns, rows=cells, right=("matches",)))


def print_watch(cli: CliContext, row: WatchRow) -> None:
    """Print all about one watch."""
    now = datetime.now(UTC)
    cli.out.print(Text(safe(row.name), style="bold"))
    back_fill = (
        f"{counted(row.suppressed, 'match', 'matches')} of back-fill notified nobody" if row.suppressed else None
    )
    cli.out.print(
        facts(
            [
                ("looks for", KIND_WORDS[row.kind]),
                ("words", row.query),
                ("pattern", f"{row.pattern} (whole words)" if row.pattern and row.whole_word else row.pattern),
                ("where", " and ".join(row.where)),
                ("streams", ", ".join(row.streams)),
                ("sources", ", ".join(row.sources)),
                ("tags", ", ".join(row.tags)),
                ("notifies", ", ".join(row.notify)),
                *_timing(row),
                ("matches", f"{row.matches:,}"),
                ("last match", None if row.last_match_at is None else both(row.last_match_at, now)),
                ("suppressed", back_fill),
                ("state", _state(row)),
                ("version", str(row.version)),
                ("changed", relative(row.updated_at, now)),
            ]
        )
    )
    cli.out.print(table("channel", "waiting", "next message", "last sent", "error", rows=_channels(row, now)))


def _timing(row: WatchFields) -> list[tuple[str, object]]:
    threshold = None
    if row.threshold_count is not None and row.threshold_seconds is not None:
        threshold = f"{row.threshold_count} in {_duration(row.threshold_seconds)}"
    has_zone = row.digest is not None or row.quiet is not None
    return [
        ("threshold", threshold),
        ("digest", row.digest),
        ("quiet hours", row.quiet),
        ("time zone", row.timezone if has_zone else None),
        ("cooldown", None if row.cooldown_seconds is None else _duration(row.cooldown_seconds)),
        ("max age", None if row.max_age_seconds is None else _duration(row.max_age_seconds)),
    ]


def _channels(row: WatchRow, now: datetime) -> list[list[object]]:
    return [
        [
            state.channel,
            f"{state.waiting:,}",
            "-" if state.due_at is None else both(state.due_at, now) if state.due_at > now else "now",
            "never" if state.sent_at is None else relative(state.sent_at, now),
            Text(_error(state), style="red"),
        ]
        for state in row.channels
    ]


def _error(state: ChannelState) -> str:
    if state.error is None:
        return ""
    return f"{safe(state.error)} ({counted(state.attempts, 'attempt')})"


def _state(row: WatchRow) -> Text:
    failing = [state.channel for state in row.channels if state.error is not None]
    if row.paused:
        return Text("paused", style="yellow")
    return Text(f"cannot notify {', '.join(failing)}", style="red") if failing else Text("active", style="green")


def print_match(cli: CliContext, match: WatchMatch, now: datetime) -> None:
    """Print one match: time and title, then the text."""
    line = Text.assemble((absolute(match.at, now), "dim"), "  ", (short(match.title, 150), "bold"))
    cli.out.print(line, soft_wrap=True)
    for part in match.text.splitlines():
        cli.out.print(Text(f"  {safe(part)}"), soft_wrap=True)
    if match.url:
        cli.out.print(Text(f"  {safe(match.url)}", style="dim"), soft_wrap=True)


def print_notifications(cli: CliContext, rows: Sequence[WatchNotificationRow]) -> None:
    """Print messages as a table."""
    now = datetime.now(UTC)
    cells = [
        [
            absolute(row.created_at, now),
            row.channel,
            f"{row.matches:,}",
            _delivery(row, now),
            f"{row.attempts:,}",
            Text(safe(row.error or ""), style="red"),
        ]
        for row in rows
    ]
    columns = ("made", "channel", "matches", "sent", "attempts", "error")
    cli.out.print(table(*columns, rows=cells, right=("matches", "attempts")))


def _delivery(row: WatchNotificationRow, now: datetime) -> str:
    if row.sent_at is not None:
        return absolute(row.sent_at, now)
    return "given up" if row.try_at is None else f"next attempt {relative(max(row.try_at, now), now)}"


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
