"""A TCP proxy that breaks connections in the ways a network does.

    with FaultyProxy(postgres.url) as proxy:       # also for redis:// URLs, from async tests and for subprocesses
        settings = Settings(database_url=proxy.url)
        proxy.swallow()                            # packets of open connections vanish; new connections work
        proxy.swallow(new=True)                    # new connections get no answer either
        proxy.swallow(DOWN)                        # requests arrive, replies vanish
        proxy.refuse()                             # new connections are refused; open ones go on
        proxy.reset()                              # RST to both ends of every open connection
        proxy.delay(2.0, DOWN, new=True)           # every chunk of a reply is 2 s late
        proxy.cut_after(100, UP)                   # RST after 100 more bytes of the request
        proxy.lose_reply_to(b"COMMIT")             # the server executes it, the client gets a RST instead of the answer
        proxy.heal()                               # new connections work again; swallowed ones stay silent
        proxy.heal(resume=True)                    # swallowed ones deliver what they held back, as TCP would

Each fault applies to all open connections and, with `new=True`, to later ones until `heal`. One connection alone:
`proxy.connections()[0].swallow()`. The proxy has a thread with an event loop of its own, so a test that blocks
does not block the proxy. Leaving the `with` block closes every socket.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from servers import free_port

Direction = Literal["up", "down"]
UP: Final = "up"
"""From the client to the server."""
DOWN: Final = "down"
"""From the server to the client."""
_BOTH: tuple[Direction, ...] = (UP, DOWN)
_CHUNK = 65536
# Close with a RST instead of a FIN.
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class _Faults:
    """The faults of one connection."""

    silent: frozenset[Direction] = frozenset()
    delays: dict[Direction, float] = field(default_factory=dict)
    bytes_left: dict[Direction, int] = field(default_factory=dict)
    lost_reply: bytes | None = None


class Connection:
    """One client and its connection to the server. Use its methods from the proxy's thread or through the proxy."""

    def __init__(self, proxy: "FaultyProxy", client: socket.socket, faults: _Faults) -> None:
        self._proxy, self._client, self._server = proxy, client, socket.socket()
        self._server.setblocking(False)
        self._faults, self._changed = faults, asyncio.Event()
        self.passed: dict[Direction, int] = {UP: 0, DOWN: 0}
        self._loses_next_reply = False

    def swallow(self, *directions: Direction) -> None:
        """Deliver nothing in these directions (both by default): no data, no FIN, no RST."""
        self._set(silent=self._faults.silent | set(directions or _BOTH))

    def resume(self) -> None:
        """Deliver what was held back."""
        self._set(silent=frozenset())

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Deliver every chunk this much later."""
        self._set(delays=dict.fromkeys(directions or _BOTH, seconds))

    def cut_after(self, count: int, direction: Direction) -> None:
        """Reset the connection after this many more bytes."""
        self._set(bytes_left={**self._faults.bytes_left, direction: count})

    def lose_reply_to(self, request: bytes) -> None:
        """Reset the connection when the server's answer to a request with these bytes arrives."""
        self._set(lost_reply=request)

    def reset(self) -> None:
        """Send a RST to both ends."""
        self._proxy.call(self._reset)

    def _set(self, **changes: Any) -> None:
        def work() -> None:
            self._faults = replace(self._faults, **changes)
            self._changed.set()
            self._changed = asyncio.Event()

        self._proxy.call(work)

    def _reset(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.task.cancel()

    def start(self, address: tuple[str, int]) -> None:
        """Connect to the server and pass data until both ends have finished."""
        self.task = asyncio.get_running_loop().create_task(self._run(address))

    async def _run(self, address: tuple[str, int]) -> None:
        try:
            await asyncio.get_running_loop().sock_connect(self._server, address)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(self._client, self._server, UP))
                pumps.create_task(self._pump(self._server, self._client, DOWN))
        except* OSError:
            # One end has gone: the other must notice at once, also when its own half was idle.
            for end in (self._client, self._server):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        finally:
            self._client.close()
            self._server.close()
            self._proxy.forget(self)

    async def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._until_audible(direction)
            data = await loop.sock_recv(source, _CHUNK)
            await self._until_audible(direction)
            if seconds := self._faults.delays.get(direction):
                await asyncio.sleep(seconds)
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            if direction == DOWN and self._loses_next_reply:
                raise ConnectionResetError
            if direction == UP and self._faults.lost_reply and self._faults.lost_reply in data:
                self._loses_next_reply = True
            allowed = self._faults.bytes_left.get(direction)
            await loop.sock_sendall(target, data[:allowed])
            self.passed[direction] += len(data[:allowed])
            if allowed is not None:
                self._faults.bytes_left[direction] = allowed - len(data)
                if allowed <= len(data):
                    raise ConnectionResetError

    async def _until_audible(self, direction: Direction) -> None:
        while direction in self._faults.silent:
            await self._changed.wait()


