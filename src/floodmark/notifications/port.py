"""Messages to people, and the channels that carry them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from floodmark.errors import FloodmarkError
from floodmark.extensions.services import Services

# The group of entry points. Each names an `OpenChannel`; its name is that of the channel in metrics and logs.
CHANNELS = "floodmark.notifications"

Status = Literal["trouble", "recovered", "match", "test"]


class NotSent(FloodmarkError):
    """A message was not delivered. `after`: the pause that the receiver asks for, if any.

    `is_gone`: the receiver was removed for good. `is_refused`: the receiver refuses this message, and may accept
    others. The text contains no secrets, such as the URL of a webhook.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        after: timedelta | None = None,
        is_gone: bool = False,
        is_refused: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.after, self.is_gone, self.is_refused = after, is_gone, is_refused


class Subject(Struct, frozen=True, kw_only=True):
    """The job or account of a message. `text` is the error or the reason, `count` the number of occurrences."""

    name: str
    text: str = ""
    count: int = 1


class MatchedItem(Struct, frozen=True, kw_only=True):
    """One match of a watch. `key` and `revision` are null if it is not an item, but the state of a source."""

    stream: str
    key: str | None
    revision: int | None
    at: datetime
    title: str
    text: str
    url: str | None


class Notification(Struct, frozen=True, kw_only=True):
    """One message. A receiver can ignore a repeated `id`.

    `kind` is one of NOTIFY_ON, `watch`, or `test`. `count` is the number of subjects or matches; `subjects` and
    `matches` contain the first ones. `links` has an address, or nothing, for each line.
    """

    id: str
    kind: str
    status: Status
    title: str
    lines: tuple[str, ...] = ()
    count: int = 0
    subjects: tuple[Subject, ...] = ()
    at: datetime
    instance: str
    links: tuple[str | None, ...] | UnsetType = UNSET
    watch: str | UnsetType = UNSET
    matches: tuple[MatchedItem, ...] | UnsetType = UNSET

    def linked_lines(self) -> list[tuple[str, str | None]]:
        """Return the lines, each with its address."""
        links = () if self.links is UNSET else self.links
        return list(zip(self.lines, (*links, *[None] * (len(self.lines) - len(links))), strict=True))


class NotificationChannel(Protocol):
    """Sends messages to people."""

    @property
    def where(self) -> str:
        """Return the receiver, without secrets."""
        ...

    async def send(self, message: Notification) -> None:
        """Send it; return when the receiver has accepted it. `NotSent` names the reason if it has not."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


OpenChannel = Callable[[Services], NotificationChannel | None]
"""Makes a channel with the services of the process; None if it is not configured."""
