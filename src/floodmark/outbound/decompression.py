"""Bodies as they grow. Never more than a byte beyond the limit is unpacked, whatever the packed parts hold."""

import zlib
from typing import Protocol

from floodmark.errors import Permanent

_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_GZIP_BEGINS = b"\x1f\x8b"
# Some servers send a few packed pieces one after the other. Each costs a copy of what follows it.
_MOST_MEMBERS = 100
# What is unpacked at once: more would keep everyone else in this process waiting.
_STEP_BYTES = 1024 * 1024


class Unpacked(Protocol):
    """A body that is being received."""

    def add(self, part: bytes) -> None:
        """Add what was received; `Permanent` if it cannot be unpacked. The first step is made at once."""
        ...

    def go_on(self) -> None:
        """Make the next step."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether there is a next step. To be made before more is added."""
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
    is_whole, has_more = True, False

    def __init__(self, most: int) -> None:
        self._most, self._size, self._parts = most, 0, list[bytes]()

    def add(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)

    def go_on(self) -> None:
        raise AssertionError("there is nothing to unpack")

    @property
    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def is_too_large(self) -> bool:
        return self._size > self._most


class _Packed:
    def __init__(self, window: int, most: int) -> None:
        self._most, self._window, self._size, self._parts = most, window, 0, list[bytes]()
        self._stream: zlib._Decompress | None = None
        self._rest, self._is_full, self._members = b"", False, 0

    def add(self, part: bytes) -> None:
        if self._stream is None:
            self._stream = self._begun(part)
        self._rest = part
        self.go_on()

    def go_on(self) -> None:
        assert self._stream is not None
        if self._stream.eof and not self._is_another_member():
            # Nothing of the body: browsers overlook it as well.
            self._rest, self._is_full = b"", False
            return
        # At least one byte: to zlib, none means any number.
        step = min(_STEP_BYTES, self._most + 1 - self._size)
        try:
            part = self._stream.decompress(self._rest, step)
        except zlib.error as error:
            raise Permanent(f"what it sends is not well packed: {error}") from None
        self._parts.append(part)
        self._size += len(part)
        # A step that was filled may have left something inside, even if it took all there was to take.
        self._is_full = len(part) == step and not self._stream.eof
        self._rest = self._stream.unconsumed_tail or self._stream.unused_data

    def _is_another_member(self) -> bool:
        if self._window != _GZIP or not self._rest.startswith(_GZIP_BEGINS[: len(self._rest)]):
            return False
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise Permanent("what it sends is packed in too many pieces")
        self._stream = zlib.decompressobj(_GZIP)
        return True

    def _begun(self, part: bytes) -> "zlib._Decompress":
        # "deflate" means zlib's format, but some send it without its head.
        has_head = self._window != _ZLIB or part[0] & 0x0F == 8
        return zlib.decompressobj(self._window if has_head else _RAW)

    @property
    def has_more(self) -> bool:
        return (bool(self._rest) or self._is_full) and not self.is_too_large

    @property
    def body(self) -> bytes:
        return b"".join(self._parts)

    @property
    def is_too_large(self) -> bool:
        return self._size > self._most

    @property
    def is_whole(self) -> bool:
        return self._stream is not None and self._stream.eof
