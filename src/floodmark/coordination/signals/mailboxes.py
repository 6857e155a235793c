"""Signals between the processes of one machine that share a SQLite file: a datagram socket for each process.

`<runtime folder>/signals-<digest of the file's path>/<random>`   bound when a process starts to listen, removed when it
                                                                 stops, or by the next sender if it has died

A signal may get lost, as every signal may: a process that cannot bind a socket polls the file.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from floodmark.process.lock_files import runtime_folder

# Longer than any topic.
_MOST_BYTES = 64


class Mailboxes:
    """The socket of this process, and those of the others."""

    def __init__(self, database: Path, receive: Callable[[str], None]) -> None:
        self._receive, self._folder, self._name = receive, folder_of(database), secrets.token_hex(8)
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen. Has no effect where sockets do not work."""
        if self._folder is None or not hasattr(socket, "AF_UNIX"):
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._socket.bind(str(self._folder / self._name))
        except OSError:
            self.close()
            return
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def send(self, message: str) -> None:
        """Send a message to all other processes, without waiting."""
        if self._socket is None or self._folder is None:
            return
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            if name != self._name:
                self._send_to(self._folder / name, message.encode())

    def close(self) -> None:
        """Stop listening."""
        if self._socket is None or self._folder is None:
            return
        with suppress(RuntimeError):  # no running loop
            asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        with suppress(OSError):
            (self._folder / self._name).unlink(missing_ok=True)

    def _send_to(self, path: Path, message: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendto(message, str(path))
        except ConnectionRefusedError:
            # Its process has died.
            with suppress(OSError):
                path.unlink(missing_ok=True)
        except OSError:
            # It has just stopped, or has so many messages that this one says nothing new.
            return

    def _read(self) -> None:
        assert self._socket is not None
        messages: dict[str, None] = {}
        # Many signals of one topic are one signal.
        with suppress(OSError):
            while True:
                messages[self._socket.recv(_MOST_BYTES).decode(errors="replace")] = None
        for message in messages:
            self._receive(message)


def folder_of(database: Path) -> Path | None:
    """Return the folder of the sockets for a SQLite file, or None if there is none that others cannot write to."""
    digest, runtime = sha256(os.fsencode(database.resolve())).hexdigest(), runtime_folder()
    # Short: the path of a socket has at most about a hundred bytes.
    return None if runtime is None else runtime / f"signals-{digest[:16]}"
