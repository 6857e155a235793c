"""The examples of the OpenAPI document are accepted by the server that publishes it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from api.serving import Api, document, serving
from floodmark.sinks.trial import build_test_event
from floodmark.testing.factories import Opened


def whole_examples(operation: dict[str, Any]) -> list[Any]:
    """Every example of a whole body: of the operation, or of its schema."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    told = [example["value"] for example in content.get("examples", {}).values()]
    return told + list(schema_of(content).get("examples", ()))


def schema_of(content: dict[str, Any]) -> dict[str, Any]:
    schema = content.get("schema", {})
    for part in (schema, *schema.get("anyOf", ())):
        if "$ref" in part:
            found: dict[str, Any] = document()["components"]["schemas"][part["$ref"].rpartition("/")[2]]
            return found
    return {}


@pytest.mark.spec("V7")
async def test_no_schema_is_named_after_a_module() -> None:
    assert [name for name in document()["components"]["schemas"] if "__" in name or "floodmark" in name.lower()] == []


@pytest.fixture
async def notifying(sqlite: Opened) -> AsyncIterator[Api]:
    """An installation that can notify over Slack, as an example wants it."""
    async with serving(sqlite, notify_slack_url="https://hooks.example.com/services/1") as api:
        yield api


@pytest.mark.spec("V7")
async def test_every_example_of_a_body_is_accepted(notifying: Api) -> None:
    sent, sinks = 0, notifying.resources.repositories.sinks
    await sinks.register("news", "webhook", None)
    await sinks.start("news", 0, place="https://collector.example")
    await notifying.post("watches", json={"name": "news", "query": "fire", "notify": ["slack"]})
    letters, event = (
        notifying.resources.repositories.sink_letters,
        build_test_event("news", notifying.resources.clock.now()),
    )
    names = {
        "{job_id}": "news",
        "{path}": "sources/42/crawl",
        "{stream}": "s",
        "{key}": "k",
        "{name}": "news",
        "{watch}": "news",
    }
    operations = [
        (path, method, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if whole_examples(operation)
    ]
    # What makes a job first: the others name it.
    for path, method, operation in sorted(operations, key=lambda found: (found[0], found[1] != "post")):
        for place, name in names.items():
            path = path.replace(place, name)  # noqa: PLW2901 - built up
        for example in whole_examples(operation):
            # The one that the examples name; dropping it leaves none for the next.
            await letters.add("news", replace(event, position=4812), "not wanted")
            answer = await notifying.client.request(method.upper(), path, json=example)
            assert answer.status_code < 400, (method, path, example, answer.text)
            sent += 1
    assert sent >= 6


@pytest.mark.spec("V7")
@pytest.mark.thorough
async def test_every_example_of_a_field_is_accepted(light: Api) -> None:
    """One at a time, beside what the body needs; a field that goes with another brings it along."""
    await light.job("first")
    await light.ask("PUT", "budgets/news", json={"requests": 30})
    await light.post("jobs", json={"name": "news", "source": "telegram", "target": "@example_news"})
    fields = document()["components"]["schemas"]["JobPatch"]["properties"]
    beside: dict[str, dict[str, Any]] = {
        "time_config": {"frequency": "weekly"},
        "frequency": {"time_config": {"day": "monday", "hour": 2, "minute": 0}},
        "schedule_type": {"interval_seconds": 300},
    }
    for name, schema in fields.items():
        for example in schema.get("examples", ()):
            answer = await light.patch("jobs/news", json={name: example, **beside.get(name, {})})
            assert answer.status_code == 200, (name, example, answer.text)
    others = [
        ("POST", "jobs/news/pause", "PauseIn", {}),
        ("POST", "jobs/news/force-run", "RunIn", {}),
        ("PUT", "limits/telegram:account:main", "LimitIn", {}),
        ("PUT", "watermarks/news", "WatermarkIn", {}),
        ("PUT", "secrets/shop", "SecretIn", {}),
        ("POST", "tokens", "TokenIn", {"role": "admin"}),
    ]
    for method, path, model, needed in others:
        known = document()["components"]["schemas"][model]["properties"]
        body = {name: schema["examples"][0] for name, schema in known.items() if schema.get("examples")}
        answer = await light.ask(method, path, json={**needed, **body})
        assert answer.status_code < 300, (path, body, answer.text)
