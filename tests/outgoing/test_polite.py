"""What a domain bears, in one process and in the fleet."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from floodmark.errors import SlowDown
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.model.execution import State
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.caller import Caller
from floodmark.outbound.client import HttpAnswer
from floodmark.outbound.guard import AddressRefused
from floodmark.outbound.limits import Limits
from floodmark.outbound.polite import PoliteHttp, ServerFault, retry_after
from floodmark.rules.breaker import BreakerState
from floodmark.rules.retries import Retries
from floodmark.sinks.sql import SqlSink
from floodmark.sources.port import Context, Target
from floodmark.testing.clock import SetClock
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import TTL, Opened, execution_of, given_queued
from floodmark.testing.web import Site, no_answer, redirect, status
from floodmark.wiring.resources import Resources, call_policy
from floodmark.worker.executor import Executor
from floodmark.worker.worker import Worker

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("V12")

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SETTINGS = {**Site.settings("a.test", "b.test"), "web_domain_delay": timedelta(), "backoff_base_seconds": 0.001}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        for number in range(20):
            site.page(f"/{number}", f"Page {number}")
        yield site


@pytest.fixture
async def resources(sqlite: Opened) -> AsyncIterator[Resources]:
    async with sqlite(**SETTINGS) as resources:
        yield resources


def polite(resources: Resources, **options: Any) -> PoliteHttp:
    return PoliteHttp(
        resources.http, resources.caller, resources.clock, resources.events, **{"delay": timedelta(), **options}
    )


async def test_a_domain_gets_few_requests_at_a_time(site: Site, resources: Resources) -> None:
    """Each domain for itself, and those who are first, first."""
    held = asyncio.Event()

    async def hold(request: Any) -> Any:
        await held.wait()
        return await status(200)(request)

    site.always("/*", hold)
    http = polite(resources, concurrency=3)
    asking = [asyncio.create_task(http.get(site.at("a.test", f"/{n}"))) for n in range(8)]
    asking += [asyncio.create_task(http.get(site.at("b.test", f"/{n}"), concurrency=1)) for n in range(3)]
    await eventually(lambda: len(site.seen) == 4)
    # Whoever gives up, waiting or not, makes room for the next.
    asking[0].cancel()
    asking[3].cancel()
    await eventually(lambda: len(site.paths(host="a.test")) == 4)
    held.set()
    got = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(each, HttpAnswer) for each in got) == 9
    assert max(seen.inside for seen in site.seen) <= 5
    asked = site.paths(host="a.test")
    assert (set(asked[:3]), asked[3], set(asked[4:])) == ({"/0", "/1", "/2"}, "/4", {"/5", "/6", "/7"})
    assert site.paths(host="b.test") == ["/0", "/1", "/2"]


async def test_requests_to_a_domain_keep_their_distance(site: Site, resources: Resources) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    http = polite(resources, delay=timedelta(seconds=100), sleep=sleep)
    await http.get(site.at("a.test", "/1"))
    await http.get(site.at("b.test", "/1"))
    assert slept == []
    await asyncio.gather(*(http.get(site.at("a.test", f"/{n}")) for n in (2, 3)))
    await http.get(site.at("a.test", "/4"), delay=timedelta())
    assert [round(seconds, -1) for seconds in slept] == [100, 200, 300]
    # Also when it is tried again, and where it is redirected to.
    slept.clear()
    site.trouble("/5", status(500))
    site.always("/6", redirect(site.at("b.test", "/7")))
    await http.get(site.at("b.test", "/5"))
    await http.get(site.at("b.test", "/6"))
    assert len(slept) == 4


async def test_so_many_domains_are_remembered(
    site: Site, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.outbound.polite._MAX_DOMAINS", 2)
    http = polite(resources)
    for number in range(5):
        with pytest.raises(AddressRefused):
            await http.get(f"http://127.0.0.{number}:{site.port}/")
    await http.get(site.at("a.test", "/1"))
    await http.get(site.at("b.test", "/1"))
    await http.get(site.at("a.test", "/1"))
    assert len(http._domains) <= 2


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("120", timedelta(seconds=120)),
        (" 0 ", timedelta(seconds=1)),
        ("9" * 5000, timedelta(days=1)),
        ("Mon, 01 Jun 2026 12:05:00 GMT", timedelta(minutes=5)),
        ("Mon, 01 Jun 2026 11:00:00 GMT", timedelta(seconds=1)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta(days=1)),
        ("Mon, 01 Jun 2026 12:05:00", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("١٢", None),
        ("", None),
    ],
)
def test_what_retry_after_says(said: str, expected: timedelta | None) -> None:
    def answer(**headers: str) -> HttpAnswer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return HttpAnswer(status=429, url="http://a.test/", headers=CIMultiDictProxy(CIMultiDict(named)), body=b"")

    assert retry_after(answer(Retry_After=said), NOW) == expected
    # The server's clock may be wrong by hours; the difference is not.
    skewed = answer(Retry_After="Mon, 01 Jun 2026 17:05:00 GMT", Date="Mon, 01 Jun 2026 17:00:00 GMT")
    assert retry_after(skewed, NOW) == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("behaviour", "least", "most"),
    [
        (status(429, retry_after="120"), 61, 120),
        (status(429), 1, 60),
        (status(503, retry_after="7200"), 7080, 7200),
        (status(429, retry_after="99999999"), 86_280, 86_400),
    ],
)
async def test_who_asks_to_be_left_alone_is_left_alone_by_the_fleet(
    site: Site, sqlite: Opened, behaviour: Any, least: float, most: float
) -> None:
    site.trouble("/1", behaviour)
    async with sqlite(**SETTINGS) as one, sqlite(**SETTINGS) as other:
        with pytest.raises(SlowDown, match=r"a\.test answers with status") as told:
            await one.polite.get(site.at("a.test", "/1"))
        # It is stored already, so the execution need not do it again.
        assert told.value.key is None
        assert told.value.is_answer
        [held] = await Limits(other.database, other.clock).holding(f"web:a.test:{site.port}")
        assert (held.key, least <= held.rest.total_seconds() <= most) == (f"web:a.test:{site.port}", True)
        for resources in (one, other):
            with pytest.raises(SlowDown, match=r"a\.test answers with status") as refused:
                await resources.polite.get(site.at("a.test", "/2"))
            assert refused.value.after.total_seconds() <= most
            assert not refused.value.is_answer, "it was not asked, and is not to blame"
            assert (await resources.polite.get(site.at("b.test", "/2"))).status == 200
    assert site.paths(host="a.test") == ["/1"]


@pytest.mark.spec("V5")
async def test_failures_in_a_row_open_the_breaker_and_a_probe_closes_it(site: Site, resources: Resources) -> None:
    clock = SetClock()
    breakers = Breakers(resources.database, clock)
    caller = Caller(
        Limits(resources.database, clock), breakers, call_policy(resources.settings), clock, resources.events
    )
    http = PoliteHttp(resources.http, caller, clock, resources.events, delay=timedelta())

    async def state() -> BreakerState:
        return (await breakers.read(f"web:a.test:{site.port}"))[0].state

    # One broken page among good ones breaks nothing: it is tried twice, and answers in between are answers.
    site.always("/broken", status(500))
    for number in range(6):
        with pytest.raises(ServerFault, match="status 500") as fault:
            await http.get(site.at("a.test", "/broken"))
        assert fault.value.status == 500
        assert (await http.get(site.at("a.test", f"/{number}"))).status == 200
    assert (await http.get(site.at("a.test", "/nothing"))).status == 404
    assert await state() is BreakerState.CLOSED

    site.forget()
    site.trouble("/*", status(503), times=1000)
    for _ in range(3):
        with pytest.raises((ServerFault, SlowDown)):
            await http.get(site.at("a.test", "/1"))
    assert len(site.seen) == 5
    assert await state() is BreakerState.OPEN
    with pytest.raises(SlowDown, match=rf"breaker web:a\.test:{site.port} is open until"):
        await http.get(site.at("a.test", "/1"))
    assert len(site.seen) == 5

    clock.advance(resources.settings.scheduler_cb_timeout)
    with pytest.raises((ServerFault, SlowDown)):
        await http.get(site.at("a.test", "/1"))
    assert (len(site.seen), await state()) == (6, BreakerState.OPEN)
    clock.advance(2 * resources.settings.scheduler_cb_timeout)
    site.calm()
    assert (await http.get(site.at("a.test", "/1"))).status == 200
    assert await state() is BreakerState.CLOSED


@pytest.mark.spec("V5")
async def test_silence_counts_as_a_failure_and_a_refusal_does_not(site: Site, sqlite: Opened) -> None:
    site.always("/silent", no_answer())
    settings = {**SETTINGS, "scheduler_cb_threshold": 2}
    async with (
        sqlite(**settings, http_timeout=timedelta(seconds=0.1)) as impatient,
        sqlite(**settings) as resources,
    ):
        for _ in range(3):
            with pytest.raises(AddressRefused):
                await impatient.polite.get("http://127.0.0.1/")
        with pytest.raises(Exception, match=rf"took longer than|breaker web:a\.test:{site.port} is open"):
            await impatient.polite.get(site.at("a.test", "/silent"))
        with pytest.raises(SlowDown, match=rf"breaker web:a\.test:{site.port} is open"):
            await resources.polite.get(site.at("a.test", "/1"))
        assert (await resources.polite.get(site.at("b.test", "/1"))).status == 200


class Reading:
    """A source that reads one page."""

    kind = "test"

    def __init__(self, resources: Resources, url: str) -> None:
        self._resources, self._url = resources, url

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        answer = await self._resources.polite.get(self._url)
        yield Batch([Item(target.name, answer.status)], {})

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Everything goes."""


