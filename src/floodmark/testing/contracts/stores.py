"""The fixtures of contracts that run on a store."""

from collections.abc import AsyncIterator

import pytest

from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources


class StoreContract:
    """Two processes on the same stores. Subclasses provide `opened`, which opens the resources of one process."""

    @pytest.fixture
    async def resources(self, opened: Opened) -> AsyncIterator[Resources]:
        """The resources of one process."""
        async with opened() as resources:
            yield resources

    @pytest.fixture
    async def other(self, opened: Opened) -> AsyncIterator[Resources]:
        """The resources of another process."""
        async with opened() as resources:
            yield resources
