"""Requests of a run whose job has a budget: each one takes its place in time before it is sent.

The budget is in the store, so that all processes share it. `spend_request` is called for every request that leaves the
process; outside a run, or in a run without a budget, it does nothing.
"""

import asyncio
import time
from contextvars import ContextVar
from datetime import timedelta

from floodmark.errors import InvalidInput, SlowDown
from floodmark.store.port import Spending

# A run waits this long for a request. If it takes longer, other executions get its slot.
_PATIENCE = timedelta(seconds=2)
# A request that is later than this needs another place: too many might come at once. See `rules.freshness.rate_of`.
_LATE_SECONDS = 0.5

_run: ContextVar["RunBudget | None"] = ContextVar("run_budget", default=None)


class RunBudget:
    """The requests of one run."""

    def __init__(self, spending: Spending, budget: str, execution_id: str) -> None:
        self._spending, self._budget, self._execution_id = spending, budget, execution_id
        self._place: float | None = None
        self._spent = 0

    async def begin(self) -> None:
        """Take the place of the first request, and let `spend_request` in this task take the others."""
        await self._take()
        _run.set(self)

    def end(self) -> None:
        """Let later requests of this task take no places."""
        _run.set(None)

    def count_new(self) -> int:
        """Return the number of requests since the last call."""
        spent, self._spent = self._spent, 0
        return spent

    async def spend(self) -> None:
        """Wait for the next place; raise `SlowDown` if it is far away."""
        place, self._place = self._place, None
        if place is None or time.monotonic() - place > _LATE_SECONDS:
            await self._take()
            self._place = None

    async def _take(self) -> None:
        while True:
            asked = time.monotonic()
            spent = await self._spending.spend(self._budget, self._execution_id, patience=_PATIENCE)
            if spent is None:
                hint = f"Create it: floodmark budgets set {self._budget} --per-minute 60"
                raise InvalidInput(f"there is no budget {self._budget!r}", hint=hint)
            if spent.is_refused:
                raise SlowDown(timedelta(seconds=spent.seconds), None, f"the budget {self._budget} is used up")
            self._spent += 1
            # Counted from before the call: the answer may have taken a while.
            self._place = asked + spent.seconds
            await asyncio.sleep(self._place - time.monotonic())
            if time.monotonic() - self._place <= _LATE_SECONDS:
                return


async def spend_request() -> None:
    """Wait until the budget of the current run allows a request."""
    run = _run.get()
    if run is not None:
        await run.spend()
