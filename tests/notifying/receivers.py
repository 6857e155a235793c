"""Who is told: a server that takes webhooks as Slack does, and a mail server, both on this machine and in threads."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from floodmark.outbound.listener import Listener

USER, PASSWORD = "floodmark", "hunter2 @:/"


class Post(NamedTuple):
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Takes webhooks. `answers` are given first (PATH becomes the path), then 200; while `held` nothing is said.

    `refused`: the status for paths that begin like this.
    """

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answers: list[tuple[int, Mapping[str, str], str]] = []
        self.held = threading.Event()
        self.refused: dict[str, int] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                if receiver.held.is_set():
                    receiver.released.wait(120)
                    return
                refused = next((code for path, code in receiver.refused.items() if self.path.startswith(path)), 200)
                status, headers, text = receiver.answers.pop(0) if receiver.answers else (refused, {}, "ok")
                text = text.replace("PATH", f"{self.path} {self.path[-11:]}")
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def refuse(self, path: str, status: int) -> None:
        self.refused[path] = status

    @contextmanager
    def serving(self) -> Iterator["Receiver"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class Letterbox:
    """A mail server. `refuses`: addresses that it does not take."""

    def __init__(self) -> None:
        self.letters: list[EmailMessage] = []
        self.refuses: set[str] = set()
        self.users: list[str] = []

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802 - its name
        if address in self.refuses:
            return "550 nobody of that name here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - as above
        letter = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(letter, EmailMessage)
        self.letters.append(letter)
        return "250 taken"

    def authenticate(self, _server: Any, _session: Any, _envelope: Any, _how: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.users.append(data.login.decode())
        # Not handled: let the server say no by itself.
        return AuthResult(success=(data.login, data.password) == (USER.encode(), PASSWORD.encode()), handled=False)

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[str]:
        """`host:port`, with STARTTLS and a login if there is a certificate."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        sessions: list[SMTP] = []

        def session() -> SMTP:
            login = None if tls is None else self.authenticate
            made = SMTP(self, tls_context=tls, authenticator=login, auth_required=tls is not None, loop=loop)
            sessions.append(made)
            return made

        async def serve(accepted: socket.socket) -> None:
            await loop.connect_accepted_socket(session, accepted)

        async def listen() -> Listener:
            listener = Listener(serve)
            listener.open()
            return listener

        listener = asyncio.run_coroutine_threadsafe(listen(), loop).result(120)
        try:
            yield f"127.0.0.1:{listener.port}"
        finally:
            asyncio.run_coroutine_threadsafe(_ended(listener, sessions), loop).result(120)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _ended(listener: Listener, sessions: Iterable[SMTP]) -> None:
    await listener.end()
    while still_open := [session.transport for session in sessions if session.transport is not None]:
        for transport in still_open:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.abort()
        await asyncio.sleep(0)
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
