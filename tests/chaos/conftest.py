"""Processes to kill, and servers of our own to kill with them."""

from collections.abc import Iterator

import pytest

from chaos.fleet import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Makes all processes of the run."""
    with Zygote() as one:
        yield one
