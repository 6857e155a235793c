"""WARC files of one job: a record for each response, in the order of their arrival. Blocking; use it in a thread.

A record is one gzip member and is written at once. `sync` makes all records durable. A file has the suffix `.open`
until it is complete; the next run finishes a file that a killed process has left.
"""

import io
import os
import re
import secrets
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from floodmark.outbound.client import HttpAnswer
from floodmark.process.failpoints import failpoint
from floodmark.process.inner_folders import make_inner_folder, refuse_link, sync_folder
from floodmark.version import __version__

from .files import OPEN, explain_archive_errors, finish_left_files, folder_name, lock_file
from .payloads import Capture, Payloads

if TYPE_CHECKING:
    from warcio.statusandheaders import StatusAndHeaders

_SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
# The body is decoded, so these no longer describe it. Replay tools read the originals under the other names.
_CODED = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_BREAKS = re.compile(r"[\r\n\0]+")
# Smaller payloads are not worth a record that refers to another one.
_SMALLEST = 256


class WarcArchive:
    """Appends records to the WARC files of a stream."""

    def __init__(self, root: Path, stream: str, execution_id: str, *, most_bytes: int) -> None:
        self._root, self._folder = root, root / "warc" / folder_name(stream)
        self._name, self._most = execution_id[:8], most_bytes
        self._file: IO[bytes] | None = None
        self._path = self._folder
        self._payloads: Payloads | None = None
        self._number = self._size = 0
        self.records = 0

    def open(self) -> None:
        """Create the folder and finish files that a killed process has left."""
        with explain_archive_errors(self._folder):
            make_inner_folder(self._root, self._folder)
            finish_left_files(self._folder)
        payloads = self._folder / "payloads.sqlite"
        refuse_link(payloads)
        self._payloads = Payloads(payloads)

    def add(self, url: str, answer: HttpAnswer, now: datetime) -> None:
        """Write the record of a response. It is durable after `sync`."""
        assert self._payloads is not None
        record, capture = _make_record(url, answer, now, self._payloads)
        with explain_archive_errors(self._folder):
            if self._file is None or self._size > self._most:
                self._rotate(now)
            assert self._file is not None
            self._append(record)
        if capture is not None:
            self._payloads.add(capture)
        self.records += 1

    def sync(self) -> None:
        """Make the records durable, and then the digests that refer to them."""
        if self._file is not None:
            with explain_archive_errors(self._folder):
                os.fsync(self._file.fileno())
        failpoint("archive.synced")
        if self._payloads is not None:
            self._payloads.commit()

    def close(self) -> None:
        """Complete the last file."""
        self.sync()
        self._finish()
        if self._payloads is not None:
            self._payloads.close()
            self._payloads = None

    def _append(self, record: bytes) -> None:
        file = self._file
        assert file is not None
        rest = memoryview(record)
        try:
            while rest:
                rest = rest[file.write(rest) :]
                failpoint("archive.written")
        except BaseException:
            # On a full disk: no half a record before the next one.
            file.truncate(self._size)
            file.seek(self._size)
            raise
        self._size += len(record)

    def _rotate(self, now: datetime) -> None:
        self._finish()
        stamp = now.astimezone(UTC).strftime("%Y%m%d%H%M%S")
        name = f"{stamp}-{self._name}-{secrets.token_hex(2)}-{self._number:05d}.warc.gz"
        self._path, self._size = self._folder / f"{name}{OPEN}", 0
        self._number += 1
        # Without a buffer: a record reaches the system in one call.
        self._file = self._path.open("xb", buffering=0)
        lock_file(self._file)
        sync_folder(self._folder)
        self._append(_make_info(name, now))

    def _finish(self) -> None:
        if self._file is None:
            return
        with explain_archive_errors(self._folder), self._file as file:
            os.fsync(file.fileno())
            self._path.rename(self._path.with_name(self._path.name.removesuffix(OPEN)))
            sync_folder(self._folder)
        self._file = None


def _make_record(url: str, answer: HttpAnswer, now: datetime, payloads: Payloads) -> tuple[bytes, Capture | None]:
    """Return the record of a response, and its payload if it is stored for the first time."""
    builder, date = _builder(), _stamp(now)
    headers = _make_headers(answer)
    if answer.status == 304:
        record = builder.create_revisit_record(
            url, digest=_digest(b""), refers_to_uri=url, refers_to_date=date, http_headers=headers
        )
        record.rec_headers.replace_header("WARC-Profile", _NOT_MODIFIED)
        for name in ("WARC-Payload-Digest", "WARC-Refers-To-Date"):
            # A 304 says nothing about the payload, nor when it was stored.
            record.rec_headers.remove_header(name)
        record.rec_headers.replace_header("WARC-Date", date)
        return _encode(record), None
    digest = _digest(answer.body)
    known = payloads.find(digest) if len(answer.body) >= _SMALLEST else None
    if known is not None:
        record = builder.create_revisit_record(
            url, digest=digest, refers_to_uri=known.url, refers_to_date=known.date, http_headers=headers
        )
        record.rec_headers.replace_header("WARC-Profile", _SAME_PAYLOAD)
        record.rec_headers.replace_header("WARC-Date", date)
        return _encode(record), None
    record = builder.create_warc_record(
        url,
        "response",
        payload=io.BytesIO(answer.body),
        length=len(answer.body),
        http_headers=headers,
        warc_headers_dict={"WARC-Date": date, "WARC-Payload-Digest": digest},
    )
    return _encode(record), Capture(digest=digest, url=url, date=date)


def _make_info(name: str, now: datetime) -> bytes:
    builder = _builder()
    info = {"software": f"floodmark/{__version__}", "format": "WARC File Format 1.1"}
    record = builder.create_warcinfo_record(name, info)
    record.rec_headers.replace_header("WARC-Date", _stamp(now))
    return _encode(record)


def _make_headers(answer: HttpAnswer) -> "StatusAndHeaders":
    from warcio.statusandheaders import StatusAndHeaders  # noqa: PLC0415 - of an extra

    found = []
    for name, value in answer.headers.items():
        kept = f"X-Archive-Orig-{name}" if name.lower() in _CODED else name
        found.append((_BREAKS.sub(" ", kept), _BREAKS.sub(" ", value)))
    if answer.status != 304:
        found.append(("Content-Length", str(len(answer.body))))
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    return StatusAndHeaders(f"{answer.status} {phrase}", found, protocol="HTTP/1.1")


def _builder() -> Any:
    from warcio.recordbuilder import RecordBuilder  # noqa: PLC0415 - of an extra

    return RecordBuilder(warc_version="1.1")


def _encode(record: Any) -> bytes:
    from warcio.warcwriter import WARCWriter  # noqa: PLC0415 - of an extra

    out = io.BytesIO()
    WARCWriter(out, gzip=True, warc_version="1.1").write_record(record)
    return out.getvalue()


def _digest(body: bytes) -> str:
    from warcio.utils import Digester  # noqa: PLC0415 - of an extra

    made = Digester("sha1")
    made.update(body)
    return str(made)


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
