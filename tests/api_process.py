"""The API and nothing else in a process of its own, so that nothing happens but what is asked of it.

`python tests/api_process.py DATABASE_URL` prints where it is, and serves until its standard input ends.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command_line import environment
from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.app import Floodmark
from floodmark.observability import logs
from floodmark.settings import Settings, load
from floodmark.wiring.resources import open_resources


async def serve(settings: Settings) -> None:
    # Not to standard output, which nobody reads after the first line: once it is full, whoever logs waits for ever.
    logs.configure("warning", "json")
    validation = Floodmark(settings).validation
    async with (
        open_resources(settings, validation=validation) as resources,
        HttpServer(create_app(resources)) as server,
    ):
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def api_process(database_url: str, **settings: str) -> Iterator[str]:
    """The URL of such a process, which ends with the block. Settings are given by their keys."""
    command = [sys.executable, str(Path(__file__)), database_url]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment(), "PYTHONPATH": str(Path(__file__).parent), "PYTHON_MODULES": "feeds", **settings},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), f"the server did not start: {url!r}"
            yield url
        finally:
            process.stdin.close()
            process.wait(120)


if __name__ == "__main__":
    # Nothing from files: this folder is no place of work.
    nowhere = Path(__file__).parent / "nowhere"
    asyncio.run(serve(load({"DATABASE_URL": sys.argv[1]}, folder=nowhere, environ=os.environ)))
