"""The channels of the demo on the loopback Telegram server: ten channels that post at realistic rates.

The posts depend only on the seed and on the age of the channels, which `town.json` stores; so a restart continues with
the same posts, even after `kill -9`.
"""

import asyncio
import json
import random
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path

from msgspec import Struct

from floodmark.testing.telegram import Channel, Flood, LoopbackTelegram, TelegramBackend

SEED = 7
ACCOUNTS = ("reader1", "reader2")
# An account that is not in use yet: people can log in to it in the dashboard.
GUEST, GUEST_PHONE, GUEST_CODE = "guest", "+10000000003", "12345"
# Posting continues while the demo is stopped, but no longer than this: the next start should be quick.
LONGEST_ABSENCE = 60.0
# The stored age is ahead of the real one, so that after `kill -9` no post is newer than it.
_AHEAD_SECONDS = 3.0
_STEP_SECONDS = 0.1
# The first fault comes soon; later ones are rare enough to catch up in between.
_FIRST_QUIET_SECONDS, _QUIET_SECONDS = (4.0, 8.0), (8.0, 20.0)
_WAIT_SECONDS = (2, 6)
# Server, client and store share one process, and wait for each other on a busy machine.
_IN_FLIGHT_SECONDS = 1.0


class ChannelPlan(Struct, frozen=True):
    """One channel: its average seconds between two posts, its number of earlier posts, and how often it is read."""

    name: str
    title: str
    pace: float
    before: int
    every: timedelta


CHANNEL_PLANS = tuple(
    ChannelPlan(name, title, pace, before, timedelta(seconds=every))
    for name, title, pace, before, every in (
        ("harbour", "Harbour Watch", 1.1, 900, 3),
        ("weather", "Weather on the Bay", 2.3, 640, 3),
        ("traffic", "Traffic Desk", 2.9, 800, 3),
        ("council", "City Council", 17.0, 210, 5),
        ("market", "Fish Market", 5.3, 330, 5),
        ("stadium", "Stadium", 7.1, 420, 5),
        ("university", "University", 13.0, 180, 5),
        ("theatre", "Theatre", 23.0, 140, 10),
        ("trams", "Trams and Buses", 3.7, 700, 3),
        ("airport", "Airport", 4.3, 560, 5),
    )
)


class Stretch(Struct, frozen=True):
    """A start of the demo at `wall` (seconds since 1970), when the channels were `lived` seconds old."""

    lived: float
    wall: float


