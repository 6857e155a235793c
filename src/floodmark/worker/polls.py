"""Runs of jobs with a budget: they spend its requests, and each of their batches says when the poll began."""

from collections.abc import AsyncGenerator, AsyncIterator

from msgspec.structs import replace

from floodmark.model.batch import Batch, Poll
from floodmark.model.clock import Clock
from floodmark.observability.events import Events, RequestsSpent
from floodmark.outbound.spending import RunBudget
from floodmark.store.port import Spending


class Polls:
    """Adds what a budget needs to the batches of a source."""

    def __init__(self, spending: Spending, clock: Clock, events: Events) -> None:
        self._spending, self._clock, self._events = spending, clock, events

    async def collect(
        self, budget: str, execution_id: str, batches: AsyncIterator[Batch]
    ) -> AsyncGenerator[Batch, None]:
        """Yield the batches; at the end of a run without any, one that says that nothing was found."""
        run, is_empty = RunBudget(self._spending, budget, execution_id), True
        try:
            await run.begin()
            began = self._clock.now()
            async for batch in batches:
                is_empty = False
                yield replace(batch, poll=Poll(began, self._count(budget, run)))
            if is_empty:
                yield Batch((), poll=Poll(began, self._count(budget, run)))
        finally:
            run.end()
            self._count(budget, run)
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    def _count(self, budget: str, run: RunBudget) -> int:
        """Return the number of requests since the last call."""
        count = run.count_new()
        if count:
            self._events.emit(RequestsSpent(budget, count))
        return count
