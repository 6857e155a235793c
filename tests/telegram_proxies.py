"""Small proxies on loopback, which count what passes through them."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from telethon.crypto import AESModeCTR
from telethon.network.connection.tcpintermediate import IntermediatePacketCodec, RandomizedIntermediatePacketCodec

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class CountedProxy:
    """A proxy that listens; `seen` are the addresses that clients asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, int]] = []
        self.refused = 0


@asynccontextmanager
async def listening(proxy: CountedProxy, serve: Serve) -> AsyncIterator[CountedProxy]:
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def socks5(username: str, password: str) -> AsyncIterator[CountedProxy]:
    """A SOCKS5 proxy with a name and a password (RFC 1928, RFC 1929)."""
    proxy = CountedProxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        assert 2 in await reader.readexactly(count), "a password is required"
        writer.write(b"\x05\x02")
        _, length = await reader.readexactly(2)
        name = await reader.readexactly(length)
        [length] = await reader.readexactly(1)
        is_right = (name.decode(), (await reader.readexactly(length)).decode()) == (username, password)
        writer.write(b"\x01\x00" if is_right else b"\x01\x01")
        if not is_right:
            proxy.refused += 1
            return
        assert (await reader.readexactly(4))[3] == 1, "an address of IPv4"
        host = ".".join(str(part) for part in await reader.readexactly(4))
        port = int.from_bytes(await reader.readexactly(2), "big")
        proxy.seen.append((host, port))
        upstream = await asyncio.open_connection(host, port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await _pass_both((reader, writer), upstream)

    async with listening(proxy, serve):
        yield proxy


@asynccontextmanager
async def mtproxy(secret: bytes, upstream_port: int) -> AsyncIterator[CountedProxy]:
    """An MTProxy for secrets with dd: it removes the obfuscation and passes packets on."""
    proxy = CountedProxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = await reader.readexactly(64)
        turned = header[55:7:-1]
        decrypt = AESModeCTR(hashlib.sha256(header[8:40] + secret).digest(), header[40:56])
        encrypt = AESModeCTR(hashlib.sha256(turned[:32] + secret).digest(), turned[32:48])
        plain = decrypt.encrypt(header)
        if plain[56:60] != RandomizedIntermediatePacketCodec.obfuscate_tag:
            proxy.refused += 1
            return
        proxy.seen.append(("data centre", int.from_bytes(plain[60:62], "little", signed=True)))
        there, out = await asyncio.open_connection("127.0.0.1", upstream_port)
        out.write(IntermediatePacketCodec.tag)
        padded, bare = RandomizedIntermediatePacketCodec(None), IntermediatePacketCodec(None)

        class Decrypted:
            async def readexactly(self, count: int) -> bytes:
                return bytes(decrypt.encrypt(await reader.readexactly(count)))

        async def up() -> None:
            while True:
                out.write(bare.encode_packet(await padded.read_packet(Decrypted())))

        async def down() -> None:
            while True:
                writer.write(encrypt.encrypt(padded.encode_packet(await bare.read_packet(there))))

        try:
            await _first_to_end(up(), down())
        finally:
            out.close()

    async with listening(proxy, serve):
        yield proxy


async def _pass_both(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    try:
        await _first_to_end(copy(one[0], other[1]), copy(other[0], one[1]))
    finally:
        other[1].close()


async def _first_to_end(*work: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
