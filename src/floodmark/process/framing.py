"""Messages between a process and its child: msgpack, each with its length in front."""

import struct

import msgspec
from msgspec import Struct

_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size


def encode_message(message: Struct) -> bytes:
    """Return a message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def read_length(head: bytes) -> int:
    """Return the length of the message after this head."""
    return int(_LENGTH.unpack(head)[0])
