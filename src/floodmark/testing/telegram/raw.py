"""Telethon's objects as bytes, both ways. Telethon knows every type of the protocol; nothing is written twice here."""

import struct
from typing import Any

from telethon.extensions import BinaryReader
from telethon.tl import types

_RPC_RESULT = 0xF35C6D01
_TRUE, _FALSE, _VECTOR = 0x997275B5, 0xBC799737, 0x1CB5C415


class Raw:
    """An object that is bytes already: it can stand wherever Telethon wants one to serialise."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def _bytes(self) -> bytes:
        return self.data


def packed(value: Any) -> bytes:
    """An answer as bytes: an object, a bool, or a list of objects."""
    if isinstance(value, bool):
        return struct.pack("<I", _TRUE if value else _FALSE)
    if isinstance(value, list):
        return struct.pack("<Ii", _VECTOR, len(value)) + b"".join(packed(item) for item in value)
    return bytes(value._bytes())


def unpacked(data: bytes) -> Any:
    """The object these bytes stand for; requests are objects too."""
    return BinaryReader(data).tgread_object()


def rpc_result(request: int, body: bytes) -> bytes:
    """The answer to the request with this message id."""
    return struct.pack("<Iq", _RPC_RESULT, request) + body


def rpc_error(code: int, name: str) -> bytes:
    """The body of an answer that says no."""
    return packed(types.RpcError(code, name))


def method_of(request: Any) -> str:
    """The name of a request as the protocol writes it: `messages.getHistory`."""
    kind = type(request)
    name = kind.__name__.removesuffix("Request")
    folder = kind.__module__.rpartition(".")[2]
    lower = name[:1].lower() + name[1:]
    return lower if folder == "functions" else f"{folder}.{lower}"
