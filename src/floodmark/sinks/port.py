"""Where items go."""

from typing import Protocol

from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Lease


class Sink(Protocol):
    """Keeps items and moves the watermark, both or neither."""

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch under the lease's fence; raises `Fenced` and changes nothing once that has been passed on."""
        ...
