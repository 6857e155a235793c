"""A small DNS server on loopback that knows some aliases."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any


class NameServer(asyncio.DatagramProtocol):
    """Answers each question with the aliases of the name and an address; `asked` has the names."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases, self.asked = aliases, list[str]()
        self._transport: Any = None
        self.code = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        name = read_name(data)
        self.asked.append(name)
        end = 12 + len(name) + 2 + 4
        records, owner = [], struct.pack("!H", 0xC00C)
        while (target := self._aliases.get(name)) is not None:
            content = encode_name(target)
            records.append(owner + struct.pack("!HHIH", 5, 1, 60, len(content)) + content)
            name, owner = target, encode_name(target)
        records.append(owner + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([127, 0, 0, 1]))
        head = data[:2] + struct.pack("!HHHHH", 0x8180 | self.code, 1, len(records), 0, 0)
        self._transport.sendto(head + data[12:end] + b"".join(records), addr)


def encode_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def read_name(question: bytes) -> str:
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode())
        at += length + 1
    return ".".join(labels)


@asynccontextmanager
async def serving_names(aliases: Mapping[str, str]) -> AsyncIterator[tuple[NameServer, int]]:
    """The server and its port."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: NameServer(aliases), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server, transport.get_extra_info("sockname")[1]
    finally:
        transport.close()
