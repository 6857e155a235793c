"""How late the items of a source were stored, and how many requests that took. Pure.

Half of what was measured is forgotten every seven days. Times are Unix seconds.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec
from msgspec import Struct

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


def record(
    measures: Measures,
    *,
    now: float,
    delays: Sequence[float] = (),
    found: int = 0,
    expected: float = 0.0,
    requests: int = 0,
    polls: int = 0,
) -> Measures:
    """Return the measures with another poll, or with more items of the last one."""
    fade = 0.5 ** (max(0.0, now - measures.until) / _HALF_LIFE)
    buckets = [count * fade for count in measures.delays]
    for delay in delays:
        buckets[min(int(max(0.0, delay)).bit_length(), _BUCKETS - 1)] += 1
    return Measures(
        until=max(now, measures.until),
        polls=measures.polls * fade + polls,
        requests=measures.requests * fade + requests,
        found=measures.found * fade + found,
        expected=measures.expected * fade + expected,
        delay=measures.delay * fade + sum(max(0.0, delay) for delay in delays),
        delays=tuple(buckets),
    )


def total_of(all_measures: Sequence[Measures], now: float) -> Measures:
    """Return the sum of the measures of several sources, as of `now`."""
    total = Measures(now)
    for one in (record(measures, now=now) for measures in all_measures):
        total = Measures(
            until=now,
            polls=total.polls + one.polls,
            requests=total.requests + one.requests,
            found=total.found + one.found,
            expected=total.expected + one.expected,
            delay=total.delay + one.delay,
            delays=tuple(mine + other for mine, other in zip(total.delays, one.delays, strict=True)),
        )
    return total


def encode_measures(measures: Measures) -> bytes:
    """Return the measures as bytes for the database."""
    return msgspec.msgpack.encode(measures)


def decode_measures(stored: bytes) -> Measures | None:
    """Return stored measures; None if another version wrote them."""
    try:
        return msgspec.msgpack.decode(stored, type=Measures)
    except msgspec.DecodeError:
        return None