class FaultyProxy:
    """Listens on a loopback port of its own in front of one server."""

    def __init__(self, url: str, *, host: str = "127.0.0.1") -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._server, self._host, self._port = (parts.hostname, parts.port), host, free_port()
        login, _, _ = parts.netloc.rpartition("@")
        place = f"{host}:{self._port}"
        self.url: str = urlunsplit(parts._replace(netloc=f"{login}@{place}" if login else place))
        """The URL of the server, through the proxy."""
        self._open: list[Connection] = []
        self._for_new = _Faults()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def connections(self) -> list[Connection]:
        """The open connections, the oldest first."""
        return list(self._open)

    def refuse(self) -> None:
        """Refuse new connections. Open ones go on: add `reset()` or `swallow()` to break those too."""
        self.call(self._stop_listening)

    def reset(self) -> None:
        """Send a RST to both ends of every open connection."""
        for connection in self.connections():
            connection.reset()

    def swallow(self, *directions: Direction, new: bool = False) -> None:
        """Let everything on open connections vanish, and with `new` on later ones too."""
        if new:
            self._for_new = replace(self._for_new, silent=frozenset(directions or _BOTH))
        for connection in self.connections():
            connection.swallow(*directions)

    def delay(self, seconds: float, *directions: Direction, new: bool = False) -> None:
        """Deliver every chunk this much later."""
        if new:
            self._for_new = replace(self._for_new, delays=dict.fromkeys(directions or _BOTH, seconds))
        for connection in self.connections():
            connection.delay(seconds, *directions)

    def cut_after(self, count: int, direction: Direction, *, new: bool = False) -> None:
        """Reset each connection after this many more bytes."""
        if new:
            self._for_new = replace(self._for_new, bytes_left={direction: count})
        for connection in self.connections():
            connection.cut_after(count, direction)

    def lose_reply_to(self, request: bytes, *, new: bool = False) -> None:
        """Reset a connection when the answer to a request with these bytes arrives."""
        if new:
            self._for_new = replace(self._for_new, lost_reply=request)
        for connection in self.connections():
            connection.lose_reply_to(request)

    def heal(self, *, resume: bool = False) -> None:
        """Accept new connections without faults; with `resume`, silent ones deliver what they held back."""
        self._for_new = _Faults()
        self.call(self._listen)
        for connection in self.connections():
            if resume:
                connection.resume()

    def call(self, work: Callable[[], None]) -> None:
        """Do it in the proxy's thread; returns when it is done."""

        async def done() -> None:
            work()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(30)

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._open.remove(connection)

    def _listen(self) -> None:
        if self._listener is not None:
            return
        listener = self._listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((self._host, self._port))
        listener.listen(128)
        self._accepting = self._loop.create_task(self._accept(listener))

    def _stop_listening(self) -> None:
        if self._listener is not None and self._accepting is not None:
            self._accepting.cancel()
            self._listener.close()
            self._listener = None

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            # Every connection counts its own bytes.
            faults = replace(self._for_new, bytes_left=dict(self._for_new.bytes_left))
            connection = Connection(self, client, faults)
            self._open.append(connection)
            connection.start(self._server)

    async def _close(self) -> None:
        self._stop_listening()
        tasks = [connection.task for connection in self._open]
        for task in tasks:
            task.cancel()
        if self._accepting is not None:
            tasks.append(self._accepting)
        await asyncio.gather(*tasks, return_exceptions=True)
