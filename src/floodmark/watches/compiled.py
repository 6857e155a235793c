"""A watch in the form in which it is evaluated. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from floodmark.errors import InvalidInput
from floodmark.model.job import LONG_AGO
from floodmark.model.watches import WatchFields
from floodmark.rules.field_conditions import parse_conditions
from floodmark.rules.notification_times import NotificationTimes, Threshold, check_threshold, parse_quiet
from floodmark.search.matching import matches
from floodmark.search.query import Node, parse_query
from floodmark.triggers.zones import zone_of

from .documents import WatchedTexts
from .literals import Literals, literals_of_pattern, literals_of_query, words_needed_by
from .patterns import compile_pattern
from .places import StreamFilter


class CompiledWatch:
    """A watch that can be evaluated. Raises `InvalidInput` if a field cannot be read.

    `literals`: a matching text contains one of them; None if every text has to be examined.
    """

    def __init__(
        self,
        fields: WatchFields,
        *,
        watch_id: str = "",
        after_position: int = 0,
        active_at: datetime = LONG_AGO,
        default_max_age: timedelta,
    ) -> None:
        self.fields, self.watch_id, self.after_position, self.active_at = fields, watch_id, after_position, active_at
        self.node = None if fields.query is None else parse_query(fields.query)
        self._needed = () if self.node is None else words_needed_by(self.node)
        self.pattern = None if fields.pattern is None else compile_pattern(fields.pattern, whole_word=fields.whole_word)
        self.conditions = parse_conditions(fields.where)
        self.filter = StreamFilter(fields.streams, fields.sources, fields.tags)
        self.threshold = _threshold(fields)
        self.times = notification_times(fields)
        seconds = fields.max_age_seconds
        self.max_age = default_max_age if seconds is None else timedelta(seconds=seconds)
        self.literals = self._find_literals()

    @property
    def kind(self) -> str:
        """What it looks at."""
        return self.fields.kind

    @property
    def examines_every_text(self) -> bool:
        """Whether its pattern is searched in every text of its streams."""
        return self.pattern is not None and self.literals is None

    def matches(self, document: WatchedTexts) -> bool:
        """Return whether the conditions, the words and the pattern match."""
        if not all(condition.holds(document.data) for condition in self.conditions):
            return False
        if self.node is not None and not self._has_words(self.node, document):
            return False
        return self.pattern is None or self.pattern.search(document.text) is not None

    def _has_words(self, node: Node, document: WatchedTexts) -> bool:
        # Most candidates end before the text is cut into tokens: they have one of the words, but not all.
        folded = document.folded
        if not any(all(text in folded for text in one.texts) for one in self._needed):
            return False
        possible = [one for one in self._needed if document.known.issuperset(one.tokens)]
        if any(one.are_enough for one in possible):
            return True
        return bool(possible) and matches(node, document.runs)

    def _find_literals(self) -> Literals | None:
        found = None if self.node is None else literals_of_query(self.node)
        if found is not None or self.fields.pattern is None:
            return found
        return literals_of_pattern(self.fields.pattern)


def notification_times(fields: WatchFields) -> NotificationTimes:
    """Return when the messages of a watch are sent."""
    return NotificationTimes(
        zone=zone_of(fields.timezone),
        digest=fields.digest,
        quiet=None if fields.quiet is None else parse_quiet(fields.quiet),
        cooldown=timedelta(seconds=fields.cooldown_seconds or 0),
    )


def _threshold(fields: WatchFields) -> Threshold | None:
    count, seconds = fields.threshold_count, fields.threshold_seconds
    if (count is None) != (seconds is None):
        raise InvalidInput("a threshold needs a number and a time", hint='write it like "20 in 10m"')
    if count is None or seconds is None:
        return None
    return check_threshold(count, timedelta(seconds=seconds))


Watches = Mapping[str, CompiledWatch]
"""Watches by id."""
