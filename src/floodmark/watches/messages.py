"""Builds the message of a watch from its matches. Pure."""

from collections.abc import Sequence
from datetime import datetime

from floodmark.model.ids import new_id
from floodmark.model.watches import WatchFields, WatchMatch
from floodmark.notifications.messages import LONGEST_LINE, to_line
from floodmark.notifications.port import MatchedItem, Notification

# Matches in one message; the others are counted.
MOST_SHOWN = 10
# Lines of the difference of one match.
_MOST_DETAILS = 13
_INDENT = "\u2007\u2007"


def build_watch_message(
    fields: WatchFields, matches: Sequence[WatchMatch], count: int, *, at: datetime, instance: str
) -> Notification:
    """Return one message about `count` matches; `matches` are the first ones."""
    lines: list[str] = []
    links: list[str | None] = []
    is_short = len(matches) > 1
    for match in matches[:MOST_SHOWN]:
        for line, link in _lines_of(match, is_short=is_short):
            lines.append(line)
            links.append(link)
    more = count - min(len(matches), MOST_SHOWN)
    if more > 0:
        lines.append(f"… and {more:,} more: floodmark watch history {fields.name}")
        links.append(None)
    return Notification(
        id=new_id(),
        kind="watch",
        status="match",
        title=to_line(_title(fields, count), LONGEST_LINE),
        lines=tuple(lines),
        links=tuple(links),
        count=count,
        at=at,
        instance=to_line(instance, 120),
        watch=to_line(fields.name, LONGEST_LINE),
        matches=tuple(map(_to_item, matches[:MOST_SHOWN])),
    )


def _title(fields: WatchFields, count: int) -> str:
    matches = "1 match" if count == 1 else f"{count:,} matches"
    return f"{fields.name}: {matches}"


def _lines_of(match: WatchMatch, *, is_short: bool) -> list[tuple[str, str | None]]:
    """Return the title with the text on one line, or on several if the text has several lines."""
    text = match.text.splitlines()
    if len(text) <= 1 or is_short:
        line = f"{match.title}: {match.text}" if match.text else match.title
        return [(to_line(line, LONGEST_LINE), match.url)]
    details = [(f"{_INDENT}{to_line(line, LONGEST_LINE)}", None) for line in text[:_MOST_DETAILS]]
    return [(to_line(match.title, LONGEST_LINE), match.url), *details]


def _to_item(match: WatchMatch) -> MatchedItem:
    return MatchedItem(
        stream=match.stream,
        key=match.key,
        revision=match.revision,
        at=match.at,
        title=to_line(match.title, LONGEST_LINE),
        text="\n".join(to_line(line, LONGEST_LINE) for line in match.text.splitlines()[:_MOST_DETAILS]),
        url=match.url,
    )
