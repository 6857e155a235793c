"""Operations over HTTP."""

from datetime import timedelta
from typing import Any

from floodmark.operations.declaration import AsyncCaller, Operation

from .requests import request_of, result_of
from .transport import Transport

_PRIVATE = "the session of an account"


class HttpCaller(AsyncCaller):
    """Sends operations to a server."""

    def __init__(self, url: str, token: str | None = None, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._transport = Transport(url, token, timeout=timeout)
        self.url = self._transport.url

    async def call(self, operation: Operation[Any, Any], arguments: dict[str, Any]) -> Any:
        """Send an operation and return its result."""
        if operation.is_private:
            self._transport.require_private(_PRIVATE)
        request = request_of(operation, arguments)
        body = await self._transport.request(
            request.method, request.path, query=request.query, body=request.body, headers=request.headers
        )
        return result_of(operation, body)
