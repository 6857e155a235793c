"""Events: cheap to emit, and no listener can break the work."""

import logging
import timeit

import pytest

from floodmark.observability.events import Events, ExecutionsRequeued, ExecutionsRescued, InternalEvent


def test_listeners_hear_the_events_they_asked_for_in_order() -> None:
    events, heard = Events(), list[InternalEvent]()
    events.listen(ExecutionsRescued, heard.append)
    events.emit(ExecutionsRescued(1))
    events.emit(ExecutionsRequeued(2))
    events.emit(ExecutionsRescued(3))
    assert heard == [ExecutionsRescued(1), ExecutionsRescued(3)]


def test_a_listener_can_stop_listening() -> None:
    events, heard = Events(), list[InternalEvent]()
    stop = events.listen(ExecutionsRescued, heard.append)
    stop()
    stop()
    events.emit(ExecutionsRescued(1))
    assert heard == []


def test_a_listener_may_add_another_while_it_is_told() -> None:
    events, heard = Events(), list[InternalEvent]()

    def add(_: ExecutionsRescued) -> None:
        events.listen(ExecutionsRescued, heard.append)

    events.listen(ExecutionsRescued, add)
    events.emit(ExecutionsRescued(1))
    assert heard == []
    events.emit(ExecutionsRescued(2))
    assert heard == [ExecutionsRescued(2)]


@pytest.mark.spec("G6")
def test_a_listener_that_raises_breaks_nothing_and_is_reported_once_per_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, heard = Events(), list[InternalEvent]()

    def broken(_: InternalEvent) -> None:
        raise RuntimeError("no room")

    events.listen(ExecutionsRescued, broken)
    events.listen(ExecutionsRequeued, broken)
    events.listen(ExecutionsRescued, heard.append)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            events.emit(ExecutionsRescued(1))
        events.emit(ExecutionsRequeued(1))

    assert len(heard) == 3
    assert len(caplog.records) == 2
    assert "no room" in str(caplog.records[0].exc_info)
    assert sorted(events.failures.values()) == [1, 3]


def test_emitting_costs_about_a_microsecond() -> None:
    events = Events()
    events.listen(ExecutionsRescued, lambda _: None)
    event = ExecutionsRescued(1)
    best = min(timeit.repeat(lambda: events.emit(event), number=2_000, repeat=20)) / 2_000
    # Measured 0.25 us; the bound is wide because machines that run tests are busy.
    assert best < 5e-6
