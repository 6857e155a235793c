"""The address at which a request reaches us: directly, behind proxies, and mounted."""

import pytest
from starlette.requests import Request

from floodmark.api.addresses import (
    address_scope,
    base_url,
    cookie_name,
    described_address,
    is_private,
    prefix_of,
    route_path,
)

pytestmark = pytest.mark.spec("B10")


def a_request(
    path: str = "/", root: str = "", public_url: str | None = None, peer: str = "127.0.0.1", **headers: str
) -> Request:
    named = {"host": "localhost:8060", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": path, "root_path": root, "headers": raw}
    return Request(address_scope({**scope, "client": (peer, 4000)}, path, public_url))


def test_installations_of_one_host_have_their_own_cookies() -> None:
    requests = [
        a_request(),
        a_request(host="localhost:8061"),
        a_request(x_forwarded_prefix="/monitor"),
        a_request(x_forwarded_prefix="/other"),
        a_request(host="monitor.example.org"),
    ]
    assert len({cookie_name(request, "floodmark_session") for request in requests}) == len(requests)
    assert cookie_name(requests[-1], "floodmark_session") == "floodmark_session"


@pytest.mark.parametrize(
    ("request_", "prefix", "base"),
    [
        (a_request(), "", "http://localhost:8060"),
        (a_request(x_forwarded_prefix="/monitor"), "/monitor", "http://localhost:8060/monitor"),
        (a_request(x_forwarded_prefix="/a, /b/"), "/a/b", "http://localhost:8060/a/b"),
        (a_request("/x/jobs", root="/x"), "/x", "http://localhost:8060/x"),
        (a_request("/x/jobs", root="/x", x_forwarded_prefix="/a"), "/a/x", "http://localhost:8060/a/x"),
        # The whole path is passed on.
        (a_request("/m/jobs", public_url="https://e.org/m", host="e.org"), "/m", "http://e.org/m"),
        # The prefix is stripped, and the operator has named it.
        (a_request("/jobs", public_url="https://e.org/m", host="e.org"), "/m", "http://e.org/m"),
        (a_request("/jobs", public_url="https://e.org/m/", x_forwarded_host="e.org"), "/m", "http://e.org/m"),
        # Not through the proxy.
        (a_request("/jobs", public_url="https://e.org/m"), "", "http://localhost:8060"),
        (a_request(x_forwarded_proto="https", x_forwarded_host="e.org"), "", "https://e.org"),
        (a_request(host='e.org/"><script>'), "", "http://127.0.0.1"),
    ],
)
def test_links_follow_the_address_at_which_we_are_reached(request_: Request, prefix: str, base: str) -> None:
    assert prefix_of(request_) == prefix
    assert base_url(request_) == base


@pytest.mark.parametrize(
    ("request_", "is_so"),
    [
        (a_request(), True),
        (a_request(peer="192.0.2.1"), False),
        (a_request(x_forwarded_for="203.0.113.7"), False),
        (a_request(x_forwarded_for="203.0.113.7", x_forwarded_proto="https"), True),
        (a_request(x_forwarded_proto="http"), False),
        (a_request(x_forwarded_proto="https, http"), True),
        (a_request(via="1.1 proxy"), False),
    ],
)
def test_a_proxy_without_tls_is_not_private(request_: Request, is_so: bool) -> None:
    assert is_private(request_) is is_so


def test_the_address_of_a_client_is_the_one_that_the_nearest_proxy_has_seen() -> None:
    assert described_address(a_request(x_forwarded_for="1.1.1.1, 203.0.113.7")) == "203.0.113.7 via 127.0.0.1"
    assert described_address(a_request(x_forwarded_for="nonsense")) == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "route"), [("/a/api/v2/live", "/api/v2/live"), ("/a", "/"), ("/a/", "/"), ("/ab/jobs", "/ab/jobs")]
)
def test_limits_of_paths_hold_in_an_application_that_mounts_us(path: str, route: str) -> None:
    assert route_path({"path": path, "root_path": "/a"}) == route
