"""Exponential backoff with full jitter and a cap. Everything that retries uses it."""

import random
from datetime import timedelta

_SHARED = random.Random()  # noqa: S311 - jitter, not a secret
# Far beyond every cap in use, and small enough for a float.
_MOST_DOUBLINGS = 30


def backoff(failures: int, *, base: timedelta, longest: timedelta, chance: random.Random = _SHARED) -> timedelta:
    """Return a random pause between zero and `backoff_bound`: callers that failed together do not return together."""
    return chance.random() * backoff_bound(failures, base=base, longest=longest)


def backoff_bound(failures: int, *, base: timedelta, longest: timedelta) -> timedelta:
    """Return the longest pause after `failures` (1 or more) in a row: `base`, doubled for each further one."""
    doubled = base.total_seconds() * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
    return timedelta(seconds=min(doubled, longest.total_seconds()))
