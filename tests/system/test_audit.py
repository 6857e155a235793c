"""A change and its entry in the audit are one: whatever ends the process between them, there are both or neither."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Select, Table, insert, select

from command_line import CommandLine, environment
from floodmark.coordination.signals.port import Topic
from floodmark.model.audit import Actor
from floodmark.model.bulk import TagJob
from floodmark.model.execution import State
from floodmark.model.external_triggers import NewTrigger
from floodmark.model.handover import Which
from floodmark.observability.events import ExecutionsEnqueued
from floodmark.operations.executions import Letters
from floodmark.operations.local import LocalOperations
from floodmark.outbound.breakers import Breakers
from floodmark.process import failpoints
from floodmark.process.failpoints import FailpointError
from floodmark.repositories import audit
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.settings import Settings
from floodmark.store.database import PostgresDatabase
from floodmark.store.postgres import forcing as postgres_forcing
from floodmark.store.schema import load_metadata
from floodmark.store.sqlite import forcing as sqlite_forcing
from floodmark.store.tables import facts
from floodmark.testing.factories import Opened, given_executions, given_job, take
from floodmark.wiring.resources import open_resources
from system.stores import a_spec

pytest_plugins = ("backends",)

ADA = Actor(who="ada", via="api")
Tables = dict[str, list[dict[str, Any]]]


class Verb(NamedTuple):
    """What is asked of the operations, the entry it leaves, and the table it changes."""

    ask: Callable[[LocalOperations], Awaitable[object]]
    action: str
    table: str


VERBS = {
    "pause": Verb(lambda operations: operations.pause_job("news", "too loud"), "job.paused", "jobs"),
    "resume": Verb(lambda operations: operations.resume_job("quiet"), "job.resumed", "jobs"),
    "edit": Verb(lambda operations: operations.change_job("news", {"priority": 1}), "job.changed", "jobs"),
    "rm": Verb(lambda operations: operations.remove_job("news"), "job.removed", "jobs"),
    "bulk": Verb(lambda operations: operations.bulk_jobs([TagJob(name="news", add=["x"])]), "job.changed", "jobs"),
    "run": Verb(lambda operations: operations.run_job("news", {"depth": 2}), "job.run", "executions"),
    "run-many": Verb(lambda operations: operations.run_many(["news"], {"depth": 2}), "job.run", "executions"),
    "retry": Verb(lambda operations: operations.retry_letters(Letters(job="broken")), "letters.retried", "executions"),
    "watermark": Verb(lambda operations: operations.set_watermark("s", {"id": 7}), "watermark.set", "watermarks"),
    "limit": Verb(lambda operations: operations.set_limit("telegram", 60, "by hand"), "limit.set", "limits"),
    "breaker": Verb(lambda operations: operations.reset_breaker("web"), "breaker.reset", "breakers"),
    "drain": Verb(lambda operations: operations.drain(), "workers.drained", "facts"),
    "token-add": Verb(lambda operations: operations.add_token("cd", "read"), "token.added", "tokens"),
    "token-revoke": Verb(lambda operations: operations.revoke_token("ci"), "token.revoked", "tokens"),
    "trigger-add": Verb(
        lambda operations: operations.add_trigger(NewTrigger(kind="webhook", pattern="/b", jobs=["news"])),
        "trigger.added",
        "triggers",
    ),
    "trigger-rm": Verb(lambda operations: operations.remove_trigger("webhook", "/a"), "trigger.removed", "triggers"),
    "migrate-jobs": Verb(lambda operations: operations.migrate_jobs(Which(jobs=("old",))), "job.moved", "jobs"),
    "shadow": Verb(lambda operations: operations.start_shadow(), "shadow.started", "facts"),
}


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def operations(opened: Opened) -> AsyncIterator[LocalOperations]:
    async with opened() as resources:
        yield LocalOperations(resources, ADA)


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Fail-points are dead in a process that was not started for them."""
    for module in (audit, postgres_forcing, sqlite_forcing):
        monkeypatch.setattr(module, "failpoint", failpoints.hit)
    yield failpoints.arm
    failpoints.arm("")


async def furnish(operations: LocalOperations) -> None:
    """One of everything that the verbs are about."""
    resources = operations.resources
    await given_job(resources, name="news", stream="s")
    await given_job(resources, name="quiet", paused=True)
    await given_job(resources, name="old", scheduler_version=1)
    await given_executions(resources, [await given_job(resources, name="broken")], state=State.DEAD, put=False)
    opened = Breaker(state=BreakerState.OPEN, open_until=resources.clock.now(), trips=1, reason="refused")
    await Breakers(resources.database, resources.clock).change("web", lambda *_: opened)
    await operations.add_token("ci", "read")
    await operations.add_trigger(NewTrigger(kind="webhook", pattern="/a", jobs=["news"]))


async def everything(operations: LocalOperations) -> Tables:
    async with operations.resources.database.reading() as connection:
        return {
            table.name: [dict(row) for row in (await connection.execute(_in_order(table))).mappings()]
            for table in load_metadata().sorted_tables
        }


def _in_order(table: Table) -> Select[Any]:
    return select(table).order_by(*table.primary_key)


