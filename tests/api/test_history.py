"""Executions, dead letters and statistics over HTTP."""

from datetime import timedelta
from typing import Any

import pytest

from api.serving import Api
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Dead
from floodmark.operations.stored_tokens import Tokens
from floodmark.repositories.jobs import Jobs
from system.channel_posts import DAY, HARBOUR, a_post, keep
from system.stores import Crew


async def ran(api: Api, name: str, outcome: Any = None) -> str:
    """The id of an execution that was run and has ended."""
    jobs = Jobs(api.resources.database, api.resources.clock)
    lease = await Crew(api.resources.database).run(jobs, await jobs.get(name), outcome)  # type: ignore[arg-type]
    return lease.execution_id


@pytest.mark.spec("E5")
@pytest.mark.thorough
async def test_executions_are_listed_by_job_and_state_in_pages(api: Api) -> None:
    await api.job("news")
    await api.job("olds")
    first, second = await ran(api, "news"), await ran(api, "news", Dead(error="boom"))
    other = await ran(api, "olds")

    async def ids(**query: Any) -> list[str]:
        return [row["execution_id"] for row in (await api.get("executions", params=query)).json()["items"]]

    assert await ids() == [other, second, first]
    assert await ids(job="news") == [second, first]
    assert await ids(state="dead") == [second]
    assert await ids(state=["dead", "done"]) == [other, second, first]
    page = (await api.get("executions", params={"limit": 2})).json()
    assert await ids(cursor=page["next"]) == [first]
    recent = (await api.get("executions/recent", params={"hours": 1})).json()
    assert [row["execution_id"] for row in recent["items"]] == [other, second, first]

    shown = (await api.get(f"executions/{first}")).json()
    assert (shown["state"], shown["duration_seconds"], shown["job_name"]) == ("done", 2.0, "news")
    assert (await api.get("executions/ffffffff")).status_code == 404


@pytest.mark.spec("B10")
@pytest.mark.thorough
async def test_the_latest_executions_of_several_jobs_are_listed_in_short(api: Api) -> None:
    news, olds = [(await api.job(name))["job_id"] for name in ("news", "olds")]
    _, second, third = await ran(api, "news"), await ran(api, "news", Dead(error="boom")), await ran(api, "news")
    other = await ran(api, "olds")
    found = (await api.get("executions/latest", params={"job": [olds, news, "gone"], "count": 2})).json()["items"]
    assert [row["execution_id"] for row in found if row["job_id"] == news] == [third, second]
    assert [row["execution_id"] for row in found if row["job_id"] == olds] == [other]
    assert [row["state"] for row in found if row["job_id"] == news] == ["done", "dead"]
    assert (await api.get("executions/latest")).status_code == 422


@pytest.mark.spec("B10")
@pytest.mark.thorough
async def test_an_execution_has_its_params_and_its_trace(api: Api) -> None:
    await api.job("news")
    asked = await api.post("jobs/news/force-run", json={"params": {"count": 3, "api_token": "hidden"}})
    shown = (await api.get(f"executions/{asked.json()['execution_id']}")).json()
    assert (shown["params"], shown["traceparent"]) == ({"count": 3, "api_token": "hidden"}, None)
    reading = await Tokens(api.resources.database, api.resources.clock).add("reader", "read")
    masked = await api.get(
        f"executions/{asked.json()['execution_id']}", headers={"Authorization": f"Bearer {reading.text}"}
    )
    assert masked.json()["params"] == {"count": 3, "api_token": "***"}


@pytest.mark.spec("E5")
async def test_statistics_have_the_keys_that_were_asked_for(api: Api) -> None:
    await api.job("news")
    await ran(api, "news")
    await ran(api, "news", Dead(error="boom"))
    found = (await api.get("statistics", params={"days": 1, "job": "news"})).json()
    assert list(found) == [
        "total_executions",
        "successful",
        "failed",
        "cancelled",
        "success_rate",
        "avg_duration",
        "min_duration",
        "max_duration",
    ]
    assert (found["total_executions"], found["successful"], found["failed"], found["success_rate"]) == (2, 1, 1, 50.0)


