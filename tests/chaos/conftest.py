"""Processes to kill, and servers of our own to kill with them."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.fleet import Fleet, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Makes all processes of the run."""
    with Zygote() as one:
        yield one


@pytest.fixture
def chance() -> random.Random:
    """Where all moments come from."""
    seed = int(os.environ.get("FLOODMARK_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"\nFLOODMARK_CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def fleet(zygote: Zygote, tmp_path: Path) -> Iterator[Fleet]:
    """Nobody of it is left at the end."""
    one = Fleet(zygote, tmp_path / "processes")
    yield one
    one.stop_all()
