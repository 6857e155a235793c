"""Bodies as they grow. Never more than a byte beyond the limit is unpacked, whatever the packed parts hold."""

import zlib
from typing import Protocol

from floodmark.errors import Permanent

_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_GZIP_BEGINS = b"\x1f\x8b"
# Some servers send a few packed pieces one after the other. Each costs a copy of what follows it.
_MOST_MEMBERS = 100


class Unpacked(Protocol):
    """A body that is being received."""

    def add(self, part: bytes) -> None:
        """Add what was received; `Permanent` if it cannot be unpacked."""
        ...

    @property
    def body(self) -> bytes:
        """What there is so far."""
        ...

    @property
    def is_too_large(self) -> bool:
        """Whether it is beyond the limit."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing in the end."""
        ...


def unpacker(encoding: str, most: int) -> Unpacked:
    """For a Content-Encoding; KeyError for one that is not offered, or several at once."""
    if encoding in ("", "identity"):
        return _Plain(most)
    return _Packed({"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}[encoding], most)


class _Plain:
    is_whole = True

    def __init__(self, most: int) -> None:
        self._most, self._size, self._parts = most, 0, list[bytes]()

    def add(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)

    @property
    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def is_too_large(self) -> bool:
        return self._size > self._most


class _Packed:
    def __init__(self, window: int, most: int) -> None:
        self._most, self._window, self._body = most, window, bytearray()
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def add(self, part: bytes) -> None:
        if self._stream is None:
            self._stream = self._begun(part)
        try:
            self._unpack(part)
        except zlib.error as error:
            raise Permanent(f"what it sends is not well packed: {error}") from None

    def _unpack(self, part: bytes) -> None:
        assert self._stream is not None
        while part and not self.is_too_large:
            if self._stream.eof:
                if self._window != _GZIP or not part.startswith(_GZIP_BEGINS[: len(part)]):
                    # Nothing of the body: browsers overlook it as well.
                    return
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise zlib.error("too many pieces")
                self._stream = zlib.decompressobj(_GZIP)
            self._body += self._stream.decompress(part, self._most + 1 - len(self._body))
            part = self._stream.unused_data

    def _begun(self, part: bytes) -> "zlib._Decompress":
        # "deflate" means zlib's format, but some send it without its head.
        has_head = self._window != _ZLIB or part[0] & 0x0F == 8
        return zlib.decompressobj(self._window if has_head else _RAW)

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    @property
    def is_too_large(self) -> bool:
        return len(self._body) > self._most

    @property
    def is_whole(self) -> bool:
        return self._stream is not None and self._stream.eof
