"""How quickly to call somebody who has asked us to slow down: additive increase, multiplicative decrease. Pure.

Nobody is paced until they are told to wait. Then the rate is half of what was actually called; while calls go well it
grows by a little every second; above the ceiling it is no longer held back.
"""

import math
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

# Calls a second: the rate never falls below one call in half a minute, and from ten on nobody is paced.
SLOWEST, CEILING = 1 / 30, 10.0
# Calls a second that are gained every second. Quicker growth brings no more calls, only more waits to be told of.
GROWTH = 0.01
# A rate is stored again when it has grown by a tenth: a write every few seconds at most.
_WORTH_STORING = 1.1
# Whoever has to wait longer than this for a turn should come back later.
PATIENCE_SECONDS = 2.0
# Over how many seconds the rate of calls is measured.
MEMORY_SECONDS = 5.0
# Silence says nothing about what would have been allowed, so a long pause earns no more than a short one.
_LONGEST_EARNING_SECONDS = 10.0


class Pace(Struct, frozen=True, kw_only=True, gc=False):
    """The pace of one key. `rate`: calls a second it is held to, None for as many as come."""

    rate: float | None = None
    next_at: datetime | None = None
    """When the next call may be made, while there is a rate."""
    seen: float = 0.0
    """Recent calls; the longer ago, the less they count."""
    called_at: datetime | None = None
    told_at: datetime | None = None
    grew_at: datetime | None = None


def wait(pace: Pace, now: datetime) -> float:
    """Seconds until the next call may be made."""
    if pace.rate is None or pace.next_at is None:
        return 0.0
    rest = (pace.next_at - now).total_seconds()
    # More than a turn can ever take is a clock that was put back.
    return rest if 0 < rest <= PATIENCE_SECONDS + 1 / SLOWEST else 0.0


def called(pace: Pace, now: datetime) -> Pace:
    """The pace after a call took the next turn, now or after its `wait`."""
    following = None
    if pace.rate is not None:
        following = now + timedelta(seconds=wait(pace, now) + 1 / pace.rate)
    return replace(pace, seen=_seen(pace, now) + 1, called_at=now, next_at=following)


def went_well(pace: Pace, now: datetime, *, began: datetime) -> Pace:
    """The pace after a call went well: a little quicker, for the time in which nobody was told to wait."""
    if pace.rate is None or _is_old_news(pace, began):
        return pace
    quiet = 0.0 if pace.grew_at is None else max(0.0, (now - pace.grew_at).total_seconds())
    rate = pace.rate + GROWTH * min(quiet, _LONGEST_EARNING_SECONDS)
    return replace(pace, rate=None if rate >= CEILING else rate, grew_at=now)


def told(pace: Pace, now: datetime, *, began: datetime) -> Pace:
    """The pace after a call was told to wait: half of what was called.

    Calls that were under way together are told together, and halve it once.
    """
    if _is_old_news(pace, began):
        return pace
    measured = _seen(pace, now) / MEMORY_SECONDS
    before = measured if pace.rate is None else min(pace.rate, measured)
    return replace(pace, rate=min(max(before / 2, SLOWEST), CEILING), told_at=now, next_at=None, grew_at=None)


def has_recovered(pace: Pace, before: float) -> bool:
    """Whether the rate is so much higher than before that it is worth storing."""
    return pace.rate is None or pace.rate >= before * _WORTH_STORING


def _is_old_news(pace: Pace, began: datetime) -> bool:
    """Whether a call began before we were last told to wait."""
    return pace.told_at is not None and began <= pace.told_at


def _seen(pace: Pace, now: datetime) -> float:
    if pace.called_at is None:
        return 0.0
    age = max(0.0, (now - pace.called_at).total_seconds())
    return pace.seen * math.exp(-age / MEMORY_SECONDS)
