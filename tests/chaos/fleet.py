"""Processes to be killed, and what they left behind: the hands and eyes of the chaos tests."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import asyncpg
import msgspec

from chaos.process import Answer, Order, Request
from floodmark.process import failpoints

T = TypeVar("T")

# Statements are asked of a database that the test itself takes down: a few tries are part of the game.
_PATIENCE_SECONDS = 60.0
# Characters of a log that are shown when something went wrong: enough for all tasks of one process.
_TAIL = 12_000


class Zygote:
    """The process that makes all others. See `chaos.process`."""

    def __init__(self) -> None:
        self._exited: dict[int, int] = {}
        folders = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), failpoints.VARIABLE: ""},
            # Ctrl-C is for the test run, which then closes our input.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def spawn(self, order: Order) -> int:
        """A new process; its number."""
        return self._ask(Request(spawn=order)).child

    def send(self, child: int, what: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._ask(Request(child=child, signal=what))

    def exited(self, child: int) -> int | None:
        """How it ended; None while it lives."""
        self._ask(Request())
        return self._exited.get(child)

    def _ask(self, request: Request) -> Answer:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the zygote has ended with code {self._process.wait(120)}"
        answer = msgspec.json.decode(line, type=Answer)
        self._exited.update(answer.exited)
        return answer


class Fleet:
    """Named processes. One that falls by itself is noticed and started again by `tend`."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote, self.folder = zygote, folder
        self._orders: dict[str, Order] = {}
        self.children: dict[str, int] = {}
        self.fallen: list[tuple[str, int]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, order: Order) -> int:
        """Start a process, or start it again; its number."""
        assert order.name not in self.children, f"{order.name} is running"
        self._orders[order.name] = order
        self.children[order.name] = self._zygote.spawn(order)
        return self.children[order.name]

    def start_again(self, name: str) -> int:
        """The same order once more."""
        return self.start(self._orders[name])

    def send(self, name: str, what: signal.Signals) -> None:
        """Send a signal."""
        self._zygote.send(self.children[name], what)

    def kill(self, name: str) -> None:
        """SIGKILL, and gone when this returns."""
        self.send(name, signal.SIGKILL)
        child, deadline = self.children.pop(name), time.monotonic() + 120
        while (code := self._zygote.exited(child)) is None:
            assert time.monotonic() < deadline, f"{name} survives SIGKILL"
            time.sleep(0.002)
        if code != -signal.SIGKILL:
            self.fallen.append((name, code))

    def tend(self) -> None:
        """Start again whoever fell without our doing."""
        for name, child in tuple(self.children.items()):
            code = self._zygote.exited(child)
            if code is not None:
                del self.children[name]
                self.fallen.append((name, code))
                self.start_again(name)

    async def ended(self, name: str, seconds: float) -> int:
        """Wait until a process has ended by itself; its exit code."""

        async def code() -> int | None:
            return self._zygote.exited(self.children[name])

        found = await eventually(code, lambda it: it is not None, seconds=seconds, what=f"{name} ends", every=0.05)
        del self.children[name]
        assert found is not None
        return found

    async def ready(self, *names: str) -> None:
        """Wait until these processes have opened everything."""

        async def waiting() -> set[str]:
            ready = {note["child"] for note in self.happened("ready")}
            return {name for name in names if self.children[name] not in ready}

        await eventually(waiting, lambda left: not left, seconds=120, what="processes ready")

    async def stopped(self, name: str, seconds: float) -> dict[str, Any]:
        """Wait until a process stands still, by its own fail-point; what it told about itself when it was ready."""
        await self.ready(name)
        [note] = self.happened("ready", child=self.children[name])

        async def state() -> str:
            return _state(note["pid"])

        await eventually(state, lambda letter: letter == "T", seconds=seconds, what=f"{name} stands still", every=0.2)
        return note

    def stop_all(self) -> None:
        """Nobody is left when this returns."""
        for name in tuple(self.children):
            self.kill(name)

    def happened(self, kind: str | None = None, *, child: int | None = None) -> Iterator[dict[str, Any]]:
        """What the processes wrote down, of one kind, by one process."""
        for path in sorted(self.folder.glob("*.events" if child is None else f"{child}.events")):
            for line in path.read_bytes().splitlines():
                try:
                    found: dict[str, Any] = msgspec.json.decode(line)
                except msgspec.DecodeError:
                    continue  # its last moment
                if kind is None or found["kind"] == kind:
                    yield found

    def counts(self) -> Counter[str]:
        """How often each kind of thing happened."""
        counted: Counter[str] = Counter()
        for found in self.happened():
            event = found.get("event")
            counted[found["kind"]] += event.get("count", 1) if isinstance(event, dict) else 1
        return counted

    def failures(self) -> Counter[str]:
        """The steps that raised, and why."""
        return Counter(
            f"{found['event']['step']}: {found['event']['error'][:100]}" for found in self.happened("StepFailed")
        )

    async def has_noted(self, text: str) -> bool:
        """Whether it is in anything they wrote down."""
        return any(text.encode() in path.read_bytes() for path in self.folder.glob("*.events"))

    async def where(self) -> str:
        """What everyone is doing right now, or how they ended; then how their logs end."""
        for name in self.children:
            self.send(name, signal.SIGUSR1)
        await asyncio.sleep(0.5)
        ends = {name: self._zygote.exited(child) for name, child in self.children.items()}
        return f"ended: {ends}\n{self.tails()}"

    def tails(self) -> str:
        """The ends of what the processes said before they fell."""
        logs = [(path, path.read_text(errors="replace")[-_TAIL:]) for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(f"--- {path.name}\n{text}" for path, text in logs if text.strip())[-4 * _TAIL :]


def _state(pid: int) -> str:
    """The letter of its state, as ps shows it."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout[:1]


class Probe:
    """Reads the store from outside, by bare SQL, so that no code of ours stands between us and the truth."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows; tried again while the database is away."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._sqlite(statement) if self.is_sqlite else await self._postgres(statement)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.OperationalError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)

    async def value(self, statement: str) -> Any:
        """The only value."""
        [[value]] = await self.rows(statement)
        return value

    def _sqlite(self, statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    async def _postgres(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url, timeout=60)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close(timeout=60)


async def eventually(
    look: Callable[[], Awaitable[T]],
    wanted: Callable[[T], bool],
    *,
    seconds: float,
    what: str,
    every: float | None = None,
) -> T:
    """Look until it is as wanted, at a fixed pace or less often the longer it takes; fails with what was last seen."""
    deadline, pause = time.monotonic() + seconds, every or 0.1
    while True:
        seen = await look()
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what}. Last seen: {seen!r}")
        await asyncio.sleep(pause)
        pause = every or min(pause * 1.2, 0.5)


@contextmanager
def shown_at_the_end(fleet: Fleet, counts: Mapping[str, int]) -> Iterator[None]:
    """Print what happened, however it ended."""
    began = time.monotonic()
    try:
        yield
    except BaseException:
        print(fleet.tails())
        raise
    finally:
        told = {**counts, "processes that fell": len(fleet.fallen), **fleet.counts()}
        print(f"\n{time.monotonic() - began:.0f} s")
        print("\n".join(f"  {name:34} {value}" for name, value in sorted(told.items())))
        print("\n".join(f"  {count:4} x {what}" for what, count in fleet.failures().most_common(12)))
