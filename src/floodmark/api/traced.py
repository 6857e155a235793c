"""Requests as spans, in the trace of whoever sent them. Stands in the way of requests only where tracing is on."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from floodmark.observability.tracing import Tracing


class Traced:
    """One span for each request under `prefix` whose answer has an end."""

    def __init__(self, app: ASGIApp, *, tracing: Tracing, prefix: str, endless: tuple[str, ...] = ()) -> None:
        self._app, self._tracing, self._prefix, self._endless = app, tracing, f"{prefix}/", endless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not scope["path"].startswith(self._prefix) or scope["path"] in self._endless:
            return await self._app(scope, receive, send)
        method, status = scope["method"], 500
        # Neither the path nor the query: they may hold secrets, and there is no end of them.
        attributes = {"http.request.method": method, "floodmark.request_id": scope.get("floodmark.request_id", "")}
        with self._tracing.answering(method, Headers(scope=scope).get("traceparent"), attributes) as span:

            async def sending(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await self._app(scope, receive, sending)
            finally:
                self._tracing.answered(span, method, self._route(scope), status)
        return None

    def _route(self, scope: Scope) -> str | None:
        """What answered, as the API names it. Known only afterwards: it is found out on the way."""
        path: str | None = getattr(scope.get("route"), "path_format", None)
        return path if path is None or path.startswith(self._prefix) else self._prefix + path.removeprefix("/")
