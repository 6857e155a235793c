"""The protocol as a small model, walked through state by state: every order of steps, every crash, every loss.

One job with one due instant, two items upstream read in two batches, two schedulers that both believe to lead, two
workers, and a Redis that may forget everything. Anyone may die between any two steps, and a lease may end while its
holder lives. An entry is gone from the queue as soon as it is read: weaker than ours, which stays until it is
settled, so that what is proven here does not rest on it. The walk is breadth-first and complete within the bounds,
so a violation comes with the shortest trace that leads to it. Two things are checked:

    safety      in no state is anything lost, doubled, out of order or told before it was true
    liveness    from every state the goal can still be reached, without any further fault

A checker that finds nothing proves nothing, so each way of getting the protocol wrong that we know of is a mutant,
and the walk must find out what is wrong with each of them.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

MOST_STATES = 400_000

ITEMS = 2
WORKERS = 2
SCHEDULERS = 2
MOST_FENCES = 3
MOST_CRASHES = 2
MOST_FLUSHES = 1


class Worker(NamedTuple):
    """One process: which step comes next, and what it has in memory."""

    step: str = "idle"
    fence: int = 0
    value: int = 0
    """The watermark as it was read with the lease, and how far this worker has kept."""


class State(NamedTuple):
    """Everything that is durable, everything in Redis, everything in memory."""

    # SQL
    execution: str = "none"
    """none, queued, running or done."""
    fired: int = 0
    fence: int = 0
    leased: bool = False
    value: int = 0
    items: tuple[int, ...] = (0,) * ITEMS
    outbox: tuple[int, ...] = (0,) * ITEMS
    """How many times each item is stored, and how many events it has."""
    # Redis, and whoever reads its event stream
    entries: int = 0
    heard: frozenset[int] = frozenset()
    # Memory
    schedulers: tuple[str, ...] = ("idle",) * SCHEDULERS
    """idle; fires: has seen that the instant is due; puts: has committed an execution and not yet put it."""
    workers: tuple[Worker, ...] = (Worker(),) * WORKERS
    # How much has gone wrong
    crashes: int = 0
    flushes: int = 0
    highest: int = 0
    """The highest watermark there ever was."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Ours, or one with a mistake."""

    unique_instants: bool = True
    fence_checked: bool = True
    items_with_watermark: bool = True
    requeues: bool = True
    rescues: bool = True
    outbox: bool = True
    """Off: events are published before the commit."""
    claims_checked: bool = True


Step = tuple[str, State]


def steps(state: State, protocol: Protocol) -> Iterator[Step]:
    """Whatever can happen next."""
    yield from _schedule(state, protocol)
    for number in range(WORKERS):
        yield from _work(state, number, protocol)
    yield from _upkeep(state, protocol)
    yield from _relay(state)


def faults(state: State) -> Iterator[Step]:
    """Whatever can go wrong next. Time counts as a fault: a lease may end at any moment, its holder alive or not."""
    if state.leased and state.fence < MOST_FENCES:
        yield "lease ends", state._replace(leased=False)
    if state.flushes < MOST_FLUSHES and state.entries:
        yield "flush", state._replace(entries=0, flushes=state.flushes + 1)
    if state.crashes < MOST_CRASHES:
        for number, step in enumerate(state.schedulers):
            if step != "idle":
                yield f"scheduler {number} dies", _led(state, number, "idle")._replace(crashes=state.crashes + 1)
        for number, worker in enumerate(state.workers):
            if worker.step != "idle":
                yield f"worker {number} dies", _with(state, number, Worker())._replace(crashes=state.crashes + 1)


def _schedule(state: State, protocol: Protocol) -> Iterator[Step]:
    for number, step in enumerate(state.schedulers):
        match step:
            case "idle" if not state.fired:
                yield f"scheduler {number} looks", _led(state, number, "fires")
            case "fires" if state.fired and protocol.unique_instants:
                yield f"scheduler {number} comes second", _led(state, number, "idle")
            case "fires":
                after = _led(state, number, "puts")
                yield f"scheduler {number} fires", after._replace(execution="queued", fired=state.fired + 1)
            case "puts":
                after = _led(state, number, "idle")
                yield f"scheduler {number} puts", after._replace(entries=min(state.entries + 1, 2))


