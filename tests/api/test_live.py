"""The live feed over a real connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api.serving import Api, served
from floodmark.api import live as feed
from floodmark.api.live import Live, LiveListener, Message
from floodmark.model.batch import Batch, Item
from floodmark.operations.stored_tokens import Tokens
from floodmark.repositories.jobs import Jobs
from floodmark.testing.factories import Opened
from system.stores import Crew


class Reader:
    """Reads the feed event by event."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id: int | None = None

    async def next(self) -> tuple[str, Any]:
        """The next event, or the next comment as ("", text)."""
        async with asyncio.timeout(120):
            return await self._next()

    async def of(self, kind: str) -> Any:
        """The next event of this kind."""
        while True:
            found, data = await self.next()
            if found == kind:
                return data

    async def _next(self) -> tuple[str, Any]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if not line and fields.keys() & {"event", "comment"}:
                break
            name, _, value = line.partition(":")
            fields[name or "comment"] = value.strip()
        if "id" in fields:
            self.last_id = int(fields["id"])
        if "event" in fields:
            return fields["event"], json.loads(fields["data"])
        if "comment" in fields:
            return "", fields["comment"]
        raise EOFError


@asynccontextmanager
async def listening(api: Api, headers: dict[str, str] | None = None, **query: Any) -> AsyncIterator[Reader]:
    async with api.client.stream("GET", "/api/v2/live", params=query, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        reader = Reader(answer.aiter_lines())
        assert await reader.next() == ("", "floodmark")
        yield reader


async def collect(api: Api, *keys: str) -> None:
    jobs, crew = Jobs(api.resources.database, api.resources.clock), Crew(api.resources.database)  # type: ignore[arg-type]
    items = tuple(Item(key=key, data={"n": key}) for key in keys)
    await crew.collect(jobs, await jobs.get("news"), Batch(items=items, watermark={"n": 1}))
    await crew.relay()


@pytest.mark.spec("V8")
async def test_what_happens_is_told_to_everyone_who_listens(api: Api) -> None:
    await api.job()
    async with listening(api) as one, listening(api, only=["limit", "worker"]) as other:
        asked = (await api.post("jobs/news/force-run")).json()["execution_id"]
        told = await one.of("execution")
        assert (told["execution_id"], told["state"]) == (asked, "queued")
        await api.post(f"executions/{asked}/cancel")
        assert (await one.of("execution"))["state"] == "cancelled"

        await collect(api, "a", "b")
        assert [(await one.of("item"))["key"] for _ in range(2)] == ["a", "b"]

        await api.put("limits/host:a", json={"seconds": 60, "reason": "rest"})
        assert (await other.of("limit"))["reason"] == "rest"
        await api.delete("limits/host:a")
        assert await other.of("limit") == {"key": "host:a", "gone": True}
    live: Live = api.app.state.live
    await live.wait_closed()
    assert not live.is_polling


async def test_whoever_comes_back_gets_the_items_they_missed(api: Api) -> None:
    await api.job()
    async with listening(api, only=["item"]) as reader:
        await collect(api, "a")
        await reader.of("item")
    await collect(api, "b", "c")
    async with listening(api, {"Last-Event-ID": str(reader.last_id)}, only=["item"]) as again:
        assert [(await again.of("item"))["key"] for _ in range(2)] == ["b", "c"]
        await collect(api, "d")
        assert (await again.of("item"))["key"] == "d"
    assert (await api.get("live", headers={"Last-Event-ID": "x"})).status_code == 422
    assert (await api.get("live", params={"only": "x"})).status_code == 422


async def test_a_server_that_leaves_ends_the_feed_at_once(sqlite: Opened) -> None:
    async with sqlite() as resources, served(resources) as api:
        answer = await api.client.send(api.client.build_request("GET", "/api/v2/live"), stream=True)
        reader = Reader(answer.aiter_lines())
        await reader.next()
        api.app.state.live.close()
        assert await reader.next() == ("", "the server is leaving")
        with pytest.raises(EOFError):
            await reader.next()
        await answer.aclose()


async def test_a_listener_that_does_not_keep_up_is_dropped(sqlite: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_QUEUED", 3)
    async with sqlite() as resources:
        live = Live(resources)
        texts = live.listen(["limit"], None)
        assert b"floodmark" in await anext(texts)
        [listener] = live._listeners
        for _ in range(4):
            listener.give(Message("limit", b"event: limit\ndata: {}\n\n"))
        assert b"too slow" in await anext(texts)
        with pytest.raises(StopAsyncIteration):
            await anext(texts)
        await live.wait_closed()


async def test_silence_is_filled_with_heartbeats(sqlite: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(feed, "CHECK_SECONDS", 0.01)
    async with sqlite() as resources:
        live = Live(resources)
        texts = live.listen(["limit"], None)
        assert b"floodmark" in await anext(texts)
        assert b"still here" in await anext(texts)
        await texts.aclose()  # type: ignore[attr-defined] # a generator behind the iterator
        await live.wait_closed()


@pytest.mark.spec("G9")
async def test_a_token_that_is_revoked_ends_its_feed(light: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CHECK_SECONDS", 0.05)
    tokens = Tokens(light.resources.database, light.resources.clock)
    made = await tokens.add("watcher", "read")
    headers = {"Authorization": f"Bearer {made.text}"}
    async with listening(light, headers, only=["limit"]) as reader:
        await tokens.revoke("watcher")
        assert await reader.next() == ("", "this token is no longer good")


async def test_only_so_many_can_listen(light: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_LISTENERS", 1)
    async with listening(light):
        refused = await light.get("live")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")


async def test_a_page_is_told_once_of_many_changes_of_a_kind() -> None:
    """It loads itself once for all of them; a program that follows the feed gets every one."""
    page, program = LiveListener(("execution", "limit"), joins=True), LiveListener(("execution", "limit"))
    for listener in (page, program):
        for number in range(5000 if listener is page else 3):
            listener.give(Message("execution", b"%d" % number))
            listener.give(Message("worker", b"x"))
        listener.give(Message("limit", b"a"))
        assert not listener.is_dropped
    assert [await page.next(1) for _ in range(2)] == [Message("execution", b"4999"), Message("limit", b"a")]
    assert page.waiting.empty()
    page.give(Message("execution", b"later"))
    assert await page.next(1) == Message("execution", b"later")
    assert program.waiting.qsize() == 4
