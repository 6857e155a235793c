"""Channels that post at different rates, and occasional flood waits.

The posts depend only on the seed and the start time, so a restart continues with the same channels, ids, texts and
sessions without other stored state.
"""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from floodmark.errors import Conflict, InvalidInput

from .backend import Channel, TelegramBackend
from .faults import Fault
from .server import LoopbackTelegram

# In the order of their rates.
NAMES = (
    *("harbour", "weather", "traffic", "trams", "airport", "market", "stadium", "university", "council", "theatre"),
    *("library", "museum", "hospital", "islands", "lighthouse", "garden", "concerts", "schools", "bridges", "archive"),
)
_TURN_SECONDS = 0.1
_WAIT_SECONDS = (4, 15)


class LivePlan(Struct, frozen=True, kw_only=True):
    """The parameters. `rate` is posts per second of all channels together, `began` is in seconds since 1970."""

    channels: int = 10
    rate: float = 2.0
    history: int = 500
    accounts: int = 2
    seed: int = 7
    began: float


def load_plan(file: Path | None, plan: LivePlan) -> LivePlan:
    """Return the plan with the start time in this file; create the file if it does not exist."""
    if file is None:
        return plan
    if not file.exists():
        file.write_bytes(msgspec.json.encode(plan))
        return plan
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=LivePlan)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{file} is not a state file: {error}", hint="delete it or name another") from None
    if replace(plan, began=kept.began) != kept:
        options = ", ".join(f"{name} {value}" for name, value in asdict(kept).items() if name != "began")
        raise Conflict(
            f"{file} has other options: {options}", hint="start it with the same options, or name another file"
        )
    return kept


class LiveChannels:
    """The channels of a plan, which keep posting."""

    def __init__(self, plan: LivePlan) -> None:
        self.plan, self.backend = plan, TelegramBackend(plan.seed)
        self._next: dict[Channel, float] = {}
        self._gaps: dict[Channel, Iterator[float]] = {}
        # Without a seed: flood waits are not part of the plan.
        self._chance = Random()  # noqa: S311 - not a secret
        for number in range(plan.accounts):
            self.backend.account(f"reader{number + 1}")
        for number in range(plan.channels):
            self._add(number)

    @property
    def channels(self) -> list[Channel]:
        """Return the channels, the busiest first."""
        return list(self.backend.channels.values())

    def pace(self, number: int) -> float:
        """Return the posts per second of one channel: the second channel posts half as much as the first, the third a
        third.
        """
        return self.plan.rate / (number + 1) / sum(1 / (other + 1) for other in range(self.plan.channels))

    def post(self) -> int:
        """Post all due messages and return their number."""
        now, posted = self.backend.now(), 0
        for channel in self.channels:
            while self._next[channel] <= now:
                channel.grow(date=datetime.fromtimestamp(self._next[channel], UTC))
                self._next[channel] += next(self._gaps[channel])
                posted += 1
        return posted

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            self.post()
            await asyncio.sleep(_TURN_SECONDS)

    async def flood(self, server: LoopbackTelegram, every: float) -> None:
        """Give the account that called last a flood wait, about once per interval, until cancelled."""
        last: Fault | None = None
        while True:
            await asyncio.sleep(every * self._chance.uniform(0.7, 1.3))
            # Otherwise a reader that was away would get all waits, one after the other.
            if last is not None and last.met == 0:
                server.remove(last)
            reading = [call.account for call in server.calls("messages.getHistory")]
            seconds = self._chance.randrange(*_WAIT_SECONDS)
            last = server.flood("messages.getHistory", seconds=seconds, account=reading[-1] if reading else None)

    def _add(self, number: int) -> None:
        name = NAMES[number % len(NAMES)] + (str(number // len(NAMES) + 1) if number >= len(NAMES) else "")
        channel, pace = self.backend.channel(name, title=f"{name.title()} News"), self.pace(number)
        self._gaps[channel] = _gaps(f"{self.plan.seed}:{name}", pace)
        began = self.plan.began
        dates = [int(began - (self.plan.history - index) / pace) for index in range(self.plan.history)]
        due = began + next(self._gaps[channel])
        while due <= time.time():
            dates.append(int(due))
            due += next(self._gaps[channel])
        self._next[channel] = due
        channel.fill_at(dates)


def _gaps(seed: str, pace: float) -> Iterator[float]:
    chance = Random(seed)  # noqa: S311 - a likeness, not a secret
    while True:
        yield chance.expovariate(pace)
