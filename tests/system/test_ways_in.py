"""Every way in which a job or its params come has the same check, and a worker checks once more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr
from sqlalchemy import update

from api.serving import Api, served
from floodmark import Floodmark
from floodmark.errors import InvalidInput
from floodmark.inbound.intake import Arrival, build_intake
from floodmark.model.audit import Actor
from floodmark.model.execution import State
from floodmark.model.external_triggers import NewTrigger
from floodmark.model.handover import NewJob
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings
from floodmark.store.tables import job_executions, jobs
from floodmark.sync.difference import difference
from floodmark.sync.format import rows_of
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import rows_of as stored

EVENT = When(schedule_type=ScheduleType.EVENT)
PASSWD = ["file:///etc/passwd"]
# What is wrong, and the words that say so.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"source": "nonsense", "target": "x"}, "there is no source 'nonsense'"),
    ({"source": "python", "target": "os:system"}, "operator"),
    ({"source": "python", "target": "nobody"}, "names no function"),
    ({"source": "web", "target": "file:///etc/passwd"}, "file"),
    ({"source": "web", "target": "http://10.0.0.1/"}, "is not a public address"),
    ({"source": "feed", "target": "http://localhost/feed"}, "is not a public host"),
    ({"source": "web", "target": "https://site.example/", "params": {"max_pages": "many"}}, "max_pages"),
    ({"source": "web", "target": "https://site.example/", "params": {"max_page": 5}}, "no param 'max_page'"),
    ({"source": "feed", "target": "https://site.example/feed", "params": {"depth": 5}}, "no param 'depth'"),
    ({"source": "cookies", "target": "site.example", "params": {"customPages": PASSWD}}, "customPages"),
    ({"source": "telegram", "target": "not a channel"}, "is not the name of a channel"),
    ({"source": "python", "target": "news", "params": {"cuont": 3}}, "no param 'cuont'"),
]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Floodmark, Api]]:
    app = Floodmark(Settings(database_url=url, floodmark_secret_key=SecretStr("a secret for tests only")))

    @app.collector(key="id")
    async def news(since: Any, count: int = 1) -> AsyncIterator[dict[str, int]]:
        for number in range(count):
            yield {"id": number}

    async with app.open() as resources, served(resources, sources=app.sources(imports=False)) as api:
        for body in (
            {"name": "site", "source": "web", "target": "https://site.example/"},
            {"name": "scan", "source": "cookies", "target": "site.example", "trigger_channel": "content:new"},
        ):
            made = await api.post("jobs", json=body)
            assert made.status_code == 201, made.text
        yield app, api


@pytest.mark.spec("G9")
async def test_a_bad_job_is_refused_by_every_way_in(sqlite_url: str) -> None:
    async with opened(sqlite_url) as (_, api):
        operations, before = LocalOperations(api.resources, Actor(who="ada")), await stored(api.resources, jobs)
        for bad, words in BAD:
            answers = [
                await api.post("jobs", json=bad),
                await api.put("jobs/site", json=bad),
                await api.patch("jobs/site", json={"params": {}, **bad}),
                await api.post("import-jobs", json={"jobs": [{"job": {"name": "new", **bad}}]}),
            ]
            assert [answer.status_code for answer in answers] == [400] * 4, (bad, [a.text for a in answers])
            assert all(words in answer.json()["detail"] for answer in answers), (words, [a.text for a in answers])
            assert not any("*args" in answer.json()["hint"] for answer in answers)
            changed = {"op": "change", "name": "site", "columns": {"params": {}, **bad}}
            lines = [{"op": "add", "job": bad}, {"op": "put", "job": {"name": "new", **bad}}, changed]
            report = (await api.post("jobs/bulk", json={"operations": lines})).json()
            assert [line["error"]["status"] for line in report["results"]] == [400] * 3, report
            assert all(words in line["error"]["detail"] for line in report["results"]), (words, report)
            spec = JobSpec(when=EVENT, name="new", **bad)
            with pytest.raises(InvalidInput):
                await operations.add_job(spec)
            with pytest.raises(InvalidInput):
                await operations.import_jobs([NewJob(spec=spec)])
        assert await stored(api.resources, jobs) == before


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_bad_params_of_a_run_are_refused_by_every_way_in(sqlite_url: str) -> None:
    async with opened(sqlite_url) as (_, api):
        runs: dict[str, list[dict[str, Any]]] = {
            "site": [{"max_pages": 0}, {"max_page": 1}, {"delay": "***"}],
            "scan": [{"customPages": PASSWD}],
            "news": [{"target": "os:system"}],
        }
        for name, all_params in runs.items():
            for params in all_params:
                refused = await api.post(f"jobs/{name}/force-run", json={"params": params})
                assert refused.status_code == 400, (name, params, refused.text)
        local = LocalOperations(api.resources, Actor(who="ada"))
        new = NewTrigger(kind="webhook", pattern="/scan", jobs=("scan",), params={"customPages": "body.pages"})
        await local.add_trigger(new)
        assert (await api.post("triggers/webhook/scan", json={"pages": PASSWD})).status_code == 400

        async def counted() -> bool:
            [row] = (await local.webhooks()).items
            return row.refusals == {"bad params": 1}

        await eventually(counted)
        intake = build_intake(api.resources)
        message = Arrival(kind="channel", subject="content:new", body={"customPages": PASSWD})
        with pytest.raises(InvalidInput, match="scan cannot run with these params"):
            await intake.take(message, await intake.matching(message))
        assert await stored(api.resources, job_executions) == []
        # What a message says besides is not for the source, and refuses nothing.
        good = Arrival(kind="channel", subject="content:new", body={"customPages": ["/about"], "id": 7, "title": "***"})
        await intake.take(good, await intake.matching(good))
        assert [row["params"] for row in await stored(api.resources, job_executions)] == [good.body]


@pytest.mark.spec("G9")
def test_a_bad_schedule_of_a_sync_is_an_error_of_its_own_and_the_others_are_taken() -> None:
    schedule = {"frequency": "daily", "time": {"hour": 2, "minute": 0}}
    good = {"domain_config_id": "c1", "data": {"domain": "one.example", "schedule": schedule}}
    data = {"domain": "two.example", "schedule": schedule, "customPages": PASSWD}
    bad = {"domain_config_id": "c2", "data": data}
    rows = rows_of(msgspec.json.encode({"data": [good, bad]}))
    found = difference(rows, [], validate=Floodmark(Settings()).validation.complete)
    assert [step.change.domain_config_id for step in found.steps] == ["c1"]
    assert [(error.domain_config_id, "customPages" in error.error) for error in found.errors] == [("c2", True)]


@pytest.mark.spec("G9")
async def test_what_sql_has_put_into_a_row_is_refused_by_the_worker(sqlite_url: str, tmp_path: Path) -> None:
    """`os:system` is never called, whoever wrote the row, and whatever params the run is given."""
    proof = tmp_path / "called"
    async with opened(sqlite_url) as (app, api):
        operations = LocalOperations(api.resources, Actor(who="ada"))
        async with api.resources.database.writing() as connection:
            await connection.execute(
                update(jobs)
                .where(jobs.c.name == "news")
                .values(target="os:system", params={"command": f"touch {proof}"})
            )
            await connection.execute(update(jobs).where(jobs.c.name == "scan").values(params={"customPages": PASSWD}))
        for name in ("news", "scan"):
            await operations.run_job(name)
        with pytest.raises(InvalidInput):
            await operations.run_job("news", {"command": f"touch {proof}"})

        async def dead() -> dict[str, str]:
            rows = {row["job_name"]: row for row in await stored(api.resources, job_executions)}
            assert {row["state"] for row in rows.values()} == {State.DEAD}, rows
            return {name: row["error_message"] for name, row in rows.items()}

        stop = asyncio.Event()
        working = asyncio.create_task(app.serve(port=0, stop=stop))
        try:
            errors = await eventually(dead)
        finally:
            stop.set()
            await working
        assert "operator" in errors["news"]
        assert "customPages" in errors["scan"]
        assert not proof.exists()
