"""/health and /metrics over real HTTP, and a server that leaves nothing behind."""

import asyncio
import io
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from floodmark.api.health import health_app
from floodmark.api.server import HttpServer
from floodmark.errors import Unavailable
from floodmark.observability.events import Events, ExecutionsRescued
from floodmark.observability.metrics import Metrics, render


async def get(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str, bytes]:
    """The status, headers and body of an answer."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


def app_with(report: dict[str, Any] | Exception) -> Starlette:
    async def health() -> dict[str, Any]:
        if isinstance(report, Exception):
            raise report
        return report

    return health_app(lambda: b"up 1\n", health)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that someone else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as owner:
        yield owner.getsockname()[1]


@pytest.mark.spec("T8", "E9")
@pytest.mark.parametrize(("status", "code"), [("ok", 200), ("degraded", 200), ("down", 503), ("odd", 503)])
async def test_health_answers_by_status(status: str, code: int) -> None:
    report = {"status": status, "stores": {"database": "ok"}}
    async with HttpServer(app_with(report)) as server:
        answered, head, body = await get(server.port, "/health")
    assert answered == code
    assert json.loads(body) == report
    assert "content-type: application/json" in head
    assert "cache-control: no-store" in head


@pytest.mark.spec("T8")
async def test_a_health_check_that_fails_means_down_and_tells_strangers_nothing() -> None:
    async with HttpServer(app_with(ConnectionError("redis://u:secret@h refused"))) as server:
        with capture_logs() as logs:
            code, _, body = await get(server.port, "/health")
    assert code == 503
    assert json.loads(body) == {"status": "down", "error": "ConnectionError"}
    assert logs[0]["event"] == "health check failed"


@pytest.mark.spec("V9")
async def test_metrics_are_served_for_prometheus() -> None:
    registry, events = CollectorRegistry(), Events()
    Metrics(registry, 10).attach(events)
    events.emit(ExecutionsRescued(3))

    async def health() -> dict[str, Any]:
        return {"status": "ok"}

    async with HttpServer(health_app(lambda: render(registry), health)) as server:
        code, head, body = await get(server.port, "/metrics")
    assert code == 200
    assert "content-type: text/plain; version=1.0.0; charset=utf-8" in head
    assert b"floodmark_executions_rescued_total 3.0" in body


async def test_other_paths_and_methods_are_refused() -> None:
    async with HttpServer(app_with({"status": "ok"})) as server:
        assert (await get(server.port, "/nothing"))[0] == 404
        assert (await get(server.port, "/health", "POST"))[0] == 405
        _, head, _ = await get(server.port, "/health")
        assert "uvicorn" not in head


async def test_a_taken_port_is_replaced_by_a_free_one_and_said_so(taken: int) -> None:
    with capture_logs() as logs:
        async with HttpServer(app_with({"status": "ok"}), port=taken, fallback=True) as server:
            assert server.port != taken
            assert (await get(server.port, "/health"))[0] == 200
            assert server.url == f"http://127.0.0.1:{server.port}"
    [line] = [line for line in logs if line["log_level"] == "warning"]
    assert (line["asked"], line["port"]) == (taken, server.port)


@pytest.mark.spec("G9")
async def test_a_taken_port_without_fallback_is_refused_with_a_hint(taken: int) -> None:
    with pytest.raises(Unavailable, match=f"port {taken} on 127.0.0.1 is in use") as caught:
        async with HttpServer(app_with({"status": "ok"}), port=taken, fallback=False):
            pass
    assert "another port" in caught.value.hint


@pytest.mark.spec("G9")
async def test_an_address_that_is_not_ours_is_refused_with_a_hint() -> None:
    with pytest.raises(Unavailable, match="cannot listen on") as caught:
        async with HttpServer(app_with({"status": "ok"}), host="192.0.2.1"):
            pass
    assert "address of this machine" in caught.value.hint


async def test_the_port_is_free_again_afterwards() -> None:
    async with HttpServer(app_with({"status": "ok"})) as first:
        assert (await get(first.port, "/health"))[0] == 200
    async with HttpServer(app_with({"status": "ok"}), port=first.port, fallback=False) as second:
        assert (await get(second.port, "/health"))[0] == 200


@pytest.mark.spec("G7")
async def test_signals_stay_with_the_process() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with HttpServer(app_with({"status": "ok"})):
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert before == during


@pytest.mark.spec("G7")
async def test_open_connections_do_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One idle connection, and one that is being answered for ever."""
    monkeypatch.setattr("floodmark.api.server.GRACE", 0.2)
    began = asyncio.Event()

    async def endless(_: Request) -> Response:
        async def resources() -> AsyncIterator[bytes]:
            began.set()
            while True:
                yield b"more\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(resources())

    async with asyncio.timeout(120):
        async with HttpServer(Starlette(routes=[Route("/endless", endless)])) as server:
            _, idle = await asyncio.open_connection("127.0.0.1", server.port)
            _, busy = await asyncio.open_connection("127.0.0.1", server.port)
            busy.write(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
            await began.wait()
        for writer in (idle, busy):
            writer.close()


@pytest.mark.spec("G9")
async def test_an_application_that_cannot_start_is_an_error_not_an_exit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def no_database() -> None:
        raise RuntimeError("no database")

    @asynccontextmanager
    async def broken(_: Starlette) -> AsyncIterator[None]:
        await no_database()
        yield

    with pytest.raises(Unavailable, match="did not start"), caplog.at_level(logging.ERROR):
        async with HttpServer(Starlette(lifespan=broken)):
            pass
    assert "no database" in caplog.text


async def test_an_error_inside_the_block_passes_through_after_the_server_has_ended() -> None:
    with pytest.raises(KeyError):
        async with HttpServer(app_with({"status": "ok"})) as server:
            raise KeyError("ours")
    with pytest.raises(ConnectionRefusedError):
        await get(server.port, "/health")


async def test_nothing_is_written_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(io.StringIO()))
    try:
        async with HttpServer(app_with({"status": "ok"})) as server:
            await get(server.port, "/health")
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr() == ("", "")
