"""The API and nothing else in a process of its own, so that nothing happens but what is asked of it.

The process is forked from one that has imported everything, as in `forked`.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from command_line import environment
from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.app import Floodmark
from floodmark.observability import logs
from floodmark.settings import Settings, load
from floodmark.wiring.resources import open_resources
from forked import fork_context

# A busy machine takes its time.
PATIENCE = 120.0


@contextmanager
def api_process(database_url: str, **settings: str) -> Iterator[str]:
    """The URL of such a process, which ends with the block. Settings are given by their keys."""
    environ = {**environment(), "PYTHON_MODULES": "feeds", **settings}
    ours, theirs = fork_context().Pipe()
    process = fork_context().Process(target=_be, args=(database_url, environ, theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(PATIENCE), "the server did not start in time"
        yield ours.recv()
    finally:
        # The process serves until our end is closed.
        ours.close()
        process.join(PATIENCE)
        assert process.exitcode == 0, f"the server ended with code {process.exitcode}"
        process.close()


def _be(database_url: str, environ: Mapping[str, str], pipe: Connection) -> None:
    os.environ.clear()
    os.environ.update(environ)
    # Nothing from files: this folder is no place of work.
    nowhere = Path(__file__).parent / "nowhere"
    asyncio.run(_serve(load({"DATABASE_URL": database_url}, folder=nowhere, environ=os.environ), pipe))


async def _serve(settings: Settings, pipe: Connection) -> None:
    logs.configure("error", "json")
    validation = Floodmark(settings).validation
    async with (
        open_resources(settings, validation=validation) as resources,
        HttpServer(create_app(resources)) as server,
    ):
        pipe.send(server.url)
        with suppress(EOFError):
            await asyncio.to_thread(pipe.recv)
