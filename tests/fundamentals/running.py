"""Run an application during a block and query it, for the lessons of the tutorial.

Your own program does not need this: it calls `app.run()`, or you start it with `floodmark up --app module:app`.
Each docstring names the command that does the same.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import islice
from typing import Any

from floodmark import Floodmark, Job
from floodmark.model.audit import Actor
from floodmark.model.execution import Execution
from floodmark.operations.executions import Letters
from floodmark.operations.local import LocalOperations
from floodmark.store.port import Event
from floodmark.testing.eventually import eventually
from floodmark.testing.serving import served
from floodmark.triggers import instants, trigger_of
from floodmark.wiring.resources import Resources

ENDED = ("done", "dead", "cancelled", "skipped")


class Opened:
    """An application with an open database."""

    def __init__(self, resources: Resources) -> None:
        self._operations = LocalOperations(resources, Actor(who="reader", via="test"))

    async def job(self, name: str) -> Job:
        """Return the job of a collector: `floodmark show NAME`."""
        return await self._operations.job(name)

    async def next_runs(self, name: str, *, after: datetime, count: int) -> list[datetime]:
        """Return the next due times, in UTC: `floodmark next NAME`."""
        job = await self.job(name)
        return list(islice(instants(trigger_of(job.when, anchor=job.created_at), after), count))

    async def run(self, name: str) -> str:
        """Run a job now and return the id of the execution: `floodmark run NAME`."""
        return (await self._operations.run_job(name)).execution_id

    async def execution(self, execution_id: str) -> Execution:
        """Return one execution: `floodmark history --id ID`."""
        return await self._operations.execution(execution_id)

    async def executions(self, name: str) -> list[Execution]:
        """Return the executions of a job, newest first: `floodmark history NAME`."""
        return (await self._operations.executions(job=name)).items

    async def wait_for_state(self, execution_id: str, *states: str) -> Execution:
        """Wait until an execution is in one of these states."""

        async def check() -> Execution:
            seen = await self.execution(execution_id)
            assert seen.state in states, f"{seen.state}: {seen.reason or seen.error_message}"
            return seen

        return await eventually(check)

    async def run_and_wait(self, name: str) -> Execution:
        """Run a job now and wait until the execution has ended: `floodmark run NAME --wait`."""
        return await self.wait_for_state(await self.run(name), *ENDED)

    async def wait_for_fire(self, name: str) -> str:
        """Wait until the schedule of a job has fired for the first time, and return the id of the execution."""
        executions = await eventually(lambda: self.executions(name))
        return executions[-1].execution_id

    async def wait_for_first_run(self, name: str) -> Execution:
        """Wait until the first scheduled execution of a job has ended."""
        return await self.wait_for_state(await self.wait_for_fire(name), *ENDED)

    async def items(self, name: str) -> dict[str, Any]:
        """Return the collected items by key: `floodmark items NAME`."""
        kept = (await self._operations.items(name)).items
        return {item.key: item.data for item in kept}

    async def revisions(self, name: str, key: str) -> list[Any]:
        """Return the revisions of an item, newest first: `floodmark items NAME --key KEY`."""
        history = await self._operations.item(name, key)
        return [item.data for item in (history.newest, *history.earlier)]

    async def watermark(self, name: str) -> Any:
        """Return the watermark that the next run will get: `floodmark watermark show NAME`."""
        value = (await self._operations.watermark(name)).value
        return None if value is None else value["value"]

    async def events(self, *, after: int, count: int) -> list[Event]:
        """Wait for `count` events after a position and return them: `floodmark events --after N`."""

        async def check() -> list[Event]:
            seen = (await self._operations.events(after=after)).items
            assert len(seen) >= count, seen
            return seen[:count]

        return await eventually(check)

    async def explain(self, name: str) -> str:
        """Return why a job is not running, in one sentence: `floodmark explain NAME`."""
        return (await self._operations.explain(name)).sentence

    async def limits(self) -> dict[str, str]:
        """Return the active rate limits with their reasons: `floodmark limits`."""
        return {limit.key: limit.reason for limit in await self._operations.limits()}

    async def dead_letters(self, name: str) -> list[Execution]:
        """Return the dead letters of a job: `floodmark dlq ls NAME`."""
        return (await self._operations.letters(job=name)).items

    async def retry(self, name: str) -> None:
        """Run the dead letters of a job again: `floodmark dlq retry NAME`."""
        await self._operations.retry_letters(Letters(job=name))

    async def resume(self, name: str) -> None:
        """End the pause of a job: `floodmark resume NAME`."""
        await self._operations.resume_job(name)


def data_of(event: Event) -> Any:
    """Return the item of an event."""
    return json.loads(event.data)


@asynccontextmanager
async def opened(app: Floodmark) -> AsyncIterator[Opened]:
    """Open the application: its collectors become jobs, and nothing runs."""
    async with app.open() as resources:
        yield Opened(resources)


@asynccontextmanager
async def running(app: Floodmark) -> AsyncIterator[Opened]:
    """Run a scheduler and a worker in this process during the block, as `app.run()` does."""
    async with served(app) as (resources, _):
        yield Opened(resources)
