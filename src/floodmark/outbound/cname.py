"""Finds the aliases (CNAME records) of a host by a question to a DNS server, over UDP.

The system's own lookup returns addresses only. The server is trusted, like that of the system; its answer is data of
strangers, and every offset in it is checked.
"""

import asyncio
import re
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from floodmark.model.hosts import DnsServer

_HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_A, _CNAME, _INTERNET = 1, 5, 1
_RECURSE, _IS_ANSWER, _CODE = 0x0100, 0x8000, 0x000F
_NO_ERROR, _NO_NAME = 0, 3
_LONGEST_NAME, _LONGEST_LABEL = 253, 63
_MOST_RECORDS, _MOST_ALIASES = 200, 20
_LABEL = re.compile(rb"[A-Za-z0-9_-]{1,63}")


class DnsFailed(Exception):
    """There is no usable answer."""


def system_server(path: Path = Path("/etc/resolv.conf")) -> DnsServer | None:
    """Return the first DNS server of the system; None if it names none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.strip().partition(" ")
        if name == "nameserver" and (address := rest.strip().partition("%")[0]):
            return DnsServer(address)
    return None


async def find_aliases(host: str, server: DnsServer, *, seconds: float = 3.0) -> list[str]:
    """Return the chain of aliases of a host, in order; `DnsFailed` if the server does not answer the question."""
    number, loop = secrets.randbelow(65_536), asyncio.get_running_loop()
    question = encode_question(host, number)
    answer: asyncio.Future[bytes] = loop.create_future()
    try:
        async with asyncio.timeout(seconds):
            # A connected socket receives datagrams of the server alone.
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Answers(answer, number), remote_addr=(server.host, server.port)
            )
            try:
                transport.sendto(question)
                return decode_aliases(await answer, host)
            finally:
                transport.close()
    except (TimeoutError, OSError) as error:
        raise DnsFailed(f"the DNS server {server.host} does not answer") from error


class _Answers(asyncio.DatagramProtocol):
    def __init__(self, answer: "asyncio.Future[bytes]", number: int) -> None:
        self._answer, self._number = answer, number

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not self._answer.done() and data[:2] == self._number.to_bytes(2) and len(data) >= _HEADER.size:
            self._answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def encode_question(host: str, number: int) -> bytes:
    """Return the question for the addresses of a host: the answer includes its aliases."""
    labels = host.rstrip(".").encode("ascii", "replace").split(b".")
    if len(host) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise DnsFailed(f"{host[:80]!r} is not a host name")
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return _HEADER.pack(number, _RECURSE, 1, 0, 0, 0) + name + struct.pack("!HH", _A, _INTERNET)


def decode_aliases(answer: bytes, host: str) -> list[str]:
    """Return the chain of aliases in an answer, from `host` on; `DnsFailed` if it is none."""
    try:
        _, flags, questions, records, _, _ = _HEADER.unpack_from(answer)
        if not flags & _IS_ANSWER or flags & _CODE not in (_NO_ERROR, _NO_NAME):
            raise DnsFailed(f"the DNS server refuses the question (code {flags & _CODE})")
        return _follow(dict(_aliases(answer, questions, min(records, _MOST_RECORDS))), host.rstrip(".").lower())
    except (struct.error, IndexError) as error:
        raise DnsFailed("the answer of the DNS server is malformed") from error


def _aliases(answer: bytes, questions: int, records: int) -> Iterator[tuple[str, str]]:
    at = _HEADER.size
    for _ in range(min(questions, _MOST_RECORDS)):
        at = _read_name(answer, at)[1] + 4
    for _ in range(records):
        owner, at = _read_name(answer, at)
        kind, group, _, length = _RECORD.unpack_from(answer, at)
        at += _RECORD.size
        if kind == _CNAME and group == _INTERNET:
            yield owner, _read_name(answer, at)[0]
        at += length


def _follow(aliases: dict[str, str], host: str) -> list[str]:
    found: list[str] = []
    while (host := aliases.get(host, "")) and host not in found and len(found) < _MOST_ALIASES:
        found.append(host)
    return found


def _read_name(answer: bytes, at: int) -> tuple[str, int]:
    """Return a name in lower case and the place after it. Part of a name may be a pointer to an earlier one."""
    labels: list[str] = []
    end, first = None, at
    while length := answer[at]:
        if length >= 0xC0:
            end = at + 2 if end is None else end
            target = (length & 0x3F) << 8 | answer[at + 1]
            if target >= first:
                # A pointer leads backwards, so that there is no circle.
                raise DnsFailed("the answer of the DNS server is malformed")
            at = first = target
            continue
        if length > _LONGEST_LABEL or at + length >= len(answer):
            raise DnsFailed("the answer of the DNS server is malformed")
        labels.append(answer[at + 1 : at + 1 + length].decode("latin-1"))
        at += length + 1
        if sum(map(len, labels)) > _LONGEST_NAME:
            raise DnsFailed("the answer of the DNS server is malformed")
    return ".".join(labels).lower(), at + 1 if end is None else end
