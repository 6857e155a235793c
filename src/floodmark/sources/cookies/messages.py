"""What a worker and the process of a browser tell each other: msgpack behind its length.

The first message to the browser is `Start`, each further one an `Order`; each is answered by an `ScanAnswer`.
"""

import struct
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from .findings import Found
from .params import CookieParams

LARGEST = 256 * 1024 * 1024
_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size


class Start(Struct, frozen=True, kw_only=True):
    """How the browser is to be started."""

    executable: str
    folder: str
    """Of this browser alone, for its profile; removed in the end."""
    third_party_cookies: bool = True
    sandbox: bool = True
    user_agent: str = ""
    """The operator's own, which makes scans recognisable; empty: the usual one of this browser."""
    allow_hosts: str = ""
    resolve: Mapping[str, Sequence[str]] = {}


class Order(Struct, frozen=True, kw_only=True):
    """A scan to be made."""

    domain: str
    starts: tuple[str, ...]
    """Where to begin; the next is tried when nobody answers at one."""
    params: CookieParams
    page_seconds: float
    settle_seconds: float
    """How long scripts have to do what they want after a page was loaded."""
    banner_seconds: float
    """How long a page is watched for a banner before it counts as having none."""
    scan_seconds: float
    """When this is over, no more pages are visited."""


class ScanAnswer(Struct, frozen=True, kw_only=True):
    """What became of a message; one of these is there, or none when the browser has started."""

    found: Found | None = None
    unreachable: str | None = None
    refused: str | None = None
    crashed: str | None = None


def framed(message: Struct) -> bytes:
    """A message as it goes through a pipe."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """How long the message behind this head is."""
    return int(_LENGTH.unpack(head)[0])
