"""Searches over HTTP, and with both clients."""

import asyncio
from datetime import timedelta

import pytest

from api.serving import Api
from floodmark.client import Client, SyncClient
from floodmark.errors import InvalidInput
from system.channel_posts import DAY, HARBOUR, a_post, keep
from system.stores import Crew


async def furnish(api: Api) -> None:
    texts = ["Big <b>fire</b> in the harbour", "Smoke & fire", "Nothing new"]
    await keep(api.resources, [a_post(number, text) for number, text in enumerate(texts, start=1)])
    await Crew(api.resources.database).relay()  # type: ignore[arg-type]
    updated = (await api.post("search/index/update")).json()
    assert (updated["condition"], updated["items"], updated["pending"]) == ("ready", 3, 0)


@pytest.mark.spec("B5", "V8")
async def test_items_are_searched_in_pages(api: Api) -> None:
    await furnish(api)
    first = (
        await api.get("search", params={"q": "fire", "limit": 1, "stream": [f"telegram:{HARBOUR}", "telegram:*"]})
    ).json()
    [hit] = first["items"]
    assert (hit["stream"], hit["key"], hit["deleted"]) == (f"telegram:{HARBOUR}", f"{HARBOUR}:2", False)
    assert hit["snippet"] == [{"text": "Smoke & ", "is_match": False}, {"text": "fire", "is_match": True}]
    assert first["index"]["condition"] == "ready"
    second = (await api.get("search", params={"q": "fire", "cursor": first["next"]})).json()
    assert [hit["key"] for hit in second["items"]] == [f"{HARBOUR}:1"]
    assert second["next"] is None
    later = (DAY + timedelta(minutes=2)).isoformat()
    found = (
        await api.get("search", params={"q": "fire", "since": later, "order": "rank", "source": "telegram"})
    ).json()
    assert [hit["key"] for hit in found["items"]] == [f"{HARBOUR}:2"]
    assert (await api.get("search/index")).json()["items"] == 3
    assert (await api.get("scheduler/health")).json()["search"]["condition"] == "ready"


@pytest.mark.spec("B5")
@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ({"q": '"fire'}, 400, "has no end"),
        ({"q": "-fire"}, 400, "needs a word to search for"),
        ({"q": ""}, 422, "at least 1 character"),
        ({"q": "x" * 3000}, 422, "at most 2000 characters"),
        ({"q": "a " * 900}, 400, "more than 64 terms"),
        ({"q": "fire", "stream": "nowhere:*"}, 404, "no stream matches"),
        ({"q": "fire", "stream": ["x"] * 101}, 422, "at most 100 items"),
        ({"q": "fire", "since": "2026-01-01T00:00:00"}, 422, "timezone"),
        ({"q": "fire", "order": "best"}, 422, "newest"),
        ({"q": "fire", "cursor": "bm9uZQ"}, 400, "is not a cursor"),
    ],
)
async def test_bad_searches_are_refused(light: Api, query: dict[str, object], status: int, says: str) -> None:
    answer = await light.get("search", params=query)
    assert answer.status_code == status, answer.text
    assert says in answer.text


@pytest.mark.spec("B5", "V8")
async def test_clients_search(light: Api) -> None:
    await furnish(light)
    async with Client(light.base) as client:
        found = await client.search("fire", stream="telegram:*")
        assert [hit.key for hit in found.items] == [f"{HARBOUR}:2", f"{HARBOUR}:1"]
        assert [hit.key async for hit in client.each_hit("fire", limit=1)] == [f"{HARBOUR}:2", f"{HARBOUR}:1"]
        with pytest.raises(InvalidInput, match="has no end") as refused:
            await client.search('"fire')
        assert refused.value.hint
        assert (await client.rebuild_search_index()).condition == "building"
        assert (await client.update_search_index(patience=timedelta(seconds=5))).condition == "ready"

    def block() -> list[str]:
        with SyncClient(light.base) as client:
            return [part.text for hit in client.search("smoke").items for part in hit.snippet if part.is_match]

    assert await asyncio.to_thread(block) == ["Smoke"]
