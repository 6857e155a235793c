"""A listening socket that leaks no connection when it closes.

asyncio's own server leaks in Python 3.11: when it is closed after a socket was accepted and before its transport was
created, both stay open until they are garbage-collected.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

# Without free file descriptors every accept fails: wait this long before the next attempt.
_RETRY_SECONDS = 0.5


class Listener:
    """Accepts connections on loopback and runs `serve(socket)` as a task for each.

    `serve` owns the socket and closes it, also when it is cancelled. With `most` open ones, new connections are closed.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        *,
        name: str = "connection",
        most: int | None = None,
    ) -> None:
        self._serve, self._name, self._most = serve, name, most
        self._listening: socket.socket | None = None
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()
        """One task per open connection."""

    def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Start listening; OSError if the port is not available."""
        self._loop = asyncio.get_running_loop()
        self._listening = socket.create_server((host, port), backlog=512)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._watch()

    @property
    def is_open(self) -> bool:
        """Return whether new connections are accepted."""
        return self._listening is not None

    def close(self) -> None:
        """Accept no more connections; open ones stay open."""
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def end(self) -> None:
        """Accept no more connections, cancel the open ones and wait until they have ended."""
        self.close()
        # A task that is cancelled before its first step would never close its socket, nor would a TLS connection that
        # has not begun its handshake.
        await _let_loop_run()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        # Transports close their sockets one turn after `close`.
        await _let_loop_run()

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
            self._loop.call_later(_RETRY_SECONDS, self._watch)
            return
        if self._most is not None and len(self.tasks) >= self._most:
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._serve(accepted), name=self._name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def _let_loop_run() -> None:
    """Let the event loop run the scheduled callbacks, and those that they schedule."""
    for _ in range(3):
        await asyncio.sleep(0)
