"""The dashboard and the API as an ASGI application that another application mounts."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from floodmark.errors import Unavailable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class MountableApp:
    """An ASGI application that answers requests while its `running()` block runs.

    A server that serves it directly starts and stops it by the lifespan protocol. An application that mounts it has to
    enter `running()` itself: servers tell mounted applications nothing.
    """

    def __init__(self, opened: "Callable[[], AbstractAsyncContextManager[ASGIApp]]") -> None:
        self._opened = opened
        self._app: ASGIApp | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the database, run the roles and answer requests, until the block ends."""
        async with self._opened() as app:
            self._app = app
            try:
                yield
            finally:
                self._app = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request, or follow the lifespan of the server."""
        if scope["type"] == "lifespan":
            return await self._follow(receive, send)
        if self._app is None:
            raise Unavailable(
                "Floodmark is not running in this application",
                hint="enter `async with mounted.running():` in the lifespan of the application that mounts it",
            )
        return await self._app(scope, receive, send)

    async def _follow(self, receive: "Receive", send: "Send") -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.running())
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
