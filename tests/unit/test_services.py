"""Services: a step that is taken again and again, and an end in the declared order."""

import asyncio
from datetime import timedelta

import pytest

from floodmark.coordination.service import Service, run_services
from floodmark.coordination.signals.port import Bell
from floodmark.observability.events import Events, StepFailed
from floodmark.testing.eventually import eventually

HOUR, AT_ONCE = timedelta(hours=1), timedelta()


class Counting:
    """A step that counts, and asks for the next one after `again`."""

    def __init__(self, again: timedelta | None = None) -> None:
        self.count, self._again = 0, again

    async def step(self) -> timedelta | None:
        self.count += 1
        return self._again


@pytest.mark.spec("G7")
async def test_a_step_is_taken_again_when_it_asks_for_it_or_the_bell_rings() -> None:
    asking, waiting, bell = Counting(timedelta(milliseconds=1)), Counting(), Bell()
    services = [Service("asking", asking.step, HOUR), Service("waiting", waiting.step, HOUR, bell)]
    async with run_services(services, Events()):
        await eventually(lambda: asking.count > 3 and waiting.count == 1)
        bell.ring()
        await eventually(lambda: waiting.count == 2)


@pytest.mark.spec("V6")
async def test_only_the_leader_takes_the_step_of_a_leader_only_service() -> None:
    led, free, is_leader = Counting(AT_ONCE), Counting(AT_ONCE), False
    services = [Service("led", led.step, HOUR, leader_only=True), Service("free", free.step, HOUR)]
    async with run_services(services, Events(), is_leader=lambda: is_leader):
        await eventually(lambda: free.count > 10)
        assert led.count == 0
        is_leader = True
        await eventually(lambda: led.count > 10)


@pytest.mark.spec("G7")
async def test_a_step_that_fails_is_reported_and_taken_again() -> None:
    events, failed, steps = Events(), list[StepFailed](), Counting(HOUR)

    async def fail() -> timedelta | None:
        await steps.step()
        if steps.count < 3:
            raise ValueError("a fault")
        return None

    events.listen(StepFailed, failed.append)
    async with run_services([Service("failing", fail, HOUR)], events):
        await eventually(lambda: steps.count == 3)
    assert [(event.step, event.error) for event in failed] == [("failing", "ValueError: a fault")] * 2


@pytest.mark.spec("G7")
async def test_every_service_stops_and_then_they_close_from_the_last_to_the_first() -> None:
    """One that cannot be closed is reported, and the others are closed all the same."""
    told, stopped, events = list[str](), asyncio.Event(), Events()
    events.listen(StepFailed, lambda event: told.append(event.error))

    async def wait() -> None:
        await stopped.wait()
        told.append("stopped")

    def close(name: str) -> Service:
        async def leave() -> None:
            told.append(name)
            if name == "second":
                raise OSError("the database is away")

        return Service(name, wait, HOUR, interrupt=stopped.set, close=leave)

    async with run_services([close("first"), close("second"), close("third")], events):
        await asyncio.sleep(0)
    assert told == ["stopped"] * 3 + ["third", "second", "OSError: the database is away", "first"]


@pytest.mark.spec("G7")
async def test_a_step_that_hangs_is_cut_off() -> None:
    cut = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    async with run_services([Service("hanging", hang, HOUR)], Events(), patience=timedelta(milliseconds=10)):
        await asyncio.sleep(0)
    assert cut.is_set()
