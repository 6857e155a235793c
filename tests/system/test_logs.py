"""What happened to a job, in order; each thing is told once, however often one looks."""

from datetime import UTC, datetime, timedelta

import pytest

from floodmark.cli.logs import LogFollower
from floodmark.errors import NotFound
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Dead, Done, Retry, Snooze
from floodmark.operations.local import LocalOperations
from floodmark.operations.timeline import TimelineEntry, sort_entries
from floodmark.testing.factories import AT_ONCE, Opened, settle, take
from floodmark.wiring.resources import Resources
from system.stores import a_spec

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("V8")


def a_batch(*keys: str, value: int = 0) -> Batch:
    return Batch(tuple(Item(key, {"value": value}) for key in keys), {"at": value})


async def told(look: LogFollower) -> list[str]:
    return [f"{entry.level} {entry.event}: {entry.text}" for entry in await look.entries()]


async def relay(resources: Resources) -> None:
    async def publish(_events: object) -> None:
        """To nobody: their positions are what counts."""

    await resources.keeping.relay(publish, limit=1000)


async def test_a_job_is_followed_through_a_hard_life(sqlite: Opened) -> None:
    async with sqlite() as resources:
        operations = LocalOperations(resources, Actor(who="ada", via="cli"))
        await operations.add_job(a_spec(name="news", stream="s"))
        look = LogFollower(operations, "news", oldest="", limit=20)
        assert await told(look) == ["info added: by ada (cli)"]
        asked = await operations.run_job("news")
        assert [line.partition(",")[0] for line in await told(look)] == [
            "debug fired: by manual",
            "info run: by ada (cli)",
        ]

        [lease] = await take(resources, worker="w1")
        assert await told(look) == ["info started: attempt 1 on w1"]
        await resources.keeping.keep(lease, a_batch("a", "b"))
        await relay(resources)
        assert await told(look) == ["info kept: 2 new"]
        await settle(resources, lease, Snooze(after=AT_ONCE, reason="FloodWait on account 1"))
        [waits] = await told(look)
        assert waits.startswith("info waits: until ")
        assert waits.endswith(": FloodWait on account 1")

        await resources.queue.put(await resources.upkeep.wake(limit=10))
        [lease] = await take(resources, worker="w2")
        await resources.keeping.keep(lease, a_batch("a", "c", value=1))
        await relay(resources)
        await settle(resources, lease, Retry(after=AT_ONCE, error="OSError: reset\nsecond line"))
        lines = await told(look)
        assert "info kept: 1 new, 1 changed" in lines
        assert "warning failed: attempt 1 on w2: OSError: reset\nsecond line" in lines

        await resources.queue.put(await resources.upkeep.wake(limit=10))
        [lease] = await take(resources, worker="w3")
        await settle(resources, lease, Dead(error="OSError: reset again"))
        assert (await told(look))[-1] == "error dead: failed permanently: OSError: reset again"
        assert await told(look) == []

        # Whoever comes later reads the same, as far as it is stored.
        whole = await LogFollower(operations, "news", oldest="", limit=20).entries()
        dated = [entry.at for entry in whole if entry.event != "started"]
        assert dated == sorted(dated)
        ours = [entry.event for entry in whole if entry.execution_id == asked.execution_id]
        assert (set(ours), ours[-1]) == ({"fired", "kept", "failed", "started", "dead"}, "dead")
        await operations.remove_job("news")
        gone = await LogFollower(operations, "news", oldest="", limit=20).entries()
        assert [entry.event for entry in gone][-1] == "removed"
        with pytest.raises(NotFound):
            await LogFollower(operations, "nobody", oldest="", limit=20).entries()


async def test_what_others_keep_in_the_same_stream_is_not_told(sqlite: Opened) -> None:
    async with sqlite() as resources:
        operations = LocalOperations(resources, Actor(who="ada"))
        await operations.add_job(a_spec(name="first", stream="s"))
        await operations.add_job(a_spec(name="second", stream="s"))
        for name in ("first", "second"):
            await operations.run_job(name)
            [lease] = await take(resources)
            await resources.keeping.keep(lease, a_batch(name))
            await relay(resources)
            await settle(resources, lease, Done())
        for name in ("first", "second"):
            entries = await LogFollower(operations, name, oldest="", limit=20).entries()
            assert [entry.text for entry in entries if entry.event == "kept"] == ["1 new"]


def test_an_attempt_starts_before_it_keeps_anything() -> None:
    """Whatever the clock of its worker says."""
    noon, second = datetime(2026, 6, 1, 12, tzinfo=UTC), timedelta(seconds=1)
    happened = [("kept", 0.0), ("started", 0.2), ("done", 0.3), ("started", 2.0), ("kept", 2.1), ("fired", -0.1)]
    entries = [
        TimelineEntry(at=noon + after * second, level="info", event=event, text="", execution_id="e")
        for event, after in happened
    ]
    assert [entry.event for entry in sort_entries(entries)] == ["fired", "started", "kept", "done", "started", "kept"]
