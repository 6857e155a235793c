"""Conversion between Telethon's objects and bytes. Telethon defines every type of the protocol."""

import struct
from typing import Any

from telethon.extensions import BinaryReader
from telethon.tl import types

_RPC_RESULT = 0xF35C6D01
_TRUE, _FALSE, _VECTOR = 0x997275B5, 0xBC799737, 0x1CB5C415


class Raw:
    """A serialised object that can be used wherever Telethon serialises one."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def _bytes(self) -> bytes:
        return self.data


def pack(value: Any) -> bytes:
    """Serialise a response: an object, a bool, or a list of objects."""
    if isinstance(value, bool):
        return struct.pack("<I", _TRUE if value else _FALSE)
    if isinstance(value, list):
        return struct.pack("<Ii", _VECTOR, len(value)) + b"".join(pack(item) for item in value)
    return bytes(value._bytes())


def unpack(data: bytes) -> Any:
    """Deserialise an object; requests are objects too."""
    return BinaryReader(data).tgread_object()


def rpc_result(request: int, body: bytes) -> bytes:
    """Return the response to the request with this message id."""
    return struct.pack("<Iq", _RPC_RESULT, request) + body


def rpc_error(code: int, name: str) -> bytes:
    """Return the body of an error response."""
    return pack(types.RpcError(code, name))


def method_of(request: Any) -> str:
    """Return the protocol name of a request: `messages.getHistory`."""
    kind = type(request)
    name = kind.__name__.removesuffix("Request")
    folder = kind.__module__.rpartition(".")[2]
    lower = name[:1].lower() + name[1:]
    return lower if folder == "functions" else f"{folder}.{lower}"
