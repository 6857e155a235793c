"""Test the sink with the contract of all event sinks, against a local server."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from floodmark_ndjson import NdjsonSink, open_sink

from floodmark.testing.contracts.event_sink import Delivered, EventSinkContract
from floodmark.testing.services import open_services


class Endpoint(ThreadingHTTPServer):
    """A server that keeps the posted lines."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    """Accept lines of JSON."""

    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.lines += [json.loads(line) for line in body.splitlines()]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class TestNdjsonSink(EventSinkContract):
    @pytest.fixture
    def endpoint(self) -> Iterator[Endpoint]:
        with Endpoint() as endpoint:
            threading.Thread(target=endpoint.serve_forever, daemon=True).start()
            yield endpoint
            endpoint.shutdown()

    @pytest.fixture
    async def sink(self, endpoint: Endpoint, tmp_path: Path) -> AsyncIterator[NdjsonSink]:
        section = {"url": f"http://127.0.0.1:{endpoint.server_port}/events"}
        async with open_services("ndjson", tmp_path / "services", section) as services:
            sink = open_sink(services)
            assert sink is not None
            yield sink

    @pytest.fixture
    def delivered(self, endpoint: Endpoint) -> Delivered:
        async def keys() -> list[str]:
            return [line["key"] for line in endpoint.lines]

        return keys


async def test_without_an_address_the_sink_is_off(tmp_path: Path) -> None:
    async with open_services("ndjson", tmp_path) as services:
        assert open_sink(services) is None
