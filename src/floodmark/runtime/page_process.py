"""The page server itself: a process that answers requests of open pages. Its parent is described in `page_server`.

`python -m floodmark.runtime.page_process DESCRIPTOR` reads requests from a socket that it inherits, and ends with it.
"""

import asyncio
import os
import pickle
import socket
import sys
from typing import Any

from msgspec.structs import replace
from starlette.types import ASGIApp, Message

from floodmark.api.app import create_app
from floodmark.api.turnstile import Turns
from floodmark.dashboard.routes import dashboard_routes
from floodmark.observability import logs
from floodmark.process import eventloop
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources

from .page_messages import Begin, Ready, Refresh, Refreshed, read_message, write_message

# One page after the other: they are asked for in the same moment, and jobs need the cores and the database, too.
_TURNS = Turns(at_once=1)
_NICE = 10


async def serve(connection: socket.socket) -> None:
    """Answer requests until the parent closes the socket or has ended."""
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    begin = await read_message(reader, Begin)
    if begin is None:
        return
    # From our parent, which runs the same code.
    settings: Settings = pickle.loads(begin.settings)  # noqa: S301
    logs.configure(settings.log_level, settings.log_format)
    async with open_resources(settings) as resources, asyncio.TaskGroup() as answering:
        app = create_app(replace(resources, name=begin.name), turns=_TURNS, pages=dashboard_routes())
        write_message(writer, Ready())
        while (refresh := await read_message(reader, Refresh)) is not None:
            # Pages that were begun for an older version do not show what this page has heard of.
            app.state.live.version = max(app.state.live.version, refresh.version)
            answering.create_task(_answer(app, refresh, writer))
    writer.close()


async def _answer(app: ASGIApp, refresh: Refresh, writer: asyncio.StreamWriter) -> None:
    status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
        else:
            parts.append(message.get("body", b""))

    # A request whose answer is an unexpected error is answered with 500 by the outermost layer, and logged.
    await app(_scope(refresh), receive, send)
    write_message(writer, Refreshed(number=refresh.number, status=status, headers=headers, body=b"".join(parts)))


def _scope(refresh: Refresh) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": refresh.scheme,
        "path": refresh.path,
        "raw_path": refresh.raw_path,
        "query_string": refresh.query_string,
        "root_path": refresh.root_path,
        "headers": refresh.headers,
        "client": refresh.client,
        "server": refresh.server,
    }


if __name__ == "__main__":
    os.nice(_NICE)
    eventloop.run(serve(socket.socket(fileno=int(sys.argv[1]))))
