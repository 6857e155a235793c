"""A running application in the process of a test, as `floodmark up` starts it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from floodmark.app import Floodmark
from floodmark.wiring.resources import Resources


class Served(NamedTuple):
    """A running application and its URL."""

    resources: Resources
    url: str


@asynccontextmanager
async def served(app: Floodmark, *, scheduler: bool = True, worker: bool = True) -> AsyncIterator[Served]:
    """Run the application in these roles, on a free port, until the block ends; raises start-up errors."""
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        app.serve(
            scheduler=scheduler,
            worker=worker,
            stop=stop,
            port=0,
            ready=lambda resources, server: ready.set_result(Served(resources, server.url)),
        )
    )
    try:
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        yield ready.result()
    finally:
        stop.set()
        await serving