@pytest.mark.parametrize("name", VERBS)
async def test_a_change_and_its_audit_are_committed_together_or_not_at_all(
    operations: LocalOperations, arm: Callable[[str], None], name: str
) -> None:
    verb = VERBS[name]
    await furnish(operations)
    before = await everything(operations)
    put: list[object] = []
    operations.resources.events.listen(ExecutionsEnqueued, put.append)

    arm("operation.changed:raise")
    with pytest.raises(FailpointError):
        await verb.ask(operations)
    assert await everything(operations) == before
    assert not put

    await verb.ask(operations)
    after = await everything(operations)
    assert after[verb.table] != before[verb.table]
    assert [row["action"] for row in after["audit"][len(before["audit"]) :]] == [verb.action]
    assert len(put) == (name in ("run", "run-many", "retry"))


async def test_a_process_that_is_killed_between_the_two_leaves_neither(sqlite_copy: str, tmp_path: Path) -> None:
    async with open_resources(Settings(database_url=sqlite_copy)) as resources:
        operations = LocalOperations(resources, ADA)
        await given_job(resources, name="news")

        desk = CommandLine(tmp_path, DATABASE_URL=sqlite_copy)
        doomed = {**environment(), failpoints.VARIABLE: "operation.changed:kill"}
        with desk.start("pause", "news", env=doomed) as process:
            assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
        assert not (await operations.job("news")).paused
        assert (await operations.audit()).items == []

        await operations.pause_job("news")
        assert [row.action for row in (await operations.audit()).items] == ["job.paused"]


async def test_parts_of_a_transaction_see_each_other_and_others_see_none_of_it(operations: LocalOperations) -> None:
    database = operations.resources.database
    async with database.writing() as connection:
        async with database.writing() as part:
            assert part is connection
            await part.execute(insert(facts).values(name="a", value=1))
        async with database.reading() as part:
            assert (await part.execute(select(facts.c.name))).scalars().all() == ["a"]
        assert await asyncio.create_task(names(operations)) == []
        waiting = asyncio.create_task(write(operations, "b"))
    assert await names(operations) in (["a"], ["a", "b"])
    await waiting
    assert await names(operations) == ["a", "b"]


async def test_a_part_that_failed_takes_the_rest_with_it(operations: LocalOperations) -> None:
    async def half() -> None:
        async with operations.transaction():
            await write(operations, "b")
            raise FailpointError("in the middle")

    async def carelessly() -> None:
        async with operations.transaction():
            await write(operations, "a")
            with pytest.raises(FailpointError):
                await half()

    with pytest.raises(AssertionError, match="a part of this transaction has failed"):
        await carelessly()
    assert await names(operations) == []
    await write(operations, "c")
    assert await names(operations) == ["c"]


async def test_an_entry_without_its_change_is_refused(operations: LocalOperations) -> None:
    with pytest.raises(AssertionError, match="outside the transaction"):
        await operations.record("job.paused", "job:news")


async def test_nobody_is_told_of_a_change_before_it_is_committed(operations: LocalOperations) -> None:
    """On SQLite a hot step would wait for the transaction that waits for it, on PostgreSQL it would tell too early."""
    is_postgres = isinstance(operations.resources.database, PostgresDatabase)
    async with operations.transaction():
        with pytest.raises(AssertionError, match="do it after the commit"):
            await (operations.resources.signals.notify(Topic.JOBS) if is_postgres else take(operations.resources))


async def test_secrets_in_the_params_of_a_job_are_not_in_the_audit(operations: LocalOperations) -> None:
    params = {
        "password": "hunter2",
        "depth": 2,
        "headers": {"Authorization": "Bearer hunter2", "Accept": "text/html"},
        "logins": [{"user": "ada", "api_key": "hunter2"}],
        "feed": "https://ada:hunter2@example.org/?token=hunter2",
        "token": None,
    }
    await operations.add_job(a_spec(name="news", params={"depth": 1}, url="https://example.org/?token=hunter2"))
    await operations.change_job("news", {"params": params})
    await operations.run_job("news", params)
    await operations.add_token("ci", "read")

    rows = (await operations.audit()).items

    assert "hunter2" not in repr(rows)
    run = rows[1].after["params"]
    assert (run["password"], run["depth"], run["token"]) == ("***", 2, None)
    assert run["headers"] == {"Authorization": "***", "Accept": "text/html"}
    assert run["logins"] == [{"user": "ada", "api_key": "***"}]
    assert rows[2].after["params"] == run
    # What is told of our own is not hidden, whatever it is called.
    assert rows[0].after["token_id"] == (await operations.token("ci")).token_id
    # Only in the audit: the job has to work with them.
    assert (await operations.job("news")).params == params


async def write(operations: LocalOperations, name: str) -> None:
    async with operations.resources.database.writing() as connection:
        await connection.execute(insert(facts).values(name=name, value=1))


async def names(operations: LocalOperations) -> list[str]:
    async with operations.resources.database.reading() as connection:
        return list((await connection.execute(select(facts.c.name).order_by(facts.c.name))).scalars())
