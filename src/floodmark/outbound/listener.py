"""A listening socket that loses no connection when it closes.

asyncio's own server does (Python 3.11): closed between accepting a socket and making its transport, it leaves both
open until they are collected as garbage. A server that closes while a browser or a test still connects needs better.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

# Without free file descriptors every attempt to accept fails: wait this long before the next one.
_REST_SECONDS = 0.5


class Listener:
    """Accepts connections on loopback and runs `serve(socket)` for each as a task of the running loop.

    `serve` owns the socket from its first step on and closes it, also when it is cancelled.
    """

    def __init__(
        self, serve: Callable[[socket.socket], Coroutine[Any, Any, None]], *, name: str = "connection"
    ) -> None:
        self._serve, self._name = serve, name
        self._listening: socket.socket | None = None
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()
        """One for each connection that is being served."""

    def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen from now on; OSError if the port is not available."""
        self._loop = asyncio.get_running_loop()
        self._listening = socket.create_server((host, port), backlog=512)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._watch()

    @property
    def is_open(self) -> bool:
        """Whether new connections are accepted."""
        return self._listening is not None

    def close(self) -> None:
        """Refuse new connections; those that are open stay."""
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def end(self) -> None:
        """Refuse new connections, cancel the open ones and wait until they have ended."""
        self.close()
        # A task that is cancelled before its first step would never close its socket, nor would a TLS connection that
        # has not begun its handshake.
        await _turns()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        # Transports close their sockets a turn after they were told to.
        await _turns()

    def _watch(self) -> None:
        if self._listening is not None:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            self._loop.remove_reader(self._listening)
            self._loop.call_later(_REST_SECONDS, self._watch)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._serve(accepted), name=self._name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def _turns() -> None:
    """Let the event loop do what it has scheduled, and what follows from that."""
    for _ in range(3):
        await asyncio.sleep(0)
