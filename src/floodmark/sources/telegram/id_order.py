"""The ids of a channel only grow. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from floodmark.errors import Gone

# Dates of neighbouring messages may be out of order by a little.
_SAME_TIME = timedelta(minutes=1)


def require_same_ids(
    found: Iterable[tuple[int, datetime | None]], last_read: tuple[int, datetime], target: str
) -> None:
    """Raise `Gone` if a message has a lower id than the newest one that was read, but was posted later.

    If the ids of a channel start again, new messages are below the watermark and would never be read.
    """
    newest, date = last_read
    for number, posted in found:
        if number <= newest and posted is not None and posted > date + _SAME_TIME:
            raise Gone(
                f"the message ids of {target} started again: message {number} is from"
                f" {posted:%Y-%m-%d %H:%M}, but message {newest} from {date:%Y-%m-%d %H:%M} was collected before",
                hint="Check that it is still the channel you want. `floodmark watermark reset` collects it from its"
                " first message; posts whose number was used before become new revisions. Then resume the job",
            )
