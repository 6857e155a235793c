"""Response bodies as they arrive. Never decompresses more than one byte beyond the limit, whatever was compressed."""

import zlib

from floodmark.errors import Permanent

_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
# Some servers send several gzip members one after the other. Each costs a copy of what follows it.
_MAX_MEMBERS = 100
# Bytes decompressed at once: more would block the event loop for too long.
_STEP_BYTES = 1024 * 1024


class PlainBody:
    """A body without compression. Add each part, then call `step` while `has_more`."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size, self._parts = limit, 0, list[bytes]()

    def add(self, part: bytes) -> None:
        """Add received bytes and take the first step; `Permanent` if they cannot be decompressed."""
        self._size += len(part)
        self._parts.append(part)

    def step(self) -> None:
        """Decompress the next portion of what was added."""

    @property
    def has_more(self) -> bool:
        """Whether another step is needed before more is added."""
        return False

    @property
    def content(self) -> bytes:
        """The decompressed bytes so far."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def is_too_large(self) -> bool:
        """Whether the content exceeds the limit."""
        return self._size > self._limit

    @property
    def is_complete(self) -> bool:
        """Whether the compressed data has reached its end."""
        return True


class _CompressedBody(PlainBody):
    def __init__(self, limit: int, window: int) -> None:
        super().__init__(limit)
        self._window = window
        self._stream: zlib._Decompress | None = None
        self._rest, self._is_full, self._members = b"", False, 0

    def add(self, part: bytes) -> None:
        if self._stream is None:
            # "deflate" means zlib's format, but some servers send it without the zlib header.
            has_header = self._window != _ZLIB or part[0] & 0x0F == 8
            self._stream = zlib.decompressobj(self._window if has_header else _RAW)
        self._rest = part
        self.step()

    def step(self) -> None:
        assert self._stream is not None
        if self._stream.eof and not self._open_next_member():
            # Trailing bytes are not part of the body: browsers ignore them as well.
            self._rest, self._is_full = b"", False
            return
        # At least one byte: zlib reads 0 as "no limit".
        step = min(_STEP_BYTES, self._limit + 1 - self._size)
        try:
            part = self._stream.decompress(self._rest, step)
        except zlib.error as error:
            raise Permanent(f"the body is not validly compressed: {error}") from None
        super().add(part)
        # A full step may have left output inside zlib, even if all input was consumed.
        self._is_full = len(part) == step and not self._stream.eof
        self._rest = self._stream.unconsumed_tail or self._stream.unused_data

    def _open_next_member(self) -> bool:
        if self._window != _GZIP or not self._rest.startswith(_GZIP_MAGIC[: len(self._rest)]):
            return False
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise Permanent(f"the body has more than {_MAX_MEMBERS} gzip members")
        self._stream = zlib.decompressobj(_GZIP)
        return True

    @property
    def has_more(self) -> bool:
        return (bool(self._rest) or self._is_full) and not self.is_too_large

    @property
    def is_complete(self) -> bool:
        return self._stream is not None and self._stream.eof


def open_body(encoding: str, limit: int) -> PlainBody:
    """Return an empty body for a Content-Encoding; KeyError for one that Floodmark does not offer."""
    if encoding in ("", "identity"):
        return PlainBody(limit)
    return _CompressedBody(limit, {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}[encoding])
