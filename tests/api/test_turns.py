"""How many requests are answered at once: the others wait, and beyond a bound they are refused with 503."""

import asyncio

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from api.serving import served
from floodmark.api.server import HttpServer
from floodmark.api.turnstile import Admission, Busy, Turns, Turnstile
from floodmark.client.requests import OutgoingRequest
from floodmark.client.transport import Transport
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened

ONE = Turns(at_once=1, waiting=1)


class Slow:
    """An application whose answers wait for `go`; it knows how many it answers at the moment."""

    def __init__(self) -> None:
        self.go, self.busy, self.most = asyncio.Event(), 0, 0

    async def wait(self, request: Request) -> Response:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await self.go.wait()
        self.busy -= 1
        return Response(await request.body())

    async def endless(self, _: Request) -> Response:
        async def texts() -> object:
            yield b"begun\n"
            await self.go.wait()

        return StreamingResponse(texts())  # type: ignore[arg-type] # of bytes

    async def quick(self, _: Request) -> Response:
        return Response(b"well")

    def app(self, turns: Turns = ONE) -> Admission:
        routes = [
            Route("/wait", self.wait, methods=["GET", "POST"]),
            Route("/endless", self.endless),
            Route("/quick", self.quick),
            Route("/health", self.quick),
        ]
        return Admission(Starlette(routes=routes), turns=turns, probes=("/health",))


@pytest.mark.spec("G6")
async def test_beyond_the_bound_requests_are_refused_and_probes_are_answered() -> None:
    slow = Slow()
    async with (
        HttpServer(slow.app()) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
    ):
        asked = [asyncio.create_task(client.get("/wait", timeout=60)) for _ in range(10)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        refused = done.pop().result()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["type"] == "urn:floodmark:busy"
        assert (await client.get("/health", timeout=60)).status_code == 200
        slow.go.set()
        codes = sorted([(await answer).status_code for answer in asked])
    assert codes == [200, 200] + [503] * 8
    assert slow.most == 1


@pytest.mark.spec("G6")
async def test_slow_senders_and_streams_keep_no_turn_from_others() -> None:
    slow, turns = Slow(), Turns(at_once=1, waiting=4)
    async with (
        HttpServer(slow.app(turns)) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345")
        async with client.stream("GET", "/endless", timeout=60) as stream:
            assert await anext(stream.aiter_bytes()) == b"begun\n"
            assert (await client.get("/quick", timeout=60)).status_code == 200
            slow.go.set()
        writer.transport.abort()


async def test_a_client_asks_again_when_the_server_was_busy() -> None:
    """Also for a change: what was refused for want of a turn was never looked at."""
    slow = Slow()
    app = Admission(Starlette(routes=[Route("/api/v2/wait", slow.wait, methods=["POST"])]), turns=ONE)
    async with HttpServer(app) as server:
        transport = Transport(server.url)
        asked = [
            asyncio.create_task(transport.send(OutgoingRequest("POST", "/wait", {}, {}, number))) for number in range(3)
        ]
        asyncio.get_running_loop().call_later(0.5, slow.go.set)
        assert sorted(await asyncio.gather(*asked)) == [b"0", b"1", b"2"]
        await transport.close()


async def test_nobody_waits_for_a_turn_for_ever() -> None:
    turnstile = Turnstile(ONE, patience=0.01)
    turn = await turnstile.turn()
    with pytest.raises(Busy):
        await turnstile.turn()
    turn.end()
    turn.end()
    second = await turnstile.turn()
    with pytest.raises(Busy):
        await turnstile.turn()
    second.end()


async def test_turns_begin_at_a_distance() -> None:
    turnstile = Turnstile(Turns(at_once=4, rest=1000.0))
    began = asyncio.get_running_loop().time()
    turns = await asyncio.gather(*(turnstile.turn() for _ in range(3)))
    assert asyncio.get_running_loop().time() - began >= 0.19
    for turn in turns:
        turn.end()


@pytest.mark.spec("G6")
async def test_beside_work_open_pages_are_refreshed_one_at_a_time_and_hold_no_turn_of_others() -> None:
    slow, again = Slow(), {"X-Floodmark-Live": "1"}
    async with (
        HttpServer(slow.app(Turns(at_once=4, rest=0.1))) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
    ):
        pages = [asyncio.create_task(client.get("/wait", headers=again)) for _ in range(5)]
        await eventually(lambda: slow.busy == 1)
        others = [asyncio.create_task(client.get("/wait")) for _ in range(3)]
        await eventually(lambda: slow.busy == 4)
        assert (await client.get("/quick")).status_code == 200
        slow.go.set()
        assert [(await answer).status_code for answer in [*pages, *others]] == [200] * 8
    assert slow.most == 4


@pytest.mark.spec("V8")
async def test_a_body_that_grows_too_large_is_refused_before_its_turn(sqlite: Opened) -> None:
    async def endless() -> object:
        for _ in range(100):
            yield b"x" * 100

    async with sqlite(api_body_max=1000) as resources, served(resources) as api:
        refused = await api.client.post("/api/v2/jobs", content=endless())  # type: ignore[arg-type] # of bytes
        assert refused.status_code == 413
        assert refused.json()["request_id"]
