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
    """A message did not get through. `after`: how long the other side wants to be left alone, if it says so.

    `is_gone`: the other side says that nobody will ever take messages there again. Its words hold nothing secret: no
    address of a webhook, no password.
    """

    def __init__(self, message: str, *, hint: str = "", after: timedelta | None = None, is_gone: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.after, self.is_gone = after, is_gone


class Subject(Struct, frozen=True, kw_only=True):
    """What a message is about: a job or an account. `text` is the error or the reason, `count` how often."""

    name: str
    text: str = ""
    count: int = 1


class Notification(Struct, frozen=True, kw_only=True):
    """One message. The same `id` again is the same message again: whoever has it can ignore it.

    `kind` is that of NOTIFY_ON, or `test`. `count` is how many subjects there are; `subjects` names the first of them.
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
    """A way to reach people."""

    @property
    def where(self) -> str:
        """Whom it reaches, as it may be shown to anyone."""
        ...

    async def send(self, message: Notification) -> None:
        """Returns once the other side has taken it; `NotSent` says why it has not."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


OpenChannel = Callable[[Services], NotificationChannel | None]
"""Makes a channel with the services of the process; None: it is not configured."""
