"""The call rate after a request to slow down: additive increase, multiplicative decrease.

There is no rate limit until a server asks to wait. Then the rate is half of the measured rate; while calls succeed it
grows a little every second; above the ceiling the limit ends.
"""

import math
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

# Calls per second: the rate never falls below one call in half a minute, and from ten on it is not limited.
SLOWEST, CEILING = 1 / 30, 10.0
# Growth in calls per second, per second. Faster growth brings no more calls, only more requests to wait.
GROWTH = 0.01
# A rate is stored again when it has grown by a tenth: a write every few seconds at most.
_WORTH_STORING = 1.1
# A call that would have to wait longer than this for its turn is snoozed instead.
PATIENCE_SECONDS = 2.0
# The rate of calls is measured over this many seconds.
MEMORY_SECONDS = 5.0
# A pause does not show which rate would have been accepted, so a long one earns no more than a short one.
_LONGEST_EARNING_SECONDS = 10.0


class Pace(Struct, frozen=True, kw_only=True, gc=False):
    """The pace of one key. `rate`: the allowed calls per second, None for no limit."""

    rate: float | None = None
    next_at: datetime | None = None
    """When the next call may be made, while there is a rate."""
    seen: float = 0.0
    """Recent calls; the longer ago, the less they count."""
    called_at: datetime | None = None
    told_at: datetime | None = None
    grew_at: datetime | None = None


def seconds_to_wait(pace: Pace, now: datetime) -> float:
    """Return the seconds until the next call may be made."""
    if pace.rate is None or pace.next_at is None:
        return 0.0
    rest = (pace.next_at - now).total_seconds()
    # Longer than any turn: the clock was set back.
    return rest if 0 < rest <= PATIENCE_SECONDS + 1 / SLOWEST else 0.0


def record_call(pace: Pace, now: datetime) -> Pace:
    """Return the pace after a call took the next turn, now or after its `seconds_to_wait`."""
    following = None
    if pace.rate is not None:
        following = now + timedelta(seconds=seconds_to_wait(pace, now) + 1 / pace.rate)
    return replace(pace, seen=_count_recent(pace, now) + 1, called_at=now, next_at=following)


def speed_up(pace: Pace, now: datetime, *, began: datetime) -> Pace:
    """Return the pace after a successful call: a little faster, for the time without a request to wait."""
    if pace.rate is None or _is_old_news(pace, began):
        return pace
    quiet = 0.0 if pace.grew_at is None else max(0.0, (now - pace.grew_at).total_seconds())
    rate = pace.rate + GROWTH * min(quiet, _LONGEST_EARNING_SECONDS)
    return replace(pace, rate=None if rate >= CEILING else rate, grew_at=now)


def slow_down(pace: Pace, now: datetime, *, began: datetime) -> Pace:
    """Return the pace after a call was told to wait: half of the measured rate.

    Of calls that ran at the same time, only the first halves it.
    """
    if _is_old_news(pace, began):
        return pace
    measured = _count_recent(pace, now) / MEMORY_SECONDS
    before = measured if pace.rate is None else min(pace.rate, measured)
    return replace(pace, rate=min(max(before / 2, SLOWEST), CEILING), told_at=now, next_at=None, grew_at=None)


def has_recovered(pace: Pace, before: float) -> bool:
    """Return whether the rate has grown enough to be stored again."""
    return pace.rate is None or pace.rate >= before * _WORTH_STORING


def _is_old_news(pace: Pace, began: datetime) -> bool:
    """Return whether a call began before the last request to wait."""
    return pace.told_at is not None and began <= pace.told_at


def _count_recent(pace: Pace, now: datetime) -> float:
    if pace.called_at is None:
        return 0.0
    age = max(0.0, (now - pace.called_at).total_seconds())
    return pace.seen * math.exp(-age / MEMORY_SECONDS)
