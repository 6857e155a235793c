"""A port that someone asked for is that one or none; without a wish, a free one is taken and told."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from floodmark import Floodmark
from floodmark.errors import Unavailable
from floodmark.settings import Settings


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def served(app: Floodmark, port: int | None) -> int:
    """The port that it serves on; it leaves as soon as it is up."""
    stop, found = asyncio.Event(), list[int]()

    def ready(_: object, server: object) -> None:
        found.append(server.port)  # type: ignore[attr-defined] # an HttpServer
        stop.set()

    await app.serve(port=port, stop=stop, ready=ready)
    return found[0]


async def test_a_taken_port_that_was_asked_for_ends_the_process(sqlite_url: str, taken: int) -> None:
    asked = Settings(database_url=sqlite_url, port=taken)
    for app, port in ((Floodmark(asked), None), (Floodmark(Settings(database_url=sqlite_url)), taken)):
        with pytest.raises(Unavailable, match=f"port {taken} "):
            await served(app, port)
    unset = asked.with_origins({"port": "default"})
    assert await served(Floodmark(unset), None) not in (0, taken)
