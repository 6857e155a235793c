"""One connection: transports, encryption, sessions, containers and acknowledgements of MTProto 2.0.

Telethon's own codecs read and write packets; they work for both sides. Each request is handled in its own task, so that
a slow response does not block others or pings.
"""

import asyncio
import logging
import os
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from telethon.crypto import AES
from telethon.network.connection.tcpabridged import AbridgedPacketCodec
from telethon.network.connection.tcpfull import FullPacketCodec
from telethon.network.connection.tcpintermediate import IntermediatePacketCodec, RandomizedIntermediatePacketCodec
from telethon.network.mtprotostate import MTProtoState
from telethon.tl import functions, types
from telethon.tl.core import GzipPacked, MessageContainer

from .backend import TelegramBackend
from .handshake import Exchange
from .raw import method_of, pack, rpc_result, unpack
from .sessions import Key

log = logging.getLogger(__name__)

_UNKNOWN_KEY = struct.pack("<i", -404)
_WRONG_SALT = 48
# A client sends its first bytes at once, and later a ping every minute.
_HEAD_SECONDS, _IDLE_SECONDS = 60.0, 600.0
_IGNORED = (types.MsgsAck, types.MsgsStateReq, types.MsgResendReq, functions.RpcDropAnswerRequest)
_WRAPPERS = (
    functions.InvokeWithLayerRequest,
    functions.InitConnectionRequest,
    functions.InvokeAfterMsgRequest,
)


@dataclass(frozen=True, slots=True)
class Request:
    """An incoming call. `sent_at` is when the client sent it, by the server's clock."""

    query: Any
    method: str
    message_id: int
    takeout_id: int | None = None

    @property
    def sent_at(self) -> float:
        """Return the time in the message id: seconds in the upper half, nanoseconds in the lower."""
        return (self.message_id >> 32) + ((self.message_id & 0xFFFFFFFF) >> 2) / 1e9


Handler = Callable[["WireConnection", Request], Awaitable[None]]


