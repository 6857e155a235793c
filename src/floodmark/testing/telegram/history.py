"""The messages of one channel. Most of them are not stored but generated on demand."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from .raw import Raw, pack, unpack

PAGE = 100


class MessageMaker(Protocol):
    """Generates the same message each time for the same id and date."""

    def raw(self, message_id: int, date: int) -> bytes:
        """Return the serialised message."""
        ...

    def album(self, message_id: int) -> int:
        """Return the id of the first message of its album; its own id if it is not in an album."""
        ...


class History:
    """The history of a channel. Ids ascend and are never used again; dates are seconds since 1970 and do not descend.

    A generated message needs 16 bytes: its id and its date. Posted and edited messages are stored.
    """

    def __init__(self) -> None:
        self.ids, self.dates = array("q"), array("q")
        self.top = 0
        self._kept: dict[int, bytes] = {}
        self._from: list[int] = []
        self._makers: list[MessageMaker] = []

    @property
    def has_maker(self) -> bool:
        """Return whether it can generate further messages."""
        return bool(self._makers)

    def fill(self, dates: Sequence[int], maker: MessageMaker, skipped: Sequence[bool] = ()) -> None:
        """Append a message for each date; `skipped` contains the ids of deleted messages."""
        first = self.top + 1
        self._from.append(first)
        self._makers.append(maker)
        for index, date in enumerate(dates):
            message_id = first + index
            start = max(maker.album(message_id), first)
            if not skipped or not skipped[index]:
                self.ids.append(message_id)
                self.dates.append(dates[start - first] if start < message_id else date)
        self.top += len(dates)

    def keep(self, message: Any, date: int) -> None:
        """Append this message, or replace the one with the same id."""
        if message.id > self.top:
            self.ids.append(message.id)
            self.dates.append(date)
            self.top = message.id
        self._kept[message.id] = pack(message)

    def grow(self, date: int) -> int:
        """Append one more generated message, dated like the first one of its album if it has one, and return its id."""
        self.top += 1
        start = self._position(self._makers[-1].album(self.top))
        self.ids.append(self.top)
        self.dates.append(date if start is None else self.dates[start])
        return self.top

    def drop(self, message_id: int) -> bool:
        """Delete a message. Return False if it does not exist."""
        position = self._position(message_id)
        if position is None:
            return False
        del self.ids[position], self.dates[position]
        self._kept.pop(message_id, None)
        return True

    def raw(self, message_id: int) -> Raw | None:
        """Return a serialised message, or None if it is deleted or never existed."""
        position = self._position(message_id)
        return None if position is None else self._raw_at(position)

    def message(self, message_id: int) -> Any | None:
        """Return a message as a Telethon object."""
        raw = self.raw(message_id)
        return None if raw is None else unpack(raw.data)

    def page(
        self, *, offset_id: int = 0, offset_date: int = 0, add_offset: int = 0, limit: int = PAGE
    ) -> list[tuple[int, Raw]]:
        """Return the page for the offsets of the protocol, newest first.

        The page is clipped to the history and never shifted: a client that reads upwards takes a short page for the
        end.
        """
        if offset_id:
            position = bisect_left(self.ids, offset_id)
        elif offset_date:
            position = bisect_left(self.dates, offset_date)
        else:
            position = len(self.ids)
        end = min(max(position - add_offset, 0), len(self.ids))
        begin = max(position - add_offset - min(max(limit, 0), PAGE), 0)
        return [(self.ids[at], self._raw_at(at)) for at in range(end - 1, begin - 1, -1)]

    def newest_first(self) -> Iterator[Any]:
        """Return every message as a Telethon object."""
        return (unpack(self._raw_at(at).data) for at in range(len(self.ids) - 1, -1, -1))

    def _raw_at(self, position: int) -> Raw:
        message_id = self.ids[position]
        kept = self._kept.get(message_id)
        if kept is not None:
            return Raw(kept)
        maker = self._makers[bisect_right(self._from, message_id) - 1]
        return Raw(maker.raw(message_id, self.dates[position]))

    def _position(self, message_id: int) -> int | None:
        position = bisect_left(self.ids, message_id)
        return position if position < len(self.ids) and self.ids[position] == message_id else None
