"""The client: typed answers, the same errors as without HTTP between, and patience where it does no harm."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import pytest

from api.serving import Api
from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.client import Client, Denied, SyncClient
from floodmark.errors import Conflict, InvalidInput, NotFound, Unavailable
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.execution import State
from floodmark.model.job import CatchUp, Overlap, Policy, Priority
from floodmark.model.outcome import Dead
from floodmark.operations.executions import Letters
from floodmark.operations.jobs import JobFilter, columns_to_send
from floodmark.operations.local import LocalOperations
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources
from system.stores import Crew, a_spec

pytestmark = pytest.mark.spec("V8")

T = TypeVar("T")
Answer = tuple[int, dict[str, str], Any]


@pytest.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    async with Client(api.base) as client:
        yield client


@pytest.fixture
def local(api: Api) -> LocalOperations:
    """The operations of the very process that serves."""
    return LocalOperations(api.resources, Actor(who="ada"))


@pytest.fixture
def remote(client: Client) -> Client:
    return client


@pytest.mark.thorough
async def test_a_job_comes_back_as_it_is_stored(local: LocalOperations, remote: Client) -> None:
    await local.add_job(a_spec(name="first"))
    spec = a_spec(
        "feeds:today",
        name="news/today ü%",
        policy=Policy(overlap=Overlap.QUEUE, catch_up=CatchUp.ALL, jitter=timedelta(seconds=2.5), max_instances=3),
        params={"depth": 2, "deep": {"a": [1, None, "x"]}},
        tags=("one", "two"),
        priority=Priority.HIGH,
        timeout=timedelta(minutes=5),
        retry_max=7,
        depends_on=("first",),
        domain="example.org",
        tenant_id="t1",
        limit_key="account 1",
    )
    made = await remote.add_job(spec)
    assert made == await local.job("news/today ü%") == await remote.job("news/today ü%")
    assert await remote.jobs() == await local.jobs()
    assert (made.policy, made.timeout, made.params) == (spec.policy, spec.timeout, spec.params)


@pytest.mark.thorough
async def test_what_is_not_said_of_a_job_is_for_the_settings_of_the_server(remote: Client) -> None:
    spec = a_spec("feeds:one", timeout=timedelta(hours=9), retry_max=99)
    made = await remote.add_job(columns_to_send(spec, unsaid={"timeout_seconds"}))
    assert (made.timeout, made.retry_max, made.name) == (timedelta(hours=1), 99, "one")


async def test_a_job_is_told_and_the_audit_knows_by_whom(local: LocalOperations, remote: Client) -> None:
    job = await remote.add_job(a_spec("feeds:news", name="news"))
    assert (await remote.pause_job("news", "too loud")).pause_reason == "too loud"
    assert not (await remote.resume_job("news")).paused
    changed = await remote.change_job("news", {"timeout_seconds": timedelta(minutes=1), "tags": ("a",)})
    assert (changed.timeout, changed.tags) == (timedelta(minutes=1), ("a",))
    asked = await remote.run_job("news", {"depth": 2})
    assert (await remote.execution(asked.execution_id[:20])).state is State.QUEUED
    assert (await remote.run_job("news")).reason is not None
    assert (await remote.explain("news")).code == (await local.explain("news")).code
    assert (await remote.cancel_execution(asked.execution_id)).state is State.CANCELLED
    assert await remote.cancel_job("news") == 1
    assert (await remote.remove_job("news")).job_id == job.job_id
    rows = await remote.audit(what="job:news")
    assert rows == await local.audit(what="job:news")
    assert {(row.who, row.via) for row in rows.items} == {("local", "api")}


async def test_errors_are_the_same_as_without_http_between(local: LocalOperations, remote: Client) -> None:
    job = await local.add_job(a_spec(name="news"))
    await local.change_job("news", {"priority": 1})

    async def told(work: Awaitable[Any], kind: type[Exception]) -> tuple[str, str]:
        with pytest.raises(kind) as caught:
            await work
        return str(caught.value), getattr(caught.value, "hint", "")

    for operations in (local, remote):
        assert "did you mean news?" in (await told(operations.job("nwes"), NotFound))[1]
        await told(operations.add_job(a_spec("feeds:news", name="news")), Conflict)
        await told(operations.change_job("news", {"priority": 2}, version=job.version), Conflict)
        await told(operations.execution("zz"), NotFound)
        await told(operations.retry_letters(Letters(job="news")), NotFound)
        await told(operations.clear_limit("nobody"), NotFound)
    assert await told(local.job("nwes"), NotFound) == await told(remote.job("nwes"), NotFound)
    assert await told(local.item("news", "x"), NotFound) == await told(remote.item("news", "x"), NotFound)
    bad = await told(remote.change_job("news", {"priority": 9}), InvalidInput)
    assert "priority" in bad[0]
    assert (await local.job("news")).priority == 1


async def test_lists_are_gone_through_page_by_page(local: LocalOperations, client: Client, remote: Client) -> None:
    for number in range(7):
        await local.add_job(a_spec(name=f"job-{number}", tags=("odd",) if number % 2 else ()))
        await local.run_job(f"job-{number}")
    first = await client.jobs(limit=3)
    assert [job.name for job in first.items] == ["job-0", "job-1", "job-2"]
    second = await client.jobs(cursor=first.next, limit=3)
    assert [job.name for job in second.items] == ["job-3", "job-4", "job-5"]
    assert [job.name async for job in client.each_job(JobFilter(tag="odd"))] == ["job-1", "job-3", "job-5"]
    assert second == await local.jobs(cursor=first.next, limit=3)
    page = await remote.executions(limit=3)
    assert page == await local.executions(limit=3)
    assert await remote.executions(cursor=page.next) == await local.executions(cursor=page.next)
    assert (await remote.executions(job="job-1", states=[State.DONE])).items == []


@pytest.mark.thorough
async def test_what_was_collected_is_the_same_over_http(local: LocalOperations, remote: Client, api: Api) -> None:
    job = await local.add_job(a_spec(name="news", stream="front/page"))
    assert await remote.stream("news") == ("front/page", 0)
    await collected(api, local, job.name)
    first = await remote.items("news", limit=2)
    assert first == await local.items("news", limit=2)
    assert await remote.items("news", cursor=first.next) == await local.items("news", cursor=first.next)
    assert await remote.item("news", "k2") == await local.item("news", "k2")
    assert await remote.stream("front/page") == ("front/page", 5)
    assert await remote.events(after=1, limit=3) == await local.events(after=1, limit=3)
    assert await remote.events(stream="news") == await local.events(stream="news")
    assert await remote.last_position() == await local.last_position() == 5
    assert await remote.watermark("news") == await local.watermark("news")
    assert await remote.watermarks() == await local.watermarks()
    assert (await remote.set_watermark("news", {"id": 2})).value == {"id": 2}
    assert (await remote.reset_watermark("front/page")).value is None


async def collected(api: Api, local: LocalOperations, name: str) -> None:
    """A run of this job that keeps five items, with their events numbered."""
    crew: Any = Crew(api.resources.database)  # type: ignore[arg-type] # either kind
    items = tuple(Item(f"k{n}", {"id": n, "text": "ü\u2028"}) for n in range(5))
    await crew.collect(
        Jobs(api.resources.database, api.resources.clock), await local.job(name), Batch(items, {"id": 4})
    )
    await crew.relay()


async def test_dead_letters_and_the_fleet_are_the_same_over_http(
    local: LocalOperations, remote: Client, api: Api
) -> None:
    crew: Any = Crew(api.resources.database)  # type: ignore[arg-type] # either kind
    job = await local.add_job(a_spec(name="news"))
    for number in range(3):
        await crew.run(Jobs(api.resources.database, api.resources.clock), job, Dead(error=f"user {number} not found"))
    letters = await remote.letters(limit=2)
    assert letters == await local.letters(limit=2)
    assert await remote.letters(cursor=letters.next) == await local.letters(cursor=letters.next)
    assert await remote.letter_groups() == await local.letter_groups()
    assert await remote.statistics(7, "news") == await local.statistics(7, "news")
    [first, *rest] = (await remote.letters()).items
    assert await remote.retry_letters(Letters(ids=(first.execution_id,))) == 1
    assert await remote.drop_letters(Letters(ids=(*map(str, range(999)), rest[0].execution_id))) == 1
    assert await remote.drop_letters(Letters(group=(await remote.letter_groups())[0].fingerprint)) == 1
    assert (await remote.set_limit("host/x", 60, "rest")).reason == "rest"
    assert await remote.limits() == await local.limits()
    assert (await remote.clear_limit("host/x")).key == "host/x"
    assert await remote.breakers() == await local.breakers() == []
    assert (await remote.accounts()).items == (await local.accounts()).items == []
    await remote.drain()
    assert (await remote.fleet()).draining
    await remote.undrain()
    assert await remote.fleet() == await local.fleet()
    assert (await remote.health())["database"] == "ok"


def test_a_program_without_asyncio_waits_for_the_same_verbs(served_elsewhere: str) -> None:
    with SyncClient(served_elsewhere) as floodmark:
        for name in ("a", "b"):
            floodmark.add_job({"name": name, "source": "python", "target": "feeds:news", "interval_seconds": 900})
        assert [job.name for job in floodmark.each_job()] == ["a", "b"]
        assert next(iter(floodmark.each_job())).name == "a"
        assert floodmark.job("a").when.interval_seconds == 900
        with pytest.raises(NotFound, match="there is no job 'c'"):
            floodmark.pause_job("c")
        assert floodmark.whoami().role == "admin"
    floodmark.close()


@pytest.fixture
def served_elsewhere(sqlite_url: str) -> Iterator[str]:
    """A server in a thread of its own, for tests that block theirs."""
    ready: asyncio.Queue[str] = asyncio.Queue()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with (
            open_resources(Settings(database_url=sqlite_url)) as resources,
            HttpServer(create_app(resources)) as server,
        ):
            ready.put_nowait(server.url)
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    yield asyncio.run_coroutine_threadsafe(ready.get(), loop).result(120)
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_every_verb_is_there_for_programs_without_asyncio() -> None:
    verbs = {name for name in vars(Client) if not name.startswith("_")} - {"call"}
    assert verbs <= set(vars(SyncClient))


async def test_the_next_runs_of_a_job_and_of_an_expression(local: LocalOperations, client: Client) -> None:
    await local.add_job(a_spec(name="news"))
    runs = await client.next_runs("news", 3)
    assert [after - before for before, after in pairwise(runs[1:])] == [timedelta(minutes=15)]
    assert [run.minute for run in await client.next_of("7 * * * *", "Europe/Berlin", 2)] == [7, 7]


async def test_what_happens_is_followed_as_it_happens(light: Api) -> None:
    local = LocalOperations(light.resources, Actor(who="ada"))
    await local.add_job(a_spec(name="news"))
    await collected(light, local, "news")
    async with Client(light.base) as client:
        missed = [news async for news in _first(client.live("item", after=2), 3)]
        assert [(news.kind, news.position, news.data["key"]) for news in missed] == [
            ("item", position, f"k{position - 1}") for position in (3, 4, 5)
        ]


async def _first(found: AsyncIterator[T], count: int) -> AsyncIterator[T]:
    async for item in found:
        yield item
        count -= 1
        if not count:
            break
    await found.aclose()  # type: ignore[attr-defined] # a generator, which must not be left to the collector


# When things go wrong


@asynccontextmanager
async def answering(*answers: Answer | None) -> AsyncIterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """A server that gives these answers in turn, the last one again and again; None breaks the connection off."""
    seen: list[tuple[str, str, dict[str, str]]] = []

    async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan here")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen.append((scope["method"], scope["path"], headers))
        answer = answers[min(len(seen), len(answers)) - 1]
        if answer is None:
            # More was promised than is sent: the other side sees the connection break.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"{"})
            return
        status, told, body = answer
        raw = [(name.encode(), value.encode()) for name, value in told.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send(
            {"type": "http.response.body", "body": body if isinstance(body, bytes) else msgspec.json.encode(body)}
        )

    async with HttpServer(app) as server:
        yield server.url, seen


GOOD: Answer = (200, {}, {"who": "ada", "role": "read"})
AWAY: Answer = (503, {"retry-after": "0"}, {"detail": "the database does not answer", "hint": "try again"})


async def test_what_only_asks_is_tried_again() -> None:
    async with answering(AWAY, AWAY, GOOD) as (url, seen), Client(url, "fm_x") as client:
        assert (await client.whoami()).who == "ada"
        assert [headers["authorization"] for _, _, headers in seen] == ["Bearer fm_x"] * 3
        assert seen[0][2]["user-agent"].startswith("floodmark/")


async def test_a_connection_that_breaks_is_tried_again_and_then_told() -> None:
    async with answering(None, GOOD) as (url, seen), Client(url) as client:
        assert (await client.whoami()).who == "ada"
        assert len(seen) == 2
    async with answering(None) as (url, seen), Client(url) as client:
        with pytest.raises(Unavailable, match="the connection was closed"):
            await client.whoami()
        assert len(seen) == 3


async def test_what_changes_something_is_sent_once_unless_it_has_a_key() -> None:
    async with answering(AWAY) as (url, seen), Client(url) as client:
        with pytest.raises(Unavailable, match="the database does not answer"):
            await client.pause_job("news")
        assert len(seen) == 1
        with pytest.raises(Unavailable):
            await client.add_job({"source": "python", "target": "a:b"})
        keys = {headers["idempotency-key"] for _, path, headers in seen if path.endswith("/jobs")}
        assert (len(seen), len(keys)) == (4, 1)


async def test_a_server_that_asks_for_too_much_patience_is_not_waited_for() -> None:
    busy: Answer = (429, {"retry-after": "3600"}, {"detail": "too many wrong tokens", "hint": "wait"})
    async with answering(busy) as (url, seen), Client(url) as client:
        with pytest.raises(Unavailable, match="too many wrong tokens"):
            await client.whoami()
        assert len(seen) == 1


@pytest.mark.spec("G9")
async def test_a_server_that_is_away_is_told_in_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with Client(url) as client:
            with pytest.raises(Unavailable, match=f"cannot reach the server at {url}: nothing listens there") as caught:
                await client.jobs()
    assert "floodmark up" in caught.value.hint


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    "answer",
    [(404, {}, b"<html>nginx</html>"), (302, {"location": "https://login.example.org/"}, b""), (502, {}, b"")],
)
async def test_another_program_at_that_address_is_told_apart(answer: Answer) -> None:
    async with answering(answer) as (url, _), Client(url) as client:
        with pytest.raises(Unavailable, match=f"answers with status {answer[0]}, not as a Floodmark server") as caught:
            await client.job("news")
    assert "FLOODMARK_URL" in caught.value.hint


@pytest.mark.spec("G9")
@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", {"items": 3}, {"items": [{"name": "x"}]}])
async def test_an_answer_that_is_not_understood_is_told(body: Any) -> None:
    async with answering((200, {}, body)) as (url, _), Client(url) as client:
        with pytest.raises(Unavailable, match="in a form that is not known here") as caught:
            await client.jobs()
    assert "floodmark --version" in caught.value.hint


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_a_token_that_is_not_enough_is_told(light: Api) -> None:
    made = (await light.post("tokens", json={"name": "ci", "role": "read"})).json()["token"]
    async with Client(light.base) as nobody:
        with pytest.raises(Denied, match="a token is needed") as caught:
            await nobody.jobs()
        assert "set FLOODMARK_TOKEN" in caught.value.hint
    async with Client(light.base, made) as reader:
        assert (await reader.whoami()).who == "ci"
        assert (await reader.jobs()).items == []
        with pytest.raises(Denied, match="this needs the role operate, and ci has the role read") as caught:
            await reader.drain()
        assert "--role operate" in caught.value.hint
    async with Client(light.base, "fm_wrong") as stranger:
        with pytest.raises(Denied, match="this token is not known here") as caught:
            await stranger.jobs()
        assert "the token is the one in FLOODMARK_TOKEN" in caught.value.hint


@pytest.mark.spec("G9")
@pytest.mark.parametrize("url", ["127.0.0.1:8060", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not the address of a server"):
        SyncClient(url)


@pytest.mark.spec("G9")
async def test_a_host_that_does_not_exist_is_told() -> None:
    async with Client("http://nowhere.invalid") as client:
        with pytest.raises(Unavailable, match="there is no such host"):
            await client.jobs()


async def test_a_secret_in_an_address_is_not_shown() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with Client(f"http://me:hunter2@127.0.0.1:{taken.getsockname()[1]}") as client:
            with pytest.raises(Unavailable) as caught:
                await client.jobs()
    assert "hunter2" not in str(caught.value)
