"""The server: it listens, responds, applies faults and records every call."""

import asyncio
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from telethon.tl import types

from floodmark.errors import InvalidInput, Unavailable
from floodmark.outbound.listener import Listener

from . import sessions
from .backend import Channel, TelegramBackend
from .client_view import ClientView, Refusal
from .faults import Call, Delay, Drop, Failure, Fault, FaultAnswer, Faults, Filter, Flood, HalfClose, Hang, When
from .methods import answer, channel_of
from .raw import pack, rpc_error
from .sessions import HOST
from .wire import Request, WireConnection

log = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Fault)

_CALLS_KEPT = 100_000
# A client that reconnects closes its old connection first, but the server may notice that later.
_RECONNECT_SECONDS = 0.1
# More than any test opens; further connections are closed at once.
_MOST_CONNECTIONS = 1000
_LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Two connections used one session at the same time."""

    at: float
    account: str | None
    connections: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushFaults:
    """Faults of pushed updates: the share that is lost, the share that is sent twice, and a delay in seconds."""

    lose: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0


class LoopbackTelegram:
    """A local Telegram server for the unmodified Telethon client. It listens while its context is open.

    It responds from `backend`. With `forbid_duplicates` it behaves like the real server when one session is used twice:
    AUTH_KEY_DUPLICATED for both, and the session is lost. Every method may be called from any thread.

    Posts, edits and deletions in a channel are pushed to the accounts that are its members: over the connection of a
    session that made the last call, and only if that call asked for updates.
    """

    def __init__(
        self,
        backend: TelegramBackend,
        port: int = 0,
        *,
        host: str = HOST,
        forbid_duplicates: bool = False,
        keep: int = _CALLS_KEPT,
    ) -> None:
        if host not in _LOOPBACK:
            raise InvalidInput(
                f"a loopback Telegram does not listen on {host}: its keys are public",
                hint=f"leave the host out, it is {HOST}",
            )
        self.backend, self.port = backend, port
        self.forbid_duplicates = forbid_duplicates
        self._connections = 0
        self._duplicates: deque[Duplicate] = deque(maxlen=keep)
        self._calls: deque[Call] = deque(maxlen=keep)
        self._faults = Faults(keep)
        self._closing_at_once = 0.0
        self._push_faults = PushFaults()
        self._chance = Random(f"{backend.seed}:pushes")  # noqa: S311 - a likeness, not a secret
        self.pushed, self.unpushed = 0, 0
        """The number of updates that were sent, and of those that were lost on purpose."""
        self._open: set[WireConnection] = set()
        self._listener = Listener(self._serve, name="loopback telegram", most=_MOST_CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    async def __aenter__(self) -> "LoopbackTelegram":
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._listen()
        self.backend.listeners.append(self._notify)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.backend.listeners.remove(self._notify)
        self._shut(drop=True)
        await self._listener.end()
        self._loop = None

    @classmethod
    @contextmanager
    def thread(cls, backend: TelegramBackend, port: int = 0, **options: Any) -> Iterator["LoopbackTelegram"]:
        """Run the server in a thread with its own event loop, for programs without one."""
        server = cls(backend, port, **options)
        is_up, failed = threading.Event(), list[BaseException]()
        stop: list[Callable[[], object]] = []

        async def serve() -> None:
            leave = asyncio.Event()
            loop = asyncio.get_running_loop()
            async with server:
                stop.append(lambda: loop.call_soon_threadsafe(leave.set))
                is_up.set()
                await leave.wait()

        def run() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:  # noqa: BLE001 - raised again where the thread was started
                failed.append(error)
                is_up.set()

        worker = threading.Thread(target=run, name="loopback-telegram", daemon=True)
        worker.start()
        is_up.wait()
        if failed:
            raise failed[0]
        try:
            yield server
        finally:
            stop[0]()
            worker.join()

    # What to connect with

    def session(self, account: str) -> str:
        """Return a `StringSession` of this account for this server, as text."""
        return sessions.session_text(self._secret(account), self.port)

    def write_session(self, account: str, path: Path | str) -> None:
        """Write a `.session` file of this account for this server."""
        sessions.write_session(self._secret(account), self.port, Path(path))

    def _secret(self, account: str) -> bytes:
        return sessions.secret_for(self.backend.seed, self.backend.get_account(account).name)

    # What happened

    def calls(
        self, method: str | None = None, account: str | None = None, channel: Channel | int | None = None
    ) -> list[Call]:
        """Return the recorded calls, oldest first; only the last ones if there are very many."""
        wanted = Filter(method=method, account=account, channel=_id(channel))
        with self.backend.lock:
            return [call for call in self._calls if wanted.fits(call)]

    @property
    def connections(self) -> int:
        """Return the number of connections so far."""
        return self._connections

    def connected(self, account: str) -> list[int]:
        """Return the numbers of the open connections with a session of this account, as in `Call.connection`."""
        there = (one for one in tuple(self._open) if one.is_open and one.key is not None)
        return sorted(one.number for one in there if one.key is not None and one.key.account == account)

    @property
    def duplicates(self) -> list[Duplicate]:
        """Return each time two connections used one session at the same time."""
        with self.backend.lock:
            return list(self._duplicates)

    @property
    def violations(self) -> list[Call]:
        """Return the calls that were made during a flood wait."""
        with self.backend.lock:
            return list(self._faults.violations)

    def forget(self) -> None:
        """Clear the recorded calls, duplicates and violations."""
        with self.backend.lock:
            self._calls.clear()
            self._duplicates.clear()
            self._faults.violations.clear()
            self._connections = 0

    # Trouble

    def add(self, fault: F) -> F:
        """Add any fault of `floodmark.testing.telegram.faults`."""
        with self.backend.lock:
            self._faults.add(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault."""
        with self.backend.lock:
            self._faults.remove(fault)

    def flood(
        self,
        method: str,
        *,
        seconds: float,
        channel: Channel | int | None = None,
        account: str | None = None,
        after: int = 0,
        times: int | None = 1,
        holds: float | None = None,
    ) -> Flood:
        """Respond with FLOOD_WAIT_`seconds` to the call after `after` others; see `Flood`."""
        limits: Any = {"channel": _id(channel), "account": account, "after": after, "times": times}
        return self.add(Flood(method=method, seconds=seconds, holds=holds, **limits))

    def fail(
        self,
        method: str | None,
        name: str,
        *,
        code: int = 400,
        channel: Channel | int | None = None,
        account: str | None = None,
        after: int = 0,
        times: int | None = 1,
    ) -> Failure:
        """Respond with an error of the protocol, such as CHANNEL_PRIVATE."""
        limits: Any = {"channel": _id(channel), "account": account, "after": after, "times": times}
        return self.add(Failure(method=method, name=name, code=code, **limits))

    def drop(self, *, when: When = "before", method: str | None = None, after: int = 0, times: int | None = 1) -> None:
        """Break the connection before the call is processed, in the middle of the response, or after it."""
        self.add(Drop(when=when, method=method, after=after, times=times))

    def hang(self, *, method: str | None = None, after: int = 0, times: int | None = 1) -> None:
        """Never respond, and leave the connection open."""
        self.add(Hang(method=method, after=after, times=times))

    def half_close(self, *, method: str | None = None, after: int = 0, times: int | None = 1) -> None:
        """Send nothing more on the connection of this call, but keep reading from it."""
        self.add(HalfClose(method=method, after=after, times=times))

    def delay(self, seconds: float, *, method: str | None = None) -> None:
        """Respond after a delay."""
        self.add(Delay(seconds=seconds, method=method))

    def accept_and_close(self, times: int | None = None) -> None:
        """Accept new connections and close them at once."""
        self._closing_at_once = float("inf") if times is None else times

    def refuse(self, *, drop: bool = True) -> None:
        """Stop listening, and by default break the open connections."""
        self._run_in_loop(lambda: self._shut(drop=drop))

    def accept(self) -> None:
        """Listen again on the same port."""
        self._run_in_loop(self._listen)

    def disconnect(self, account: str | None = None) -> None:
        """Break all open connections, or those of an account."""
        self._run_in_loop(lambda: self._cut(account))

    def disturb_updates(self, *, lose: float = 0.0, duplicate: float = 0.0, delay: float = 0.0) -> None:
        """Lose a share of the pushed updates (1.0: all of them), send a share twice, send all after a delay."""
        self._push_faults = PushFaults(lose=lose, duplicate=duplicate, delay=delay)

    def revoke(self, account: str, reason: str = "AUTH_KEY_UNREGISTERED") -> None:
        """Revoke all sessions of an account: every call gets the reason as an error."""
        with self.backend.lock:
            for key in self.backend.keys.values():
                if key.account == self.backend.get_account(account).name:
                    key.revoked = reason

    def restore(self, account: str) -> None:
        """Make the sessions of an account valid again."""
        with self.backend.lock:
            for key in self.backend.keys.values():
                if key.account == account:
                    key.revoked = None

    def heal(self) -> None:
        """Remove all faults except revoked sessions."""
        with self.backend.lock:
            self._faults.clear()
            self._closing_at_once = 0.0
            self._push_faults = PushFaults()
        self.accept()

    # Listening

    def _listen(self) -> None:
        """Bind at once, so that connections are accepted even before the server reads from them."""
        if self._listener.is_open:
            return
        try:
            self._listener.open(HOST, self.port)
        except OSError as error:
            raise Unavailable(
                f"port {self.port} is not available: {os.strerror(error.errno or 0)}",
                hint="use another port, or 0 for any",
            ) from error
        self.port = self._listener.port

    def _shut(self, *, drop: bool) -> None:
        self._listener.close()
        if drop:
            self._cut(None)

    def _cut(self, account: str | None) -> None:
        for connection in tuple(self._open):
            if account is None or (connection.key is not None and connection.key.account == account):
                connection.abort()

    def _run_in_loop(self, work: Callable[[], T]) -> T | None:
        """Run it in the thread of the event loop, and return its result."""
        loop = self._loop
        if loop is None:
            return None
        if threading.get_ident() == self._thread:
            return work()

        async def there() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(there(), loop).result()

    async def _serve(self, accepted: socket.socket) -> None:
        self._connections += 1
        number = self._connections
        if self._closing_at_once > 0:
            self._closing_at_once -= 1
            accepted.close()
            return
        streams = await asyncio.open_connection(sock=accepted)
        connection = WireConnection(number, self.backend, *streams, greet=self._check_duplicate, handle=self._handle)
        self._open.add(connection)
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)

    # Calls

    async def _check_duplicate(self, connection: WireConnection) -> None:
        if self._rival(connection) is not None:
            await asyncio.sleep(_RECONNECT_SECONDS)
        rival, key = self._rival(connection), connection.key
        if rival is None or key is None:
            return
        with self.backend.lock:
            pair = (rival.number, connection.number)
            self._duplicates.append(Duplicate(time.monotonic(), key.account, pair))
            log.warning("the session of %s is used by connections %d and %d at once", key.account, *pair)
            if self.forbid_duplicates:
                key.revoked = "AUTH_KEY_DUPLICATED"

    def _rival(self, connection: WireConnection) -> WireConnection | None:
        others = (other for other in self._open if other is not connection and other.is_open)
        return next((other for other in others if other.key is connection.key), None)

    async def _handle(self, connection: WireConnection, request: Request) -> None:
        """Respond to a call, or apply the fault that is due."""
        call = self._record(connection, request)
        with self.backend.lock:
            seconds, trouble = self._faults.meet(call)
        if seconds:
            await asyncio.sleep(seconds)
        if trouble is not None and trouble.error is None:
            await self._disturb(connection, request, call, trouble)
            return
        if trouble is not None and trouble.error is not None:
            call.result, body = trouble.result, rpc_error(*trouble.error)
        else:
            body = self._answer(connection, request, call)
        connection.answer(request, body)
        await connection.flush()

    async def _disturb(self, connection: WireConnection, request: Request, call: Call, trouble: FaultAnswer) -> None:
        if trouble.result == "half-close":
            connection.half_close()
        elif trouble.result in ("drop-during", "drop-after"):
            portion = 0.5 if trouble.result == "drop-during" else 1.0
            connection.answer(request, self._answer(connection, request, call), portion=portion)
            await connection.flush()
        call.result = trouble.result
        if trouble.result.startswith("drop"):
            connection.close()

    def _answer(self, connection: WireConnection, request: Request, call: Call) -> bytes:
        assert connection.key is not None
        try:
            client = ClientView(self.backend, connection.key, self.port, request.takeout_id)
            body = pack(answer(client, request.method, request.query))
        except Refusal as refusal:
            call.result = refusal.name
            return rpc_error(refusal.code, refusal.name)
        except Exception:
            # Without a response the client would wait for ever, and after a 500 it would retry six times.
            log.exception("the loopback Telegram failed to respond to %s", request.method)
            call.result = "BAD_REQUEST"
            return rpc_error(400, "BAD_REQUEST")
        call.result = "ok"
        return body

    def _record(self, connection: WireConnection, request: Request) -> Call:
        named = channel_of(request.query)
        with self.backend.lock:
            channel = named if named is not None else self._channel_named(request)
            call = Call(
                time.monotonic(),
                datetime.now(UTC),
                connection.key.account if connection.key is not None else None,
                request.method,
                channel,
                getattr(request.query, "offset_id", None),
                connection.number,
                request.sent_at,
                takeout_id=request.takeout_id,
            )
            self._calls.append(call)
        return call

    def _channel_named(self, request: Request) -> int | None:
        if request.method == "contacts.resolveUsername":
            found = self.backend.find_channel(request.query.username)
            return None if found is None else found.channel_id
        return None

    # Updates

    def _notify(self, channel: Channel, update: Any) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._push, channel, update)

    def _push(self, channel: Channel, update: Any) -> None:
        faults = self._push_faults
        for connection in self._listening(channel):
            if self._chance.random() < faults.lose:
                self.unpushed += 1
                continue
            for _ in range(2 if self._chance.random() < faults.duplicate else 1):
                if faults.delay and self._loop is not None:
                    self._loop.call_later(faults.delay, self._send_update, connection, channel, update)
                else:
                    self._send_update(connection, channel, update)

    def _listening(self, channel: Channel) -> list[WireConnection]:
        """Return the last active connection of each session of a member, if it wants updates."""
        active: dict[int, WireConnection] = {}
        for connection in sorted(self._open, key=lambda one: one.called_at):
            key = connection.key
            if key is not None and key.account is not None and not key.revoked and channel.has_member(key.account):
                active[key.key_id] = connection
        return [connection for connection in active.values() if connection.wants_updates]

    def _send_update(self, connection: WireConnection, channel: Channel, update: Any) -> None:
        key = connection.key
        if key is None or key.revoked or not connection.is_open:
            return
        with self.backend.lock:
            client = ClientView(self.backend, key, self.port)
            updates = types.Updates([update], [], client.chats(channel), int(self.backend.now()), 0)
        self.pushed += 1
        connection.send(pack(updates))


def _id(channel: Channel | int | None) -> int | None:
    return channel.channel_id if isinstance(channel, Channel) else channel
