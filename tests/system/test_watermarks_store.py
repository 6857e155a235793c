"""How far a stream is collected, and how a person moves that."""

from typing import Any

import pytest

from floodmark.errors import Fenced, InvalidInput, NotFound
from floodmark.model.batch import Batch, Item
from floodmark.model.clock import SystemClock
from floodmark.repositories.jobs import Jobs
from floodmark.repositories.watermarks import Watermarks
from system.stores import AnyDatabase, Crew, a_spec

pytestmark = pytest.mark.every_database


@pytest.fixture
def marks(database: AnyDatabase) -> Watermarks:
    return Watermarks(database, SystemClock())


@pytest.mark.spec("T3")
async def test_a_watermark_is_shown_as_its_source_left_it(jobs: Jobs, marks: Watermarks, crew: Crew) -> None:
    job = await jobs.add(a_spec(stream="news"))
    lease = await crew.start(jobs, job)
    await crew.keeping.keep(lease, Batch([Item("a", 1)], {"id": 7}))
    shown = await marks.show("news")
    assert (shown.value, shown.fence, shown.holder) == ({"id": 7}, 1, lease.execution_id)
    assert shown.lease_until is not None
    assert shown.high_water["key"] == "a"
    await crew.end(lease)
    shown = await marks.show("news")
    assert (shown.lease_until, shown.high_water) == (None, None)
    assert shown.last_checked_at is not None


async def test_streams_are_listed_in_pages(jobs: Jobs, marks: Watermarks) -> None:
    for name in "abc":
        await jobs.add(a_spec(stream=name))
        await marks.set(name, {"at": name})
    assert [mark.stream for mark in await marks.page(limit=2)] == ["a", "b"]
    assert [mark.stream for mark in await marks.page(after="b")] == ["c"]


@pytest.mark.spec("T3", "G3")
@pytest.mark.parametrize(("move", "value"), [("set", {"id": 3}), ("reset", None)])
async def test_moving_it_fences_off_a_running_collection(
    jobs: Jobs, marks: Watermarks, crew: Crew, move: str, value: Any
) -> None:
    job = await jobs.add(a_spec(stream="news"))
    lease = await crew.start(jobs, job)
    await crew.keeping.keep(lease, Batch([Item("a", 1)], {"id": 7}))

    moved = await (marks.set("news", value) if move == "set" else marks.reset("news"))

    assert (moved.value, moved.fence, moved.lease_until, moved.high_water) == (value, lease.fence + 1, None, None)
    assert (moved.moved_at is None) == (move == "reset")
    with pytest.raises(Fenced):
        await crew.keeping.keep(lease, Batch([Item("b", 1)], {"id": 8}))
    await crew.end(lease)
    again = await crew.start(jobs, job)
    assert (again.watermark, again.fence) == (value, moved.fence + 1)


async def test_a_watermark_can_be_set_before_the_first_run(jobs: Jobs, marks: Watermarks, crew: Crew) -> None:
    job = await jobs.add(a_spec("durov"))
    await marks.set("python:durov", {"id": 100})
    assert (await crew.start(jobs, job)).watermark == {"id": 100}


@pytest.mark.spec("G9")
async def test_a_mistyped_stream_is_refused(jobs: Jobs, marks: Watermarks) -> None:
    await jobs.add(a_spec(stream="news"))
    await marks.set("news", {"id": 1})
    for asked in (marks.show("nevs"), marks.set("nevs", {"id": 1}), marks.reset("nevs")):
        with pytest.raises(NotFound, match="no stream 'nevs'") as refused:
            await asked
        assert refused.value.hint == "did you mean news?"
    assert len(await marks.page()) == 1


@pytest.mark.spec("G9")
@pytest.mark.parametrize("value", ["7", 7, None, [1], {"a": "\0"}, {"a": object()}])
async def test_a_watermark_must_be_an_object_that_json_can_hold(jobs: Jobs, marks: Watermarks, value: Any) -> None:
    await jobs.add(a_spec(stream="news"))
    with pytest.raises(InvalidInput):
        await marks.set("news", value)
    assert await marks.page() == []
