"""Finds what keeps people from being notified of matches. Tables of watches, `consumers`, `outbox`; only read."""

from collections.abc import Collection

from msgspec import Struct
from sqlalchemy import func, select

from floodmark.model.fleet import Finding
from floodmark.store.database import Database
from floodmark.store.tables import outbox

from .rows import read_state
from .tables import watch_channels, watch_notifications, watches

# A few failed attempts are no reason to wake anyone.
_FAILED = 3
# The evaluator examines some thousand events a second: more is left only when it stands still.
_MOST_BEHIND = 10_000
_n = watch_notifications.c


class FailingChannel(Struct, frozen=True):
    """A channel over which messages cannot be sent, with the reason of one of them."""

    name: str
    messages: int
    error: str


async def failing_channels(database: Database) -> list[FailingChannel]:
    """Return the channels with messages that failed several times, by name."""
    is_failing = (_n.try_at.is_not(None), _n.attempts >= _FAILED, _n.error.is_not(None))
    query = select(_n.channel, func.count().label("messages"), func.max(_n.error).label("error")).where(*is_failing)
    rows = await database.fetch(query.group_by(_n.channel).order_by(_n.channel))
    return [FailingChannel(row["channel"], row["messages"], row["error"]) for row in rows]


async def check_watches(database: Database, configured: Collection[str]) -> list[Finding]:
    """Return findings about watches; none if there are no watches."""
    count = int(await database.fetch_value(select(func.count()).select_from(watches)))
    if not count:
        return []
    problems = [
        *await _find_missing_channels(database, configured),
        *(
            Finding(
                code="watches",
                ok=False,
                text=f"{one.messages:,} message{'' if one.messages == 1 else 's'} cannot be sent over {one.name}: "
                f"{one.error}",
                hint="send a test with: floodmark notify test",
            )
            for one in await failing_channels(database)
        ),
        *await _find_lag(database),
    ]
    named = "1 watch is" if count == 1 else f"{count:,} watches are"
    return problems or [Finding(code="watches", ok=True, text=f"{named} evaluated, and all channels work")]


async def _find_missing_channels(database: Database, configured: Collection[str]) -> list[Finding]:
    rows = await database.fetch(select(watch_channels.c.channel, watches.c.name).join(watches).distinct().limit(1000))
    missing = sorted({(row["channel"], row["name"]) for row in rows if row["channel"] not in configured})
    if not missing:
        return []
    channel, name = missing[0]
    text = f"the channel {channel} of the watch {name} is not configured; its matches wait"
    hint = f"configure it, or choose another: floodmark watch edit {name} --notify CHANNEL"
    return [Finding(code="watches", ok=False, text=text, hint=hint)]


async def _find_lag(database: Database) -> list[Finding]:
    state, newest = await read_state(database), await database.fetch_value(select(func.max(outbox.c.position)))
    behind = int(newest or 0) - (0 if state is None else state.position)
    if behind <= _MOST_BEHIND:
        return []
    hint = "is a scheduler running? its log says what fails in the step watches"
    return [Finding(code="watches", ok=False, text=f"watches are {behind:,} events behind", hint=hint)]
