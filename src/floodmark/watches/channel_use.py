"""How watches use each channel. Tables: `watch_channels`, `watch_notifications`; only read."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import func, select

from floodmark.store.database import Database

from .tables import watch_channels, watch_notifications

_c, _n = watch_channels.c, watch_notifications.c


class ChannelUse(Struct, frozen=True, kw_only=True):
    """The watches of a channel, and its unsent messages."""

    watches: int = 0
    sent_at: datetime | None = None
    unsent: int = 0
    attempts: int = 0
    error: str | None = None
    retry_at: datetime | None = None


async def read_channel_use(database: Database) -> dict[str, ChannelUse]:
    """Return the use of each channel by its name."""
    used = select(_c.channel, func.count().label("watches"), func.max(_c.sent_at).label("sent_at"))
    found = {
        row["channel"]: ChannelUse(watches=row["watches"], sent_at=row["sent_at"])
        for row in await database.fetch(used.group_by(_c.channel))
    }
    # Of each watch and channel one message at most is unsent.
    unsent = select(
        _n.channel,
        func.count().label("unsent"),
        func.max(_n.attempts).label("attempts"),
        func.max(_n.error).label("error"),
        func.min(_n.try_at).label("retry_at"),
    ).where(_n.try_at.is_not(None))
    for row in await database.fetch(unsent.group_by(_n.channel)):
        values = {name: row[name] for name in ("unsent", "attempts", "error", "retry_at")}
        found[row["channel"]] = replace(found.get(row["channel"], ChannelUse()), **values)
    return found
