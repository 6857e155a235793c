"""How late the items of a source were stored, and how many requests that took. Pure.

Half of what was measured is forgotten every seven days. Times are Unix seconds.
"""

import math
from collections.abc import Iterable
from itertools import accumulate

import msgspec
from msgspec import Struct

from floodmark.model.batch import PollResult

_HALF_LIFE = 7 * 86400.0
# Bucket n holds delays of less than 2**n seconds, the last one all longer ones: 12 days.
_BUCKETS = 21


class Measures(Struct, frozen=True, array_like=True):
    """What was measured about one source."""

    until: float
    polls: float = 0.0
    requests: float = 0.0
    found: float = 0.0
    expected: float = 0.0
    delay: float = 0.0
    """The sum of the delays of all dated items."""
    delays: tuple[float, ...] = (0.0,) * _BUCKETS
    seconds: float = 0.0
    """The time from the first poll to the last one."""

    @property
    def rate(self) -> float | None:
        """Polls per second from the first poll to `until`, if that is the last one; None before the second poll."""
        # The first poll only marks the beginning; this much of it is left.
        first = 1 - self.seconds * math.log(2) / _HALF_LIFE
        return (self.polls - first) / self.seconds if self.seconds else None

    @property
    def items(self) -> float:
        """The number of items whose delay is known."""
        return sum(self.delays)

    @property
    def mean_delay(self) -> float | None:
        """The mean delay in seconds; None without items."""
        return self.delay / self.items if self.items else None

    def quantile(self, share: float) -> float | None:
        """Return a delay that this share of the items did not exceed, interpolated between powers of two."""
        wanted, before = self.items * share, 0.0
        for bucket, total in enumerate(accumulate(self.delays)):
            if total >= wanted and total > before:
                low, high = (0.0 if bucket == 0 else 2.0 ** (bucket - 1)), 2.0**bucket
                return low + (high - low) * (wanted - before) / (total - before)
            before = total
        return None


def record(measures: Measures, result: PollResult, *, now: float, requests: int = 0, polls: int = 0) -> Measures:
    """Return the measures with another poll, or with more items of the last one."""
    passed = max(0.0, now - measures.until)
    measures = fade_measures(measures, now)
    buckets = list(measures.delays)
    for delay in result.delays:
        buckets[min(int(delay).bit_length(), _BUCKETS - 1)] += 1
    return Measures(
        until=measures.until,
        polls=measures.polls + polls,
        requests=measures.requests + requests,
        found=measures.found + result.found,
        expected=measures.expected + result.expected,
        delay=measures.delay + sum(result.delays),
        delays=tuple(buckets),
        seconds=measures.seconds + (1 - _fade(passed)) * _HALF_LIFE / math.log(2),
    )


def fade_measures(measures: Measures, now: float) -> Measures:
    """Return what is left of the measures at `now`."""
    fade = _fade(max(0.0, now - measures.until))
    return Measures(
        until=max(now, measures.until),
        polls=measures.polls * fade,
        requests=measures.requests * fade,
        found=measures.found * fade,
        expected=measures.expected * fade,
        delay=measures.delay * fade,
        delays=tuple([count * fade for count in measures.delays]),
        seconds=measures.seconds * fade,
    )


def total_of(all_measures: Iterable[Measures], now: float) -> Measures:
    """Return the sum of the measures of several sources, as of `now`."""
    total = Measures(now)
    for one in (fade_measures(measures, now) for measures in all_measures):
        total = Measures(
            until=now,
            polls=total.polls + one.polls,
            requests=total.requests + one.requests,
            found=total.found + one.found,
            expected=total.expected + one.expected,
            delay=total.delay + one.delay,
            delays=tuple([mine + other for mine, other in zip(total.delays, one.delays, strict=True)]),
            seconds=total.seconds + one.seconds,
        )
    return total


def _fade(passed: float) -> float:
    fade: float = 0.5 ** (passed / _HALF_LIFE)
    return fade


def encode_measures(measures: Measures) -> bytes:
    """Return the measures as bytes for the database."""
    return msgspec.msgpack.encode(measures)


def decode_measures(stored: bytes) -> Measures | None:
    """Return stored measures; None if another version wrote them."""
    try:
        return msgspec.msgpack.decode(stored, type=Measures)
    except msgspec.DecodeError:
        return None
