"""Rendezvous hashing: the worker that is preferred for a key, such as an account.

Every process computes the same answer from the same workers, without asking anyone. A worker that joins takes keys from
all others, and the keys of a worker that leaves go to all others; no other key moves.
"""

from collections.abc import Iterable
from hashlib import blake2b


def choose_owner(key: str, workers: Iterable[str]) -> str | None:
    """Return the preferred worker for a key; None if there are no workers."""
    return next(iter(rank_owners(key, workers)), None)


def rank_owners(key: str, workers: Iterable[str]) -> list[str]:
    """Return the workers in order of preference for a key."""
    return sorted(workers, key=lambda worker: (_score(key, worker), worker), reverse=True)


def _score(key: str, worker: str) -> bytes:
    return blake2b(f"{worker}\0{key}".encode(), digest_size=8).digest()
