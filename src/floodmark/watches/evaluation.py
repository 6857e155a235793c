"""Evaluates watches on events. Pure, and slow enough for a thread of its own."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from floodmark.rules.backfill import is_backfill

from .compiled import CompiledWatch
from .documents import WatchedItem, WatchedTexts, read_data
from .event_reader import WatchedEvent
from .excerpts import LONGEST_EXCERPT, LONGEST_TITLE, excerpt_of, shorten, url_of
from .index import WatchSet
from .places import StreamPlace

# Of the difference of a page: lines, and characters of each.
_MOST_LINES, _LONGEST_LINE = 12, 160
# Matches after which a batch ends, so that one transaction does not grow without limit.
_MOST_FOUND = 10_000
_SCAN_KINDS = ("cookie_before_consent", "cookies_changed")
_SCHEMA_OF_SCANS = "floodmark.cookies/"


class FoundMatch(Struct, frozen=True, kw_only=True, gc=False):
    """A match of a watch. `event_id` is stable: a match is stored once for each."""

    watch: CompiledWatch
    event_id: str
    stream: str
    key: str | None = None
    revision: int | None = None
    position: int | None = None
    at: datetime
    title: str
    text: str
    url: str | None = None
    is_backfill: bool = False


class Evaluated(Struct):
    """The result of one batch, of which the first events were `examined`.

    `changed`: matches of changed items, which count only if the revision before did not match. `scans`: cookie scans,
    which are compared with the scan before. `failures`: events that could not be evaluated, with the reason.
    """

    examined: int = 0
    matches: list[FoundMatch] = field(default_factory=list)
    changed: list[tuple[WatchedEvent, FoundMatch]] = field(default_factory=list)
    scans: list[tuple[WatchedEvent, Any, list[CompiledWatch]]] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)


def evaluate(events: Sequence[WatchedEvent], watches: WatchSet, places: Mapping[str, StreamPlace]) -> Evaluated:
    """Return the matches of a batch, in order. It ends early when there are very many."""
    found, kinds = Evaluated(), watches.kinds()
    for event in events:
        found.examined += 1
        # A deletion is no news about words.
        if not event.deleted:
            try:
                _evaluate_event(event, watches, kinds, places[event.stream], found)
            except Exception as error:  # noqa: BLE001 - one odd item must not stop all watches; it is logged
                found.failures.append((event.event_id, f"{type(error).__name__}: {error}"))
        if len(found.matches) + len(found.changed) >= _MOST_FOUND:
            break
    return found


def _evaluate_event(
    event: WatchedEvent, watches: WatchSet, kinds: frozenset[str], place: StreamPlace, found: Evaluated
) -> None:
    data = read_data(event.data)
    item = WatchedItem(event.key, data)
    if "items" in kinds:
        matches = list(_match_item(event, item, watches, place))
        if event.revision == 1:
            found.matches += matches
        else:
            found.changed += [(event, match) for match in matches]
    if "page_changed" in kinds:
        found.matches += _match_page(event, item, watches, place)
    if kinds.intersection(_SCAN_KINDS) and is_scan(data):
        looking = [watch for kind in _SCAN_KINDS for watch in watches.of_kind(kind, place)]
        if wanted := [watch for watch in looking if event.position > watch.after_position]:
            found.scans.append((event, data, wanted))


def _match_item(event: WatchedEvent, item: WatchedItem, watches: WatchSet, place: StreamPlace) -> Iterator[FoundMatch]:
    for watch in watches.candidates(item, place):
        if event.position > watch.after_position and watch.matches(item):
            text = excerpt_of(watch, item) or shorten(event.data, LONGEST_EXCERPT)
            yield describe(watch, event, place, title=shorten(item.title, LONGEST_TITLE), text=text, url=url_of(item))


def matched_before(match: FoundMatch, data: str) -> bool:
    """Return whether the watch also matches an earlier revision."""
    return match.watch.matches(WatchedItem(match.key or "", read_data(data)))


def _match_page(event: WatchedEvent, item: WatchedItem, watches: WatchSet, place: StreamPlace) -> Iterator[FoundMatch]:
    difference = item.data.get("difference") if isinstance(item.data, dict) else None
    if event.revision == 1 or not isinstance(difference, str) or not difference:
        return
    changes, title = WatchedTexts(item.data, [item.title, difference]), shorten(item.title, LONGEST_TITLE)
    for watch in watches.of_kind("page_changed", place):
        if event.position > watch.after_position and watch.matches(changes):
            text, about = shorten_lines(difference), f"{title or event.key} changed"
            yield describe(watch, event, place, title=about, text=text, url=url_of(item))


def is_scan(data: Any) -> bool:
    """Return whether an item is the report of a cookie scan."""
    return isinstance(data, dict) and str(data.get("schema", "")).startswith(_SCHEMA_OF_SCANS)


def shorten_lines(text: str) -> str:
    """Return the first lines of a text, each cut to a length."""
    lines = text.splitlines()
    shown = [line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…" for line in lines[:_MOST_LINES]]
    more = len(lines) - len(shown)
    return "\n".join([*shown, *([f"… and {more:,} more lines"] if more else [])])


def describe(
    watch: CompiledWatch, event: WatchedEvent, place: StreamPlace, *, title: str, text: str, url: str | None
) -> FoundMatch:
    """Return the match of an event. The title begins with the name of the stream."""
    return FoundMatch(
        watch=watch,
        event_id=event.event_id,
        stream=event.stream,
        key=event.key,
        revision=event.revision,
        position=event.position,
        at=event.collected_at,
        title=f"{place.label}: {title}" if title else place.label,
        text=text,
        url=url,
        is_backfill=watch.kind == "items"
        and is_backfill(
            event.existed,
            revision=event.revision,
            occurred_at=event.occurred_at,
            collected_at=event.collected_at,
            max_age=watch.max_age,
        ),
    )