class DemoChannels:
    """Ten channels that post over time, and sometimes cause flood waits or broken connections."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "town.json"
        self._stretches = self._load_stretches()
        self._began, self._frozen = time.monotonic(), float("inf")
        self._chance = random.Random()  # noqa: S311 - faults, not a secret
        self._clocks = {plan.name: _Clock(plan) for plan in CHANNEL_PLANS}
        self.backend = TelegramBackend(SEED)
        self.channels: dict[str, Channel] = {s.name: self.backend.channel(s.name, title=s.title) for s in CHANNEL_PLANS}
        for account in ACCOUNTS:
            self.backend.account(account)
        self.backend.account(GUEST, phone=GUEST_PHONE, code=GUEST_CODE)

    def _load_stretches(self) -> list[Stretch]:
        """Return the earlier starts and a new one."""
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            away = max(0.0, time.time() - self._file.stat().st_mtime)
            before = [Stretch(float(lived), float(wall)) for lived, wall in stored["stretches"]]
            lived = float(stored["lived"]) + min(away, LONGEST_ABSENCE)
        except (OSError, ValueError, KeyError, TypeError):
            before, lived = [], 0.0
        return [*before, Stretch(lived, time.time())]

    def lived(self) -> float:
        """Return the age of the channels in seconds."""
        return min(self._stretches[-1].lived + time.monotonic() - self._began, self._frozen)

    def freeze(self) -> None:
        """Stop posting, so that the posts can be counted."""
        self._frozen = self.lived()

    def count(self, name: str) -> int:
        """Return the number of posts of a channel; they are numbered from 1."""
        return self._clocks[name].count(self.lived())

    def waiting(self, name: str, collected: int) -> float:
        """Return for how many seconds the oldest uncollected post has been waiting; 0 if there is none."""
        if collected >= self.count(name):
            return 0.0
        return max(0.0, self._wall(self.lived()) - self._wall(self._clocks[name].at(collected)))

    def _wall(self, lived: float) -> float:
        """Return the time at this age, in seconds since 1970."""
        stretch = self._stretches[max(0, bisect_right([s.lived for s in self._stretches], lived) - 1)]
        return stretch.wall + lived - stretch.lived

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LoopbackTelegram]:
        """Start the server and let the channels post."""
        for name, channel in self.channels.items():
            clock = self._clocks[name]
            channel.fill_at([int(self._wall(clock.at(n))) for n in range(self.count(name))])
        self._save_age(self.lived() + _AHEAD_SECONDS)
        async with LoopbackTelegram(self.backend) as server:
            living = [asyncio.create_task(self._keep_posting()), asyncio.create_task(self._cause_faults(server))]
            try:
                yield server
            finally:
                for task in living:
                    task.cancel()
                await asyncio.gather(*living, return_exceptions=True)
                self._save_age(self.lived())

    def stop_posting(self, server: LoopbackTelegram) -> None:
        """Stop posting, and end all faults."""
        self.freeze()
        self._post()
        server.heal()

    async def _keep_posting(self) -> None:
        remembered = 0.0
        while True:
            self._post()
            if self.lived() - remembered > _AHEAD_SECONDS / 3:
                remembered = self.lived()
                self._save_age(remembered + _AHEAD_SECONDS)
            await asyncio.sleep(_STEP_SECONDS)

    def _post(self) -> None:
        for name, channel in self.channels.items():
            clock = self._clocks[name]
            for number in range(channel.history.top, self.count(name)):
                channel.grow(date=datetime.fromtimestamp(self._wall(clock.at(number)), UTC))

    async def _cause_faults(self, server: LoopbackTelegram) -> None:
        quiet = _FIRST_QUIET_SECONDS
        while True:
            await asyncio.sleep(self._chance.uniform(*quiet))
            quiet = _QUIET_SECONDS
            if self._frozen < float("inf"):
                return
            if self._chance.random() < 0.7:
                seconds, account = self._chance.randint(*_WAIT_SECONDS), self._chance.choice(ACCOUNTS)
                server.add(
                    Flood(method="messages.getHistory", seconds=seconds, account=account, in_flight=_IN_FLIGHT_SECONDS)
                )
            else:
                server.drop(method="messages.getHistory")

    def _save_age(self, lived: float) -> None:
        fresh = self._file.with_suffix(".new")
        stored = {"seed": SEED, "lived": lived, "stretches": [(s.lived, s.wall) for s in self._stretches]}
        fresh.write_text(json.dumps(stored), encoding="utf-8")
        with suppress(FileNotFoundError):
            # The folder may have been deleted while the demo ran.
            fresh.replace(self._file)


class _Clock:
    """The times of a channel's posts, in seconds of age; earlier posts are below 0."""

    def __init__(self, plan: ChannelPlan) -> None:
        self._gaps = _gaps(plan)
        # Earlier posts are sixty times as far apart.
        ages = list(accumulate(60 * gap for gap in islice(_gaps(plan, "before"), plan.before)))
        self._times = [-age for age in reversed(ages)]

    def count(self, lived: float) -> int:
        """Return the number of posts at this age."""
        while not self._times or self._times[-1] <= lived:
            self._times.append(max(0.0, self._times[-1] if self._times else 0.0) + next(self._gaps))
        return bisect_right(self._times, lived)

    def at(self, number: int) -> float:
        """Return the age at which the post with this number, counted from 0, was posted."""
        return self._times[number]


def _gaps(plan: ChannelPlan, salt: str = "") -> Iterator[float]:
    """Return the seconds between posts, always the same: quiet times and bursts."""
    chance = random.Random(f"{SEED}:{plan.name}:{salt}")  # noqa: S311 - sample data, not a secret
    while True:
        yield chance.expovariate(1 / plan.pace) * chance.choice((0.2, 0.5, 1.0, 1.0, 2.3))