@pytest.mark.spec("V8")
async def test_an_execution_is_cancelled_once(api: Api) -> None:
    await api.job()
    asked = (await api.post("jobs/news/force-run")).json()["execution_id"]
    assert (await api.post(f"executions/{asked}/cancel")).json()["state"] == "cancelled"
    again = await api.post(f"executions/{asked}/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "urn:floodmark:conflict")
    story = (await api.get(f"executions/{asked}/logs")).json()
    assert [event["event"] for event in story["events"]] == ["created", "ended", "execution.cancelled"]


@pytest.mark.spec("T13")
async def test_a_dead_execution_is_explained_and_retried(api: Api) -> None:
    await api.job()
    done, dead = await ran(api, "news"), await ran(api, "news", Dead(error="user 'x' not found"))
    story = (await api.get(f"executions/{dead}/logs")).json()
    assert story["error_message"] == "user 'x' not found"
    assert [attempt["error"] for attempt in story["attempts"]] == ["user 'x' not found"]
    refused = await api.post(f"executions/{done}/retry")
    assert (refused.status_code, "force-run" in refused.json()["hint"]) == (409, True)
    retried = await api.post(f"executions/{dead}/retry")
    assert (retried.status_code, retried.json()["state"]) == (202, "queued")


@pytest.mark.spec("T13")
async def test_dead_letters_are_grouped_retried_and_dropped(api: Api) -> None:
    await api.job("news")
    await api.job("olds")
    letters = [await ran(api, "news", Dead(error=f"user {n} not found")) for n in range(3)]
    other = await ran(api, "olds", Dead(error="boom"))

    first = (await api.get("dead-letters", params={"limit": 3})).json()
    rest = (await api.get("dead-letters", params={"limit": 3, "cursor": first["next"]})).json()
    assert [row["execution_id"] for row in first["items"] + rest["items"]] == [other, *reversed(letters)]
    assert len((await api.get("dead-letters", params={"job": "olds"})).json()["items"]) == 1

    groups = (await api.get("dead-letters/groups")).json()["items"]
    assert [(group["fingerprint"], group["count"]) for group in groups] == [("user # not found", 3), ("boom", 1)]

    assert (await api.post("dead-letters/retry", json={})).status_code == 400
    assert (await api.post("dead-letters/retry", json={"ids": letters[:1]})).json() == {"count": 1}
    assert (await api.post("dead-letters/retry", json={"group": "user # not found"})).json() == {"count": 2}
    assert (await api.post("dead-letters/drop", json={"job": "olds"})).json() == {"count": 1}
    assert (await api.post("dead-letters/drop", json={"job": "olds"})).status_code == 404
    assert (await api.get("dead-letters")).json() == {"items": [], "next": None}


async def test_watermarks_are_shown_moved_and_remembered(api: Api) -> None:
    await api.job("news", stream="web:https://example.org/a?b=%2F")
    named = "watermarks/web:https:%2F%2Fexample.org%2Fa%3Fb=%252F"
    assert (await api.get(named)).status_code == 404

    tried = (await api.put("watermarks/news", json={"value": {"id": 7}}, params={"dry_run": "true"})).json()
    assert (tried["before"], tried["after"], tried["applied"], tried["watermark"]) == (None, {"id": 7}, False, None)
    assert (await api.get(named)).status_code == 404

    moved = (await api.put("watermarks/news", json={"value": {"id": 7}})).json()
    assert (moved["applied"], moved["watermark"]["value"]) == (True, {"id": 7})
    assert (await api.get(named)).json()["value"] == {"id": 7}
    assert (await api.delete(named, params={"dry_run": "true"})).json()["watermark"]["value"] == {"id": 7}
    assert (await api.delete(named)).json()["watermark"]["value"] is None
    assert len((await api.get("watermarks")).json()["items"]) == 1

    told = (await api.get(f"{named}/history")).json()["items"]
    assert [(row["action"], row["who"], row["via"]) for row in told] == [
        ("watermark.reset", "local", "api"),
        ("watermark.set", "local", "api"),
    ]
    assert (await api.put("watermarks/nowhere", json={"value": {}})).status_code == 404
    assert (await api.put("watermarks/news", json={"value": [1]})).status_code == 422


async def test_items_and_events_are_read_by_cursor(api: Api) -> None:
    await api.job("news", stream="s/1")
    jobs, crew = Jobs(api.resources.database, api.resources.clock), Crew(api.resources.database)  # type: ignore[arg-type]
    items = [Item(key=f"k/{n}", data={"n": n}) for n in range(5)]
    await crew.collect(jobs, await jobs.get("news"), Batch(items=tuple(items), watermark={"n": 4}))
    await crew.collect(
        jobs, await jobs.get("news"), Batch(items=(Item(key="k/1", data={"n": -1}),), watermark={"n": 5})
    )
    await crew.relay()

    first = (await api.get("streams/s%2F1/items", params={"limit": 3})).json()
    rest = (await api.get("streams/news/items", params={"limit": 3, "cursor": first["next"]})).json()
    assert [row["key"] for row in first["items"] + rest["items"]] == [f"k/{n}" for n in range(5)]
    assert (await api.get("streams/news")).json() == {"stream": "s/1", "items": 5, "chat": None}
    one = (await api.get("streams/news/items/k%2F1")).json()
    assert (one["newest"]["data"], [row["data"] for row in one["earlier"]]) == ({"n": -1}, [{"n": 1}])
    assert (await api.get("streams/news/items/k")).status_code == 404

    seen: list[int] = []
    page = (await api.get("events", params={"limit": 4})).json()
    seen += [event["position"] for event in page["items"]]
    page = (await api.get("events", params={"limit": 4, "cursor": page["next"]})).json()
    seen += [event["position"] for event in page["items"]]
    assert seen == sorted(seen)
    assert (len(seen), page["next"], page["last_position"]) == (6, None, seen[-1])
    after = (await api.get("events", params={"after": seen[-2], "stream": "news"})).json()["items"]
    assert [(event["key"], event["kind"], event["data"]) for event in after] == [("k/1", "item.changed", {"n": -1})]


async def test_items_of_certain_days_come_in_order_of_time(api: Api) -> None:
    posts = [a_post(number, at=DAY + timedelta(hours=5 * (9 - number))) for number in range(10)]
    twin = a_post(77, at=DAY)
    await keep(api.resources, [*posts, twin], name="harbour", target="@harbour")
    await keep(api.resources, [Item("x", 1)], stream="news", name="news")
    path = f"streams/telegram:{HARBOUR}/items"

    async def numbers(**params: Any) -> list[int]:
        found: list[int] = []
        while True:
            page = (await api.get(path, params={"limit": 2, **params})).json()
            found += [item["data"]["id"] for item in page["items"]]
            if page["next"] is None:
                return found
            params["cursor"] = page["next"]

    assert await numbers(since="2026-06-01") == [77, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert await numbers(since="2026-06-02", until="2026-06-02") == [4, 3, 2, 1, 0]
    assert await numbers(until="2026-06-01") == [77, 9, 8, 7, 6, 5]
    assert await numbers(since="0001-01-01", until="9999-12-31") == await numbers(since="2026-06-01")
    for wrong in ("2026-02-30", "yesterday", "2026-06-01T00:00:00Z"):
        assert (await api.get(path, params={"since": wrong})).status_code in (400, 422)
    by_key = (await api.get(path, params={"limit": 2})).json()["next"]
    assert (await api.get(path, params={"since": "2026-06-01", "cursor": by_key})).status_code == 400

    chat = {"id": HARBOUR, "tenant_id": None, "username": None, "title": None}
    first = (await api.get("streams", params={"limit": 1})).json()
    assert first["items"] == [{"stream": "news", "chat": None}]
    rest = (await api.get("streams", params={"cursor": first["next"]})).json()
    assert rest == {"items": [{"stream": f"telegram:{HARBOUR}", "chat": chat}], "next": None}
    assert (await api.get("streams", params={"chats": "true"})).json() == rest


@pytest.mark.spec("E5", "E11")
async def test_old_executions_are_deleted_on_request(light: Api) -> None:
    await light.job("news")
    await ran(light, "news")
    assert (await light.post("executions/cleanup", json={"days": 1})).json() == {"deleted": 0}
    assert (await light.post("executions/cleanup", json={"days": -1})).status_code == 422
    await light.post("jobs/news/force-run")
    assert (await light.post("executions/cleanup", json={"days": 0})).json() == {"deleted": 1}
    [left] = (await light.get("executions")).json()["items"]
    assert left["state"] == "queued", "what is unfinished stays"
    [entry, *_] = [row for row in (await light.get("audit")).json()["items"] if row["action"] == "executions.cleaned"]
    assert entry["after"] == {"days": 0.0, "deleted": 1}