def _work(state: State, number: int, protocol: Protocol) -> Iterator[Step]:
    worker = state.workers[number]
    name = f"worker {number}"
    match worker.step:
        case "idle" if state.entries:
            yield f"{name} reads", _with(state, number, Worker("claim"))._replace(entries=state.entries - 1)
        case "claim":
            yield from _claim(state, number, protocol)
        case "keep":
            yield from _keep(state, number, protocol)
        case "watermark":
            yield from _second_half(state, number, protocol)
        case "settle":
            mine = state.execution == "running" and (worker.fence == state.fence or not protocol.fence_checked)
            after = _with(state, number, Worker())
            yield f"{name} settles", after._replace(execution="done", leased=False) if mine else after


def _claim(state: State, number: int, protocol: Protocol) -> Iterator[Step]:
    is_free = state.execution == "queued" and not state.leased
    if is_free or (not protocol.claims_checked and state.execution == "queued"):
        fence = state.fence + 1
        held = _with(state, number, Worker("keep", fence, state.value))
        yield f"worker {number} claims", held._replace(execution="running", fence=fence, leased=True)
    else:
        # Busy, done or running elsewhere: dropped. If it still has to run, the requeuer knows.
        yield f"worker {number} drops", _with(state, number, Worker())


def _keep(state: State, number: int, protocol: Protocol) -> Iterator[Step]:
    worker = state.workers[number]
    name = f"worker {number}"
    if worker.value == ITEMS:
        yield f"{name} is through", _with(state, number, worker._replace(step="settle"))
    elif worker.fence != state.fence and protocol.fence_checked:
        yield f"{name} is refused", _with(state, number, Worker())
    elif not protocol.outbox and worker.value not in state.heard:
        yield f"{name} publishes", state._replace(heard=state.heard | {worker.value})
    elif not protocol.items_with_watermark:
        # The watermark first, in a transaction of its own.
        moved = _with(state, number, worker._replace(step="watermark"))
        yield f"{name} moves the watermark", _moved(moved, worker.value + 1)
    else:
        kept = _with(state, number, worker._replace(value=worker.value + 1))
        yield f"{name} keeps {worker.value}", _moved(_stored(kept, worker.value, protocol), worker.value + 1)


def _second_half(state: State, number: int, protocol: Protocol) -> Iterator[Step]:
    worker = state.workers[number]
    after = _with(state, number, worker._replace(step="keep", value=worker.value + 1))
    yield f"worker {number} writes {worker.value}", _stored(after, worker.value, protocol)


def _upkeep(state: State, protocol: Protocol) -> Iterator[Step]:
    if protocol.rescues and state.execution == "running" and not state.leased and state.schedulers[0] == "idle":
        yield "scheduler 0 rescues", _led(state, 0, "puts")._replace(execution="queued")
    if protocol.requeues and state.execution == "queued" and not state.entries:
        yield "requeue", state._replace(entries=1)


def _relay(state: State) -> Iterator[Step]:
    unsent = [item for item in range(ITEMS) if state.outbox[item] and item not in state.heard]
    if unsent:
        # Marking it as sent may fail and be repeated: the reader knows the event by its id.
        yield f"relay {unsent[0]}", state._replace(heard=state.heard | {unsent[0]})


def _led(state: State, number: int, step: str) -> State:
    return state._replace(schedulers=(*state.schedulers[:number], step, *state.schedulers[number + 1 :]))


def _with(state: State, number: int, worker: Worker) -> State:
    # In order, for the workers are alike: what one can do, the other can, and half of the states say the same twice.
    return state._replace(workers=tuple(sorted((*state.workers[:number], worker, *state.workers[number + 1 :]))))


def _stored(state: State, item: int, protocol: Protocol) -> State:
    """The key is unique: what is known is neither stored nor told again."""
    if state.items[item]:
        return state
    items = tuple(count + (n == item) for n, count in enumerate(state.items))
    outbox = tuple(count + (n == item) for n, count in enumerate(state.outbox)) if protocol.outbox else state.outbox
    return state._replace(items=items, outbox=outbox)


def _moved(state: State, value: int) -> State:
    return state._replace(value=value, highest=max(state.highest, value))


def broken(state: State, protocol: Protocol) -> str | None:
    """What is wrong with a state, whatever comes after it."""
    holders = [w for w in state.workers if w.step in ("keep", "watermark", "settle")]
    # What a living worker is about to write is not missing yet.
    coming = {w.value for w in holders if w.step != "settle" and w.fence == state.fence}
    missing = {item for item in range(ITEMS) if not state.items[item]} - coming
    wrong = {
        "an instant fired twice": state.fired > 1,
        "the watermark went back": state.value < state.highest,
        "the watermark is ahead of its items": bool(missing & set(range(state.value))),
        "an item has no event, or an event no item": protocol.outbox and state.items != state.outbox,
        "an event was told that is not true": bool(missing & state.heard),
        "done, and not all collected": state.execution == "done" and state.value < ITEMS,
        "two workers hold one fence": sum(w.fence == state.fence for w in holders) > 1,
    }
    return next((what for what, is_so in wrong.items() if is_so), None)


