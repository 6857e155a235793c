"""What a process and its page server send to each other: see `page_server`."""

import asyncio
from typing import TypeVar

import msgspec
from msgspec import Struct

from floodmark.process.framing import HEAD, encode_message, read_length

T = TypeVar("T", bound=Struct)


class Begin(Struct, frozen=True):
    """The first message to a page server: the name of its parent, which pages show, and its pickled settings.

    Nobody else can write to the socket.
    """

    name: str
    settings: bytes


class Ready(Struct, frozen=True):
    """The first message from a page server: it has opened the database."""


class Refresh(Struct, frozen=True, kw_only=True):
    """A request of an open page for itself. `version`: that of the live feed, which the page has heard of."""

    number: int
    version: int
    scheme: str
    path: str
    raw_path: bytes
    query_string: bytes
    root_path: str
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None


class Refreshed(Struct, frozen=True, kw_only=True):
    """The response to a `Refresh`."""

    number: int
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def read_message(reader: asyncio.StreamReader, kind: type[T]) -> T | None:
    """Return the next message; None if the other process has ended."""
    try:
        head = await reader.readexactly(HEAD)
        return msgspec.msgpack.decode(await reader.readexactly(read_length(head)), type=kind)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write_message(writer: asyncio.StreamWriter, message: Struct) -> None:
    """Send a message; the operating system keeps what the other process has not read yet."""
    writer.write(encode_message(message))
