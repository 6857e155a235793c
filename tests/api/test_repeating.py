"""The same request, sent again: carried out once, answered alike."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import update

from api.serving import Api, served
from floodmark.api.idempotency import IdempotencyKeys
from floodmark.api.tables import idempotency_keys
from floodmark.testing.clock import SetClock
from floodmark.testing.factories import Opened

BODY = {"source": "python", "target": "feeds:news"}
KEY = {"Idempotency-Key": "8e03978e"}


async def names(api: Api) -> list[str]:
    return [job["name"] for job in (await api.get("jobs")).json()["items"]]


@pytest.mark.spec("G9")
async def test_a_request_that_is_repeated_makes_one_job(api: Api) -> None:
    first = await api.post("jobs", json=BODY, headers=KEY)
    again = await api.post("jobs", json=dict(reversed(BODY.items())), headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert (again.headers["etag"], again.headers["location"]) == (first.headers["etag"], first.headers["location"])
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    assert await names(api) == ["news"]


async def test_many_at_once_with_one_key_make_one_job(api: Api) -> None:
    answers = await asyncio.gather(*(api.post("jobs", json=BODY, headers=KEY) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert await names(api) == ["news"]


async def test_a_key_is_for_one_request(api: Api) -> None:
    await api.post("jobs", json=BODY, headers=KEY)
    other = await api.post("jobs", json={**BODY, "priority": 1}, headers=KEY)
    assert (other.status_code, other.json()["type"]) == (422, "urn:floodmark:key-reused")
    assert await names(api) == ["news"]


async def test_a_request_that_was_refused_can_be_corrected_under_its_key(api: Api) -> None:
    refused = await api.post("jobs", json={**BODY, "cron_expression": "x"}, headers=KEY)
    assert refused.status_code == 400
    assert (await api.post("jobs", json={**BODY, "cron_expression": "0 6 * * *"}, headers=KEY)).status_code == 201


@pytest.mark.parametrize("was_made", [True, False])
async def test_what_a_dead_process_may_have_made_is_looked_for(api: Api, was_made: bool) -> None:
    first = await api.post("jobs", json=BODY, headers=KEY)
    if not was_made:
        await api.delete("jobs/news")
    async with api.resources.database.writing() as connection:
        # As the process leaves it that dies before it could write the answer down.
        promised = {"promised": first.json()["job_id"]}
        long_ago = api.resources.clock.now() - timedelta(minutes=2)
        await connection.execute(update(idempotency_keys).values(answer=promised, created_at=long_ago))
    again = await api.post("jobs", json=BODY, headers=KEY)
    assert (again.status_code, again.json()["job_id"]) == (201, first.json()["job_id"])
    assert await names(api) == ["news"]


async def test_keys_are_forgotten_after_a_day(sqlite: Opened) -> None:
    clock = SetClock()
    async with sqlite(clock=clock) as resources, served(resources) as api:
        await api.post("jobs", json=BODY, headers=KEY)
        clock.advance(timedelta(hours=25))
        again = await api.post("jobs", json=BODY, headers=KEY)
        assert (again.status_code, again.headers.get("idempotency-replayed")) == (201, None)
        assert await names(api) == ["news", "news-2"]
        clock.advance(timedelta(hours=25))
        assert await IdempotencyKeys(resources.database, clock).prune() == 1


@pytest.mark.parametrize("key", ["", "a b", "x" * 201])
async def test_a_key_that_is_none_is_refused(light: Api, key: str) -> None:
    assert (await light.post("jobs", json=BODY, headers={"Idempotency-Key": key})).status_code == 422
