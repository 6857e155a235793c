"""Messages to people, and the channels that carry them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.extensions.services import Services

# The group of entry points. Each names an `OpenChannel`; its name is that of the channel in metrics and logs.
CHANNELS = "floodmark.notifications"

Status = Literal["trouble", "recovered", "test"]


class NotSent(FloodmarkError):
    """A message was not delivered. `after`: the pause that the receiver asks for, if any.

    `is_gone`: the receiver was removed for good. The text contains no secrets, such as the URL of a webhook.
    """

    def __init__(self, message: str, *, hint: str = "", after: timedelta | None = None, is_gone: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.after, self.is_gone = after, is_gone


class Subject(Struct, frozen=True, kw_only=True):
    """The job or account of a message. `text` is the error or the reason, `count` the number of occurrences."""

    name: str
    text: str = ""
    count: int = 1


class Notification(Struct, frozen=True, kw_only=True):
    """One message. A receiver can ignore a repeated `id`.

    `kind` is one of NOTIFY_ON, or `test`. `count` is the number of subjects; `subjects` contains the first ones.
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