@pytest.mark.spec("V5", "G5")
@pytest.mark.parametrize("trouble", [status(503), status(429, retry_after="120")])
async def test_executions_wait_for_a_domain_and_do_not_fail(site: Site, resources: Resources, trouble: Any) -> None:
    site.trouble("/*", trouble, times=1000)
    for _ in range(3):
        with pytest.raises((ServerFault, SlowDown)):
            await resources.polite.get(site.at("a.test", "/1"))
    before = len(site.seen)
    retries = Retries(base=TTL, longest=TTL, chance=Random(1))
    source = Reading(resources, site.at("a.test", "/1"))
    executor = Executor({"test": source}, SqlSink(resources.keeping, resources.events), retries, asyncio.Event())
    worker = Worker(resources.queue, executor, resources.events, name="a", slots=2, batch=2, ttl=TTL)
    [execution] = await given_queued(resources)
    running = asyncio.create_task(worker.run())
    try:

        async def waits() -> dict[str, Any]:
            row = await execution_of(resources, execution)
            assert row["state"] == State.WAITING, row
            return row

        row = await eventually(waits)
    finally:
        worker.stop()
        await running
    assert (row["attempt"], row["error_message"]) == (0, None)
    assert "a.test" in row["reason"]
    assert row["not_before"] > resources.clock.now()
    assert len(site.seen) == before
