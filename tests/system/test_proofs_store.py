"""Hash chains in the store: each event is chained once, whoever does it and wherever it is killed."""

import io
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from floodmark.cli.proofs import verify_files, verify_stored, write_proof
from floodmark.exports.export import run_export
from floodmark.exports.request import ExportRequest
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.operations.local import LocalOperations
from floodmark.process import failpoints
from floodmark.process.failpoints import PROOF_POINTS, FailpointError
from floodmark.store.port import Event
from floodmark.store.tables import items, outbox, proof_links
from floodmark.testing.factories import Opened, given_lease, rows_of
from floodmark.wiring.resources import Resources
from system.test_exports import Silent

pytest_plugins = ("backends",)
ACTOR = Actor(who="tester", via="test")
pytestmark = [pytest.mark.spec("B13"), pytest.mark.every_database]


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Fail-points are dead in a process that was not started for them."""
    monkeypatch.setattr("floodmark.repositories.proofs.failpoint", failpoints.hit)
    yield failpoints.arm
    failpoints.arm("")


async def relay(resources: Resources) -> None:
    """Give every event its position."""

    async def nowhere(_: Sequence[Event]) -> None: ...

    while await resources.keeping.relay(nowhere, limit=1000):
        pass


async def follow(resources: Resources) -> None:
    """Chain every event."""
    while await resources.repositories.proofs.follow():
        pass


async def findings(resources: Resources, stream: str) -> Any:
    """Verify a stream as the command does."""
    operations = LocalOperations(resources, ACTOR)
    [verdict] = await verify_stored(operations, stream, None, None)
    return verdict


async def test_a_crash_between_keep_and_chain_misses_and_doubles_nothing(
    resources: Resources, arm: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error at each step the chain goes on where it was, and has every revision once."""
    monkeypatch.setattr("floodmark.repositories.proofs._AT_ONCE", 4)
    lease = await given_lease(resources)
    stream = lease.job.stream
    await resources.keeping.keep(lease, Batch([Item(str(n), {"text": f"é {n}", "n": 1.5}) for n in range(10)]))
    await resources.keeping.keep(lease, Batch([Item("3", {"text": "changed"}), Item("x", None)]))
    await relay(resources)
    for point in PROOF_POINTS:
        arm(f"{point}:raise")
        with pytest.raises(FailpointError):
            await follow(resources)
    arm("")
    await follow(resources)

    verdict = await findings(resources, stream)
    assert verdict.findings == []
    assert (verdict.entries, verdict.items, verdict.remarks) == (12, 12, [])
    assert [row["number"] for row in await rows_of(resources, proof_links)] == [1, 2, 3]
    assert await resources.repositories.proofs.missed() == []
    [head] = await resources.repositories.proofs.heads()
    assert (head.stream, head.links, head.digest) == (stream, 3, verdict.head)


async def test_exported_files_are_verified_as_the_store_is(resources: Resources, tmp_path: Path) -> None:
    """The files of both databases have what the chain has: times, numbers, letters and tombstones."""
    lease = await given_lease(resources)
    stream, moment = lease.job.stream, datetime(2026, 5, 1, 12, 30, 0, 120_000, tzinfo=UTC)
    odd: dict[str, Any] = {
        "text": 'é \u2028 "x" 😀',
        "numbers": [1.0, 1e22, 0.1, 10**15, -0.5],
        "none": None,
        "deep": {"b": [], "a": {}},
    }
    await resources.keeping.keep(lease, Batch([Item("a", odd, moment), Item("b", "plain"), Item("c", {"n": 1})]))
    await resources.keeping.keep(lease, Batch([Item("a", {"n": 2}, moment), Item("c", {"n": 1}, None, "gone", True)]))
    await relay(resources)
    await follow(resources)
    operations, proof, exported = LocalOperations(resources, ACTOR), tmp_path / "proof.jsonl", tmp_path / "items.jsonl"
    with proof.open("wb") as file:
        head = await write_proof(operations, stream, file)
    request = ExportRequest(
        format="jsonl", out=exported, streams=(stream,), revisions=True, deleted=True, with_data=True
    )
    await run_export(operations, request, Silent(), io.BytesIO())

    assert head is not None
    verdict = verify_files(proof, exported, head.digest)
    assert (verdict.findings, verdict.remarks) == ([], [])
    assert (verdict.entries, verdict.items) == (5, 5)
    exported.write_text(exported.read_text(encoding="utf-8").replace("plain", "plein"), encoding="utf-8")
    assert verify_files(proof, exported, None).findings == ["item b, revision 1, was changed: data"]


async def test_changes_with_sql_are_found_and_deleted_events_are_recorded(resources: Resources) -> None:
    """Whoever changes a stored item, or a link, is found."""
    lease = await given_lease(resources)
    stream = lease.job.stream
    await resources.keeping.keep(lease, Batch([Item("a", {"text": "one"}), Item("b", {"text": "two"})]))
    await relay(resources)
    await follow(resources)
    async with resources.database.writing() as connection:
        await connection.execute(update(items).where(items.c.key == "a").values(data={"text": "other"}))
    assert (await findings(resources, stream)).findings == ["item a, revision 1, was changed: data"]
    async with resources.database.writing() as connection:
        await connection.execute(update(proof_links).values(previous="1" * 64))
        await connection.execute(delete(items).where(items.c.key == "b"))
    found = (await findings(resources, stream)).findings
    assert "item b, revision 1, is missing" in found
    assert any("does not have its digest" in text for text in found)

    await resources.keeping.keep(lease, Batch([Item("c", 1), Item("d", 1)]))
    await relay(resources)
    async with resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.key == "c"))
    await follow(resources)
    assert await resources.repositories.proofs.missed() == [(3, 3)]
