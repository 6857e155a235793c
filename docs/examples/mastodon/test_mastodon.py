"""Test the source with the contract of all sources, against a local server."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from floodmark_mastodon import MastodonSource

from floodmark import Settings, Target
from floodmark.testing.contracts.source import SourceContract
from floodmark.testing.services import open_services

POSTS: list[dict[str, Any]] = [
    {
        "id": str(100 + number),
        "created_at": f"2026-06-01T12:{number // 60:02}:{number % 60:02}.000Z",
        "url": f"https://mastodon.example/@ada/{100 + number}",
        "account": {"acct": "ada"},
        "content": f"<p>Post {number}</p>",
    }
    for number in range(1, 101)
]


class Mastodon(BaseHTTPRequestHandler):
    """Respond like a Mastodon server: with the posts directly after `min_id`, newest first."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        newer = [post for post in POSTS if int(post["id"]) > int(asked["min_id"][0])]
        body = json.dumps(newer[: int(asked["limit"][0])][::-1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Mastodon) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestMastodonSource(SourceContract):
    @pytest.fixture
    async def source(self, server: str, tmp_path: Path) -> AsyncIterator[MastodonSource]:
        async with open_services("mastodon", tmp_path) as services:
            source = MastodonSource(Settings())
            source.use_services(services)
            # The connection is open before the contract counts tasks.
            await services.http.get(f"{server}/api/v1/timelines/tag/python?min_id=0&limit=1")
            yield source

    @pytest.fixture
    def target(self, server: str) -> Target:
        return Target(name=f"{server}/tags/python", stream="mastodon:test", params={})

    @pytest.fixture
    def nonsense(self) -> str:
        return "python"
