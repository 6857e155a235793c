"""Calls that are made at the same time are carried out together."""

import asyncio
from collections.abc import Sequence

import pytest

from floodmark.errors import Conflict
from floodmark.process.grouping import GroupedCalls

pytestmark = pytest.mark.spec("B17")


class Doubling:
    """Doubles numbers, refuses 13, fails at 0, and holds a group while `held` is set."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(numbers))
        await self.go_on.wait()
        if 0 in numbers:
            raise ConnectionError("lost")
        return [Conflict("unlucky") if number == 13 else 2 * number for number in numbers]


async def test_a_call_that_comes_alone_is_carried_out_at_once() -> None:
    work = Doubling()
    calls = GroupedCalls(work, most=10)
    assert [await calls.call(1), await calls.call(2)] == [2, 4]
    assert work.groups == [[1], [2]]


async def test_calls_that_come_during_a_step_form_the_next_groups() -> None:
    work = Doubling()
    work.go_on.clear()
    calls = GroupedCalls(work, most=3)
    first = asyncio.create_task(calls.call(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(calls.call(number)) for number in range(2, 7)]
    await asyncio.sleep(0)
    work.go_on.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8, 10, 12]
    assert work.groups == [[1], [2, 3, 4], [5, 6]]


async def test_a_refused_call_does_not_affect_the_others_of_its_group() -> None:
    calls = GroupedCalls(Doubling(), most=10)
    one, other, third = await asyncio.gather(*map(calls.call, (1, 13, 3)), return_exceptions=True)
    assert (one, third) == (2, 6)
    assert isinstance(other, Conflict)
    assert [type(answer) for answer in await calls.call_all([1, 13])] == [int, Conflict]


async def test_a_step_that_fails_fails_every_call_of_its_group_and_no_later_one() -> None:
    calls = GroupedCalls(Doubling(), most=2)
    answers = await asyncio.gather(*map(calls.call, (1, 0, 3, 4)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ConnectionError, ConnectionError, int, int]
    assert await calls.call(5) == 10


async def test_a_cancelled_call_has_no_effect_before_its_group_begins_and_never_on_others() -> None:
    work = Doubling()
    work.go_on.clear()
    calls = GroupedCalls(work, most=10)
    tasks = [asyncio.create_task(calls.call(1))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(calls.call(number)) for number in (2, 3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.sleep(0)
    work.go_on.set()
    assert await tasks[2] == 6
    assert work.groups == [[1], [3]]


async def test_closing_waits_for_the_calls_that_are_carried_out() -> None:
    work = Doubling()
    calls = GroupedCalls(work, most=1)
    await calls.close()
    tasks = [asyncio.create_task(calls.call(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    await calls.close()
    assert [task.done() or await task for task in tasks]
    assert work.groups == [[1], [2]]
