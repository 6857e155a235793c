"""The guarantees of every source."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from floodmark.errors import InvalidInput
from floodmark.model.batch import Batch, Watermark
from floodmark.sources.port import Context, Source, Target


class SourceContract:
    """The guarantees of every source. Subclass it and provide `source`, `target` and `nonsense`.

    `target` has a few batches to collect, all available from the start; `nonsense` is the name of an invalid target.
    The data of the source must not change during a test.
    """

    async def test_everything_is_collected(self, source: Source, target: Target) -> None:
        """Batches are not empty, and each item has its own key."""
        batches = await collect_all(source, target)

        assert batches
        keys = keys_of(batches)
        assert keys
        assert len(set(keys)) == len(keys)
        assert all(key and isinstance(key, str) for key in keys)

    async def test_keys_are_the_same_every_time(self, source: Source, target: Target) -> None:
        """A key is the permanent identity of an item."""
        assert set(keys_of(await collect_all(source, target))) == set(keys_of(await collect_all(source, target)))

    async def test_items_and_watermarks_can_be_stored(self, source: Source, target: Target) -> None:
        """They are stored as JSON; a watermark is returned unchanged."""
        for batch in await collect_all(source, target):
            msgspec.json.encode([item.data for item in batch.items])
            if batch.watermark is not None:
                assert through_json(batch.watermark) == batch.watermark

    async def test_items_come_oldest_first(self, source: Source, target: Target) -> None:
        """Otherwise an interrupted run would leave a gap before its watermark."""
        times = [item.occurred_at for batch in await collect_all(source, target) for item in batch.items]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        assert all(time.tzinfo is not None for time in known)

    async def test_a_run_goes_on_from_any_watermark_without_a_hole(self, source: Source, target: Target) -> None:
        """The batches before any watermark and the batches after it together contain everything."""
        batches = await collect_all(source, target)
        everything = set(keys_of(batches))
        for number, batch in enumerate(batches, start=1):
            if batch.watermark is not None:
                rest = await collect_all(source, target, since=through_json(batch.watermark))
                assert set(keys_of(batches[:number])) | set(keys_of(rest)) == everything

    async def test_nothing_new_is_collected_twice(self, source: Source, target: Target) -> None:
        """After the last watermark there is nothing; a source without watermarks starts from the beginning."""
        batches = await collect_all(source, target)
        last = batches[-1].watermark
        if last is not None:
            assert keys_of(await collect_all(source, target, since=through_json(last))) == []

    async def test_it_can_be_left_half_way(self, source: Source, target: Target) -> None:
        """It releases its resources and can be used again."""
        before = asyncio.all_tasks()
        async with aclosing(cast(Any, source.collect(target, None, a_context()))) as batches:
            await anext(batches)
        assert asyncio.all_tasks() == before
        assert await collect_all(source, target)

    async def test_it_can_be_asked_by_several_at_once(self, source: Source, target: Target) -> None:
        """All slots of a worker share one object."""
        first, second = await asyncio.gather(collect_all(source, target), collect_all(source, target))
        assert keys_of(first) == keys_of(second)

    async def test_what_can_be_collected_passes_the_check(self, source: Source, target: Target) -> None:
        """The check runs when a job is added."""
        source.check(target.name, target.params)

    async def test_nonsense_is_refused_with_a_hint(self, source: Source, nonsense: str) -> None:
        """The target is refused before the job is stored, and the hint says what to do."""
        with pytest.raises(InvalidInput) as caught:
            source.check(nonsense, {})
        assert caught.value.hint


def a_context(**fields: Any) -> Context:
    """Return the context of an execution for a source."""
    usual = {
        "execution_id": "e",
        "job_name": "job",
        "attempt": 1,
        "scheduled_for": datetime(2026, 6, 1, 12, tzinfo=UTC),
        "trigger": "schedule",
        "stopping": asyncio.Event(),
    }
    return Context(**{**usual, **fields})


async def collect_all(source: Source, target: Target, since: Watermark | None = None) -> list[Batch]:
    """Return all batches."""
    return [batch async for batch in source.collect(target, since, a_context())]


def keys_of(batches: list[Batch]) -> list[str]:
    """Return the keys of all items."""
    return [item.key for batch in batches for item in batch.items]


def through_json(watermark: Watermark) -> Watermark:
    """Return the watermark as it is read back from the store."""
    return cast(Watermark, msgspec.json.decode(msgspec.json.encode(watermark)))
