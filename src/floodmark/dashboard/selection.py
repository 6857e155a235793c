"""A choice of collected items, as the address of a page says it."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from floodmark.model.moments import begin_of, end_of

from .view import View

_LONGEST = 2000
PERIODS = (
    ("", "any time"),
    ("1h", "last hour"),
    ("24h", "last 24 hours"),
    ("7d", "last 7 days"),
    ("30d", "last 30 days"),
)


class Selection(Struct, frozen=True, kw_only=True):
    """Words and filters as they were typed; None for what is not limited.

    since   how long ago, such as 7d, or a time
    first   the first UTC day, in place of `since`; `last` is the last one
    """

    q: str | None = None
    stream: str | None = None
    source: str | None = None
    tag: str | None = None
    since: str | None = None
    first: str | None = None
    last: str | None = None
    order: str | None = None

    @classmethod
    def of(cls, view: View, stream: str | None = None) -> "Selection":
        """Return the selection of a page; `stream` if it is the page of one stream."""
        texts = {name: _short(view, name) for name in cls.__struct_fields__}
        return cls(**{**texts, **({} if stream is None else {"stream": stream})})

    @property
    def is_everything(self) -> bool:
        """Whether nothing is limited."""
        return not any((self.q, self.stream, self.source, self.tag, self.since, self.first, self.last))

    @property
    def wanted_order(self) -> Literal["newest", "rank"]:
        """The order of what is found; without words only the time decides."""
        return "rank" if self.order == "rank" and self.q else "newest"

    @property
    def is_searched(self) -> bool:
        """Whether only the search index knows what is selected."""
        return bool(self.q or self.tag or self.source)

    def period(self, now: datetime) -> tuple[datetime | None, datetime | None]:
        """Return since when, and until before when; raise `InvalidInput` if that cannot be read."""
        begin = self.first or self.since
        return None if begin is None else begin_of(begin, now), None if self.last is None else end_of(self.last, now)

    def filters(self, now: datetime) -> dict[str, Any]:
        """Return the arguments of a search."""
        since, until = self.period(now)
        return {
            "query": self.q,
            "stream": self.stream,
            "tag": self.tag,
            "source": self.source,
            "since": since,
            "until": until,
        }

    def link(self, view: View, path: str, **changes: Any) -> str:
        """Return a link to another page with this selection."""
        return view.url(path, **{**asdict(self), **changes})


def _short(view: View, name: str) -> str | None:
    found = view.query(name)
    return None if found is None else found.strip()[:_LONGEST] or None
