"""Many jobs in one request: a result for each, all or none by choice, and few statements for many."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event, select, update

from api.serving import Api, serving
from api.test_access import a_token, bearer
from floodmark.api.tables import idempotency_keys
from floodmark.app import Floodmark
from floodmark.client import Client, Denied, JobFilter, SyncClient
from floodmark.model.audit import Actor
from floodmark.model.bulk import (
    Action,
    AddJob,
    BulkReport,
    ChangeJob,
    PauseJob,
    PutJob,
    RemoveJob,
    ResumeJob,
    TagJob,
)
from floodmark.model.execution import State
from floodmark.operations.local import LocalOperations
from floodmark.sources.validation import Validation
from floodmark.store.tables import audit, job_executions, jobs
from floodmark.testing.factories import Opened, given_executions, rows_of
from system.stores import a_spec

pytestmark = pytest.mark.spec("B9")

KEY = {"Idempotency-Key": "one-request"}


@pytest.fixture
async def local(opened: Opened) -> AsyncIterator[LocalOperations]:
    """The operations on an empty database, with the sources of Floodmark to check jobs."""
    async with opened(python_modules="feeds") as resources:
        sources = Floodmark(resources.settings).sources(imports=False)
        checked = replace(resources, validation=Validation(lambda: sources))
        yield LocalOperations(checked, Actor(who="ada"))


def add(target: str, **columns: Any) -> AddJob:
    return AddJob(job={"source": "telegram", "target": target, **columns})


def statuses(report: BulkReport) -> list[str]:
    return [line.status for line in report.results]


def details(report: BulkReport) -> list[str | None]:
    return [None if line.error is None else line.error.detail for line in report.results]


async def names(local: LocalOperations) -> list[str]:
    return [job.name async for job in local.each_job()]


@pytest.mark.thorough
async def test_each_operation_has_its_own_result(local: LocalOperations) -> None:
    for name in ("one", "two", "three", "four", "five"):
        await local.add_job(a_spec(f"feeds:{name}", name=name, tags=("old", "kept")))
    await local.pause_job("four", "by hand")
    await given_executions(local.resources, [(await local.job("five")).job_id], put=False)
    report = await local.bulk_jobs(
        [
            add("https://t.me/Harbour/12", tags=["news"], priority=1),
            add("not a channel"),
            ChangeJob(name="one", columns={"interval_seconds": 60}),
            ChangeJob(name="nobody", columns={"interval_seconds": 60}),
            TagJob(name="two", add=["new", "kept"], remove=["old"]),
            PauseJob(name="three", reason="storm"),
            ResumeJob(name="four"),
            RemoveJob(name="five"),
            ChangeJob(name="one", columns={"priority": 1}),
        ]
    )
    assert statuses(report) == [
        "added", "failed", "changed", "failed", "changed", "changed", "changed", "removed", "failed",
    ]  # fmt: skip
    assert (report.applied, report.dry_run, report.failed) == (True, False, 3)
    assert details(report)[1::2] == [
        "'not a channel' is not the name of a channel",
        "there is no job 'nobody'",
        None,
        None,
    ]
    assert details(report)[-1] == "operation 3 is about one already"
    assert (report.results[2].before, report.results[2].after) == ({"interval_seconds": 900}, {"interval_seconds": 60})

    harbour = await local.job("telegram-harbour")
    assert (harbour.job_id, harbour.target, harbour.tags) == (report.results[0].job_id, "@harbour", ("news",))
    assert (await local.job("two")).tags == ("kept", "new")
    three, four = await local.job("three"), await local.job("four")
    assert (three.paused, three.pause_reason, four.paused, four.version) == (True, "storm", False, 3)
    assert (await local.job("one")).version == 2
    assert [row["state"] for row in await rows_of(local.resources, job_executions)] == [State.CANCELLED]
    query = select(audit.c.who, audit.c.action, audit.c.object).order_by(audit.c.seq.desc()).limit(6)
    written = [tuple(row.values()) for row in await local.resources.database.fetch(query)]
    assert set(written) == {
        ("ada", "job.added", "job:telegram-harbour"),
        ("ada", "job.changed", "job:one"),
        ("ada", "job.changed", "job:two"),
        ("ada", "job.paused", "job:three"),
        ("ada", "job.resumed", "job:four"),
        ("ada", "job.removed", "job:five"),
    }


async def test_an_atomic_request_changes_all_or_nothing(local: LocalOperations) -> None:
    await local.add_job(a_spec("feeds:news", name="news"))
    operations = [add("@harbour"), PauseJob(name="news"), RemoveJob(name="nobody")]
    before = await rows_of(local.resources, jobs), await rows_of(local.resources, audit)
    refused = await local.bulk_jobs(operations, atomic=True)
    assert (refused.applied, statuses(refused)) == (False, ["skipped", "skipped", "failed"])
    assert before == (await rows_of(local.resources, jobs), await rows_of(local.resources, audit))
    assert (await local.bulk_jobs(operations[:2], atomic=True)).applied
    assert await names(local) == ["news", "telegram-harbour"]


async def test_a_dry_run_says_what_would_happen_and_changes_nothing(local: LocalOperations) -> None:
    await local.add_job(a_spec("feeds:news", name="news"))
    operations = [add("@harbour"), add("@harbour"), add("@pier", budget="none"), RemoveJob(name="news")]
    before = await rows_of(local.resources, jobs)
    tried = await local.bulk_jobs(operations, dry_run=True)
    assert (tried.applied, tried.dry_run, await rows_of(local.resources, jobs)) == (False, True, before)
    done = await local.bulk_jobs(operations)
    assert statuses(tried) == statuses(done) == ["added", "existing", "failed", "removed"]
    assert [line.name for line in tried.results] == [line.name for line in done.results]


async def test_a_job_that_is_there_is_left_alone_unless_it_differs(local: LocalOperations) -> None:
    first = await local.bulk_jobs([add("@harbour", interval_seconds=60, tags=["a", "b"])])
    assert statuses(first) == ["added"]
    again = await local.bulk_jobs(
        [
            add("harbour"),
            add("t.me/harbour", interval_seconds=60.0, tags=["b", "a"]),
            add("@harbour", interval_seconds=90),
            add("@harbour", name="telegram-harbour"),
            add("@pier", name="telegram-harbour"),
            add("@harbour", name="often", interval_seconds=5),
            add("@pier"),
            add("@pier", cron_expression="0 6 * * *"),
        ]
    )
    assert statuses(again) == ["existing", "existing", "failed", "existing", "failed", "added", "added", "failed"]
    assert {line.job_id for line in again.results[:2]} == {first.results[0].job_id}
    assert "telegram-harbour collects @harbour already, with other values: interval_seconds" in str(details(again)[2])
    assert details(again)[4] == "there is already a job 'telegram-harbour', for @harbour"
    assert "operation 7 has other values: cron_expression, interval_seconds" in str(details(again)[7])


async def test_an_existing_instance_is_replaced_if_the_installation_says_so(sqlite: Opened) -> None:
    async with sqlite(job_replace_existing_instance=True) as resources:
        local = LocalOperations(resources, Actor(who="ada"))
        await local.add_job(a_spec("feeds:news", name="news"))
        await local.pause_job("news")
        operation = AddJob(job={"name": "news", "source": "python", "target": "feeds:other", "interval_seconds": 5})
        assert statuses(await local.bulk_jobs([operation])) == ["changed"]
        job = await local.job("news")
        assert (job.target, job.when.interval_seconds, job.paused) == ("feeds:other", 5, False)


async def test_names_that_are_taken_get_numbers(local: LocalOperations) -> None:
    await local.add_job(a_spec("feeds:x", name="telegram-harbour"))
    many = [add("@harbour", tenant_id=f"t{n}") for n in range(12)]
    report = await local.bulk_jobs([*many, ChangeJob(name="telegram-harbour", columns={"name": "telegram-harbour-5"})])
    assert statuses(report) == ["added"] * 12 + ["changed"]
    assert [line.name for line in report.results[:5]] == [f"telegram-harbour-{n}" for n in (2, 3, 4, 6, 7)]
    assert len(set(await names(local))) == 13
    taken = await local.bulk_jobs([ChangeJob(name="telegram-harbour-2", columns={"name": "telegram-harbour-3"})])
    assert details(taken) == ["there is already a job 'telegram-harbour-3'"]


async def test_jobs_may_depend_on_each_other_in_any_order(local: LocalOperations) -> None:
    await local.add_job(a_spec("feeds:base", name="base"))
    report = await local.bulk_jobs(
        [
            add("@last", name="last", depends_on=["middle", "base"]),
            add("@middle", name="middle", depends_on=["first"]),
            add("@first", name="first"),
            add("@ring_a", name="ring-a", depends_on=["ring-b"]),
            add("@ring_b", name="ring-b", depends_on=["ring-a"]),
            add("@after", name="after", depends_on=["ring-a"]),
            add("@lost", name="lost", depends_on=["nobody"]),
            add("@later", name="later", depends_on=["lost"]),
        ]
    )
    assert statuses(report) == ["added"] * 3 + ["failed"] * 5
    assert (await local.job("last")).depends_on == ("base", "middle")
    assert "would wait for each other" in str(details(report)[3])
    assert details(report)[5:] == [f"there is no job '{name}' to depend on" for name in ("ring-a", "nobody", "lost")]
    closing = await local.bulk_jobs(
        [ChangeJob(name="first", columns={"depends_on": ["last"]}), ChangeJob(name="last", columns={"depends_on": []})]
    )
    assert statuses(closing) == ["changed", "changed"], details(closing)
    assert (await local.job("first")).depends_on == ("last",)
    assert "would wait" in str(
        details(await local.bulk_jobs([ChangeJob(name="last", columns={"depends_on": ["first"]})]))
    )


async def test_what_is_put_is_there_afterwards_and_declared_jobs_are_left_alone(local: LocalOperations) -> None:
    await local.store.jobs.declare(a_spec("feeds:code", name="code"))
    wanted = {"name": "harbour", "source": "telegram", "target": "@harbour", "interval_seconds": 60, "tags": ["a"]}
    operations: list[Action] = [
        PutJob(job=wanted),
        PutJob(job={"name": "code", "source": "python", "target": "feeds:code"}),
        PutJob(job={"source": "python", "target": "feeds:code"}),
        PutJob(job={"name": "quiet", "source": "telegram", "target": "@quiet", "schedule_type": "event"}),
    ]
    report = await local.bulk_jobs(operations)
    assert statuses(report) == ["added", "skipped", "failed", "added"], details(report)
    assert report.results[1].note == "code declares this job"
    assert (await local.job("quiet")).when.schedule_type == "event"
    assert statuses(await local.bulk_jobs(operations)) == ["unchanged", "skipped", "failed", "unchanged"]
    await local.change_job("harbour", {"priority": 1, "retry_max": 9, "tags": ["b"]})
    back = (await local.bulk_jobs([PutJob(job=wanted)])).results[0]
    assert back.before == {"priority": 1, "retry_max": 9, "tags": ["b"]}
    assert back.after == {"priority": 2, "retry_max": 3, "tags": ["a"]}


async def test_a_mask_keeps_the_stored_secret_and_is_never_stored(local: LocalOperations) -> None:
    job = {"name": "site", "source": "python", "target": "feeds:site", "params": {"api_token": "12345", "depth": 2}}
    assert statuses(await local.bulk_jobs([PutJob(job=job)])) == ["added"]
    masked = {**job, "params": {"api_token": "***", "depth": 2}}
    kept = await local.bulk_jobs([PutJob(job=masked), PutJob(job={**masked, "name": "other"})])
    assert statuses(kept) == ["unchanged", "failed"]
    assert "the mask of a secret" in str(details(kept)[1])
    assert (await local.job("site")).params == job["params"]


async def test_a_change_is_refused_if_the_job_is_at_another_version(local: LocalOperations) -> None:
    await local.add_job(a_spec("feeds:news", name="news"))
    stale: Sequence[Action] = [
        ChangeJob(name="news", columns={"priority": 1}, version=2),
        RemoveJob(name="news", version=7),
    ]
    for operation in stale:
        report = await local.bulk_jobs([operation])
        assert "it is at version 1" in str(details(report)[0])
    assert statuses(await local.bulk_jobs([RemoveJob(name="news", version=1)])) == ["removed"]


async def test_two_requests_at_once_make_each_job_once(local: LocalOperations) -> None:
    await local.add_job(a_spec("feeds:news", name="news"))
    same = [*(add(f"@channel_{n}") for n in range(40)), TagJob(name="news", add=["x"])]
    reports = await asyncio.gather(*(local.bulk_jobs(same) for _ in range(3)))
    assert [report.failed for report in reports] == [0, 0, 0]
    assert sum(report.count("added") for report in reports) == 40
    assert sum(report.count("changed") for report in reports) == 1
    assert len(await names(local)) == 41
    assert (await local.job("news")).version == 2


async def test_the_number_of_statements_does_not_follow_the_number_of_jobs(local: LocalOperations) -> None:
    counted: list[str] = []

    def count(_: Any, __: Any, statement: str, *___: Any) -> None:
        counted.append(statement)

    event.listen(local.resources.database.engine.sync_engine, "before_cursor_execute", count)
    found = []
    for size in (2, 200):
        for operations in (
            [add(f"@size_{size}_{n}") for n in range(size)],
            [add(f"@size_{size}_{n}") for n in range(size)],
            [TagJob(name=f"telegram-size-{size}-{n}", add=["x"]) for n in range(size)],
            [RemoveJob(name=f"telegram-size-{size}-{n}") for n in range(size)],
        ):
            counted.clear()
            assert (await local.bulk_jobs(operations)).failed == 0
            found.append(len(counted))
    assert found[:4] == found[4:]
    assert max(found) <= 20


async def test_an_operator_may_pause_many_jobs_but_not_add_any(light: Api) -> None:
    admin, operator = await a_token(light.resources), await a_token(light.resources, "operate", name="op")
    await light.post("jobs", json={"source": "python", "target": "feeds:news"}, headers=bearer(admin))
    pause: dict[str, Any] = {"op": "pause", "name": "news"}
    done = await light.post("jobs/bulk", json={"operations": [pause]}, headers=bearer(operator))
    assert (done.status_code, done.json()["results"][0]["status"]) == (200, "changed")
    both = {"operations": [{"op": "resume", "name": "news"}, {"op": "tag", "name": "news", "add": ["x"]}]}
    refused = await light.post("jobs/bulk", json=both, headers=bearer(operator))
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "the operation tag needs the role admin, and op has the role operate",
    )
    async with Client(light.base, operator) as client:
        with pytest.raises(Denied, match="needs the role admin"):
            await client.bulk_jobs([add("@harbour")])
        assert (await client.job("news")).paused


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "fly", "name": "news"},
        {"op": "pause"},
        {"op": "pause", "name": "news", "because": "storm"},
        {"op": "add", "job": []},
        {"op": "change", "name": "news", "columns": {}, "version": 0},
    ],
)
async def test_a_malformed_operation_refuses_the_request(light: Api, operation: dict[str, Any]) -> None:
    good = {"op": "add", "job": {"source": "python", "target": "feeds:news"}}
    refused = await light.post("jobs/bulk", json={"operations": [good, operation]})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"].startswith("body.operations.1")
    assert (await light.get("jobs")).json()["items"] == []


async def test_values_of_wrong_types_fail_their_own_line(light: Api) -> None:
    def job(**columns: Any) -> dict[str, Any]:
        return {"op": "add", "job": {"source": "python", "target": "feeds:news", **columns}}

    bad = [
        job(priority="x"), job(retry_max=-1), job(tags="a"), job(depends_on="a"), job(every="5m"), job(paused=True),
        job(timeout_seconds="x"), job(schedule_type="x"), job(params=[]), job(source=None), job(source="nothing"),
        {"op": "add", "job": {}},
    ]  # fmt: skip
    answer = await light.post("jobs/bulk", json={"operations": [*bad, job()]})
    found = answer.json()
    assert [line["status"] for line in found["results"]] == ["failed"] * len(bad) + ["added"], found
    errors = [line["error"] for line in found["results"][:-1]]
    assert {(error["status"], error["type"]) for error in errors} == {(400, "urn:floodmark:invalid-input")}
    assert all(error["detail"] and error["hint"] for error in errors)


async def test_a_request_has_ten_thousand_operations_at_most(light: Api) -> None:
    many = [{"op": "resume", "name": "x"}] * 10_001
    refused = await light.post("jobs/bulk", json={"operations": many})
    assert refused.status_code == 422
    assert (await light.post("jobs/bulk", json={"operations": []})).status_code == 422


async def test_a_request_that_is_sent_twice_is_carried_out_once(api: Api) -> None:
    body = {"operations": [{"op": "add", "job": {"source": "python", "target": "feeds:news"}}]}
    first = await api.post("jobs/bulk", json=body, headers=KEY)
    again = await api.post("jobs/bulk", json=body, headers=KEY)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"


async def test_the_next_request_gets_the_results_of_one_whose_process_died(api: Api) -> None:
    await api.job("old")
    body = {
        "operations": [
            {"op": "add", "job": {"source": "python", "target": "feeds:news"}},
            {"op": "put", "job": {"name": "tides", "source": "python", "target": "feeds:tides"}},
            {"op": "remove", "name": "old"},
        ]
    }
    first = (await api.post("jobs/bulk", json=body, headers=KEY)).json()
    assert [line["status"] for line in first["results"]] == ["added", "added", "removed"]
    [row] = await rows_of(api.resources, idempotency_keys)
    async with api.resources.database.writing() as connection:
        # As the process leaves it that dies before it could write the answer down.
        promised = {"promised": row["answer"]["promised"]}
        long_ago = api.resources.clock.now() - timedelta(minutes=2)
        await connection.execute(update(idempotency_keys).values(answer=promised, created_at=long_ago))
    again = (await api.post("jobs/bulk", json=body, headers=KEY)).json()
    assert [line["status"] for line in again["results"]] == ["added", "added", "removed"]
    assert [line["job_id"] for line in again["results"][:2]] == [line["job_id"] for line in first["results"][:2]]
    assert [job["name"] for job in (await api.get("jobs")).json()["items"]] == ["news", "tides"]


async def test_both_clients_send_bulk(sqlite: Opened) -> None:
    async with serving(sqlite) as api:
        operations: list[Action] = [
            AddJob(job={"source": "python", "target": "feeds:news", "timeout_seconds": timedelta(minutes=5)}),
            PauseJob(name="news", reason="storm"),
        ]
        async with Client(api.base) as client:
            report = await client.bulk_jobs(operations)
            assert statuses(report) == ["added", "failed"]
            assert report.results[1].error is not None
            assert report.results[1].error.hint == "see what there is with: floodmark ls"
            assert (await client.job("news")).timeout == timedelta(minutes=5)

        def blocking() -> BulkReport:
            with SyncClient(api.base) as client:
                return client.bulk_jobs(operations[1:], atomic=True, dry_run=True)

        assert statuses(await asyncio.to_thread(blocking)) == ["changed"]


async def test_jobs_are_found_by_pattern_and_by_their_origin(local: LocalOperations) -> None:
    await local.store.jobs.declare(a_spec("feeds:code", name="code"))
    await local.bulk_jobs([add("@harbour"), add("@pier"), add("@under_score", name="100%[x]")])

    async def found(**which: Any) -> list[str]:
        return [job.name async for job in local.each_job(JobFilter(**which))]

    assert await found(match="telegram:*") == ["100%[x]", "telegram-harbour", "telegram-pier"]
    assert await found(match="telegram-?ier") == ["telegram-pier"]
    assert await found(match="*%[x]") == ["100%[x]"]
    assert await found(match="TELEGRAM*") == []
    assert await found(match="telegram:@under?score") == ["100%[x]"]
    assert await found(match="telegram:@harbour_") == []
    assert await found(declared=True) == ["code"]
    assert await found(declared=False, match="*r") == ["telegram-harbour", "telegram-pier"]
