"""Requests as spans, in the trace of their sender. This layer is only there while tracing is on."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from floodmark.observability.tracing import Tracing

from .addresses import route_path


class Traced:
    """Makes a span of each request under `prefix`, except `endless` ones."""

    def __init__(self, app: ASGIApp, *, tracing: Tracing, prefix: str, endless: tuple[str, ...] = ()) -> None:
        self._app, self._tracing, self._prefix, self._endless = app, tracing, f"{prefix}/", endless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = route_path(scope) if scope["type"] == "http" else ""
        if not path.startswith(self._prefix) or path in self._endless:
            return await self._app(scope, receive, send)
        method, status = scope["method"], 500
        # Neither path nor query: they may contain secrets and have unlimited values.
        attributes = {"http.request.method": method, "floodmark.request_id": scope.get("floodmark.request_id", "")}
        with self._tracing.answering(method, Headers(scope=scope).get("traceparent"), attributes) as span:

            async def send_message(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await self._app(scope, receive, send_message)
            finally:
                self._tracing.answered(span, method, self._route(scope), status)
        return None

    def _route(self, scope: Scope) -> str | None:
        """Return the path of the route as the API declares it; it is known after the request."""
        path: str | None = getattr(scope.get("route"), "path_format", None)
        return path if path is None or path.startswith(self._prefix) else self._prefix + path.removeprefix("/")