class WireConnection:
    """The connection of a client. `greet` handles the first use of a key, `handle` each call."""

    def __init__(
        self,
        number: int,
        backend: TelegramBackend,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        greet: Callable[["WireConnection"], Awaitable[None]],
        handle: Handler,
    ) -> None:
        self.number = number
        self.key: Key | None = None
        # Whether the client accepts updates.
        self.wants_updates = False
        # `time.monotonic()` of its last call.
        self.called_at = 0.0
        self.is_open = True
        self._world, self._reader, self._writer, self._greet, self._handle = backend, reader, writer, greet, handle
        self._codec: Any = None
        self._encrypt: Callable[[bytes], bytes] = _unchanged
        self._exchange = Exchange(backend)
        self._session, self._announced, self._last_id = 0, 0, 0
        self._is_mute = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Read until the client disconnects, then release everything."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                source = await self._detect()
            while True:
                async with asyncio.timeout(_IDLE_SECONDS):
                    packet = await self._codec.read_packet(source)
                await self._receive(packet)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, _InvalidData):
            pass
        finally:
            self.abort()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def abort(self) -> None:
        """Break the connection."""
        self.is_open = False
        transport: Any = self._writer.transport
        transport.abort()

    def close(self) -> None:
        """Break the connection after all written data is sent."""
        self.is_open = False
        self._writer.close()

    def half_close(self) -> None:
        """Close the sending side; data from the client is still read."""
        self._is_mute = True
        if self._writer.can_write_eof():
            self._writer.write_eof()

    def send(self, body: bytes, *, portion: float = 1.0) -> None:
        """Send a message of the session; with a `portion` only its first part."""
        if self.key is None or self._is_mute or not self.is_open:
            return
        data = self._write(self._encrypt_message(self.key, body))
        self._writer.write(data[: int(len(data) * portion)])

    async def flush(self) -> None:
        """Wait until the client has read the sent data."""
        if self.is_open and not self._is_mute:
            await self._writer.drain()

    def answer(self, request: Request, body: bytes, *, portion: float = 1.0) -> None:
        """Send the response to a call."""
        self.send(rpc_result(request.message_id, body), portion=portion)

    async def _detect(self) -> "PacketSource":
        head = await self._reader.readexactly(1)
        if head == b"\xef":
            self._codec = AbridgedPacketCodec(None)
            return self._reader
        head += await self._reader.readexactly(3)
        if head == b"\xee" * 4:
            self._codec = IntermediatePacketCodec(None)
            return self._reader
        head += await self._reader.readexactly(4)
        # Full: a length, then the number of the first packet.
        if head[4:] == bytes(4):
            self._codec = FullPacketCodec(None)
            return ReadAhead(self._reader, head)
        return self._obfuscated(head + await self._reader.readexactly(56))

    def _obfuscated(self, head: bytes) -> "PacketSource":
        decrypt, self._encrypt = _stream_cipher(head[8:56]), _stream_cipher(head[55:7:-1])
        tag = decrypt(head)[56:60]
        codecs = (AbridgedPacketCodec, IntermediatePacketCodec, RandomizedIntermediatePacketCodec)
        found = next((codec for codec in codecs if codec.obfuscate_tag == tag), None)
        if found is None:
            raise _InvalidData
        self._codec = found(None)
        return DecryptingReader(self._reader, decrypt)

    def _write(self, packet: bytes) -> bytes:
        return self._encrypt(self._codec.encode_packet(packet))

    async def _receive(self, packet: bytes) -> None:
        key_id = int.from_bytes(packet[:8], "little")
        if key_id == 0:
            self._receive_plain(packet)
            return
        key = self._world.keys.get(key_id)
        if key is None:
            self._writer.write(self._write(_UNKNOWN_KEY))
            return
        plain = _decrypt(key, packet)
        if self.key is not key:
            self.key = key
            await self._greet(self)
        self._receive_sealed(key, plain)

    def _receive_plain(self, packet: bytes) -> None:
        body = pack(self._exchange(unpack(packet[20:])))
        self._writer.write(self._write(struct.pack("<qqi", 0, self._next_id(), len(body)) + body))

    def _receive_sealed(self, key: Key, plain: bytes) -> None:
        salt, session, message_id, number, length = struct.unpack_from("<qqqii", plain)
        self._session = session
        if salt != key.salt:
            # This also tells a client with a wrong clock the right time, so it comes before everything else.
            self.send(pack(types.BadServerSalt(message_id, number, _WRONG_SALT, key.salt)))
            return
        if session != self._announced:
            self._announced = session
            self.send(pack(types.NewSessionCreated(message_id, session & 0x7FFFFFFFFFFFFFFF, key.salt)))
        self._dispatch(message_id, unpack(plain[32 : 32 + length]))

    def _dispatch(self, message_id: int, body: Any) -> None:
        if isinstance(body, MessageContainer):
            for message in body.messages:
                self._dispatch(message.msg_id, message.obj)
        elif isinstance(body, GzipPacked):
            self._dispatch(message_id, unpack(body.data))
        elif isinstance(body, functions.PingRequest | functions.PingDelayDisconnectRequest):
            self.send(pack(types.Pong(message_id, body.ping_id)))
        elif isinstance(body, functions.GetFutureSaltsRequest):
            self.send(pack(types.FutureSalts(message_id, int(self._world.now()), [])))
        elif not isinstance(body, _IGNORED):
            self._start(self._handle(self, self._unwrap(message_id, body)))

    def _unwrap(self, message_id: int, body: Any) -> Request:
        wants_updates, takeout_id = True, None
        while True:
            if isinstance(body, functions.InvokeWithoutUpdatesRequest):
                wants_updates, body = False, body.query
            elif isinstance(body, functions.InvokeWithTakeoutRequest):
                takeout_id, body = body.takeout_id, body.query
            elif isinstance(body, _WRAPPERS):
                body = body.query
            else:
                self.called_at = time.monotonic()
                # The first call of a connection is always plain.
                self.wants_updates = wants_updates and not isinstance(body, functions.help.GetConfigRequest)
                return Request(body, method_of(body), message_id, takeout_id)

    def _start(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except ConnectionError:
                self.abort()

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _encrypt_message(self, key: Key, body: bytes) -> bytes:
        head = struct.pack("<qqqii", key.salt, self._session, self._next_id(), 1, len(body))
        plain = head + body
        plain += os.urandom(-(len(plain) + 12) % 16 + 12)
        message_key = sha256(key.secret[96:128] + plain).digest()[8:24]
        aes_key, aes_iv = MTProtoState._calc_key(key.secret, message_key, False)
        return struct.pack("<Q", key.key_id) + message_key + bytes(AES.encrypt_ige(plain, aes_key, aes_iv))

    def _next_id(self) -> int:
        # Odd, and larger than the last one.
        now = self._world.now()
        made = int(now) << 32 | int((now % 1) * 1e9) << 2 | 1
        self._last_id = max(made, self._last_id + 4)
        return self._last_id


class PacketSource(Protocol):
    """A source of packets."""

    async def readexactly(self, n: int) -> bytes:
        """Read this number of bytes."""
        ...


class ReadAhead:
    """A reader whose first bytes have already been read."""

    def __init__(self, reader: asyncio.StreamReader, head: bytes) -> None:
        self._reader, self._head = reader, head

    async def readexactly(self, n: int) -> bytes:
        """Read this number of bytes, first those that were read ahead."""
        head, self._head = self._head[:n], self._head[n:]
        return head if len(head) == n else head + await self._reader.readexactly(n - len(head))


class DecryptingReader:
    """A reader of an obfuscated connection."""

    def __init__(self, reader: asyncio.StreamReader, decrypt: Callable[[bytes], bytes]) -> None:
        self._reader, self._decrypt = reader, decrypt

    async def readexactly(self, n: int) -> bytes:
        """Read and decrypt this number of bytes."""
        return self._decrypt(await self._reader.readexactly(n))


class _InvalidData(Exception):
    """Raised if the data is not from a valid client."""


def _decrypt(key: Key, packet: bytes) -> bytes:
    message_key = packet[8:24]
    aes_key, aes_iv = MTProtoState._calc_key(key.secret, message_key, True)
    plain = bytes(AES.decrypt_ige(packet[24:], aes_key, aes_iv))
    if sha256(key.secret[88:120] + plain).digest()[8:24] != message_key:
        raise _InvalidData
    return plain


def _stream_cipher(secret: bytes) -> Callable[[bytes], bytes]:
    return Cipher(algorithms.AES(secret[:32]), modes.CTR(secret[32:48])).encryptor().update


def _unchanged(data: bytes) -> bytes:
    return data
