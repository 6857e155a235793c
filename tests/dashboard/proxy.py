"""A reverse proxy on this machine, as operators put it in front: with TLS, and a prefix that it strips or passes on."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web
from multidict import CIMultiDict
from yarl import URL

_OWN = ("connection", "transfer-encoding", "content-length", "keep-alive")


@asynccontextmanager
async def proxied(
    target: str,
    *,
    prefix: str = "",
    strips: bool = False,
    headers: Callable[[web.Request], Mapping[str, str]] = lambda request: {},
    keeps_host: bool = True,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Forward everything under `prefix` to `target`; yields the address of the proxy with the prefix."""
    async with ClientSession(auto_decompress=False, timeout=ClientTimeout(total=None)) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            path = request.raw_path.removeprefix(prefix) if strips else request.raw_path
            sent = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in _OWN)
            if not keeps_host:
                sent.pop("Host")
            sent.update(headers(request))
            body = await request.read()
            url = URL(f"{target}{path}", encoded=True)
            async with session.request(
                request.method, url, headers=sent, data=body or None, allow_redirects=False
            ) as found:
                kept = [(name, value) for name, value in found.headers.items() if name.lower() not in _OWN]
                answer = web.StreamResponse(status=found.status, headers=CIMultiDict(kept))
                await answer.prepare(request)
                async for chunk in found.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
                return answer

        app = web.Application()
        app.router.add_route("*", f"{prefix}/{{path:.*}}", forward)
        runner: Any = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        try:
            yield f"{'https' if tls else 'http'}://localhost:{port}{prefix}"
        finally:
            await runner.cleanup()


def forwarded(request: web.Request) -> dict[str, str]:
    """The headers that most proxies send."""
    return {
        "X-Forwarded-For": str(request.remote),
        "X-Forwarded-Proto": request.scheme,
        "X-Forwarded-Host": str(request.headers["Host"]),
    }