def is_goal(state: State) -> bool:
    """Everything is collected, told and settled."""
    return state.execution == "done" and all(state.items) and state.heard == frozenset(range(ITEMS))


class Violation(NamedTuple):
    """What is wrong, and the shortest way there."""

    what: str
    trace: list[str]


class Walk:
    """All states that can be reached, each by the shortest way."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._came: dict[State, tuple[State, str] | None] = {State(): None}
        self._before: dict[State, list[State]] = {}

    @property
    def states(self) -> int:
        """How many there are."""
        return len(self._came)

    def violation(self) -> Violation | None:
        """The first thing that is wrong; None if nothing is, in any state."""
        waiting = deque(self._came)
        while waiting:
            state = waiting.popleft()
            wrong = broken(state, self._protocol)
            if wrong is not None:
                return Violation(wrong, self._trace(state))
            for name, after in steps(state, self._protocol):
                self._before.setdefault(after, []).append(state)
                self._add(waiting, state, name, after)
            for name, after in faults(state):
                self._add(waiting, state, name, after)
            assert self.states < MOST_STATES, "the model has grown beyond its bounds"
        return self._stuck()

    def _add(self, waiting: deque[State], state: State, name: str, after: State) -> None:
        if after not in self._came:
            self._came[after] = (state, name)
            waiting.append(after)

    def _stuck(self) -> Violation | None:
        """A state from which no way leads to the goal any more, with nothing else going wrong.

        But for the end of leases: a worker that died holds its lease until it ends, and end it will.
        """
        for state in self._came:
            for name, after in faults(state):
                if name == "lease ends":
                    self._before.setdefault(after, []).append(state)
        alive = {state for state in self._came if is_goal(state)}
        waiting = deque(alive)
        while waiting:
            for state in self._before.get(waiting.popleft(), ()):
                if state not in alive:
                    alive.add(state)
                    waiting.append(state)
        # Where the bound on fences is reached, leases no longer end: those states say nothing.
        stuck = (state for state in self._came if state not in alive and state.fence < MOST_FENCES)
        found = next(stuck, None)
        return None if found is None else Violation("stuck for ever", self._trace(found))

    def _trace(self, state: State) -> list[str]:
        names = []
        while (came := self._came[state]) is not None:
            state, name = came
            names.append(name)
        return names[::-1]


@pytest.mark.spec("G1", "G2", "G3", "G4", "E1")
def test_no_order_of_steps_and_faults_breaks_the_protocol() -> None:
    """In all of many thousand states everything holds, and the goal can be reached."""
    walk = Walk(Protocol())
    violation = walk.violation()
    assert violation is None, violation
    print(f"\n{walk.states:,} states")
    assert walk.states > 10_000


MUTANTS: dict[str, tuple[Protocol, str]] = {
    "two leaders without a unique row": (Protocol(unique_instants=False), "an instant fired twice"),
    "no fence": (Protocol(fence_checked=False), "the watermark went back"),
    "watermark before items": (Protocol(items_with_watermark=False), "the watermark is ahead of its items"),
    "no requeuer": (Protocol(requeues=False), "stuck for ever"),
    "no rescuer": (Protocol(rescues=False), "stuck for ever"),
    "publish before commit": (Protocol(outbox=False), "an event was told that is not true"),
}


@pytest.mark.spec("G3", "E1")
@pytest.mark.release
def test_a_claim_that_does_not_look_at_the_lease_is_still_safe() -> None:
    """The lease only saves work. What keeps the data whole is the fence."""
    assert Walk(Protocol(claims_checked=False)).violation() is None


@pytest.mark.spec("G1", "G2", "G3", "G4", "E1")
@pytest.mark.parametrize("name", MUTANTS)
def test_the_checker_finds_what_is_wrong_with(name: str) -> None:
    """A model that cannot fail proves nothing."""
    protocol, wrong = MUTANTS[name]
    violation = Walk(protocol).violation()
    assert violation is not None
    print(f"\n{violation.what}: {' > '.join(violation.trace)}")
    assert violation.what == wrong, violation.trace
