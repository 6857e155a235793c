"""Limits the number of requests in progress: the work of a process comes before its API.

A request waits for its turn. If too many wait, or it waits too long, it gets 503 with `Retry-After`. In a process that
also schedules or works, turns start at intervals proportional to their usual duration, so that the event loop is free
for the work most of the time, however many clients there are.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from msgspec import Struct
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .addresses import route_path
from .problems import problem

# The longest wait for a turn: a client without a response asks again, and adds load.
PATIENCE_SECONDS = 10.0
_FIRST_GUESS_SECONDS = 0.01
_LONGEST_REST_SECONDS = 0.1
_ARRIVAL = "floodmark.arrival"
# The header with which an open page of the dashboard asks for itself again.
REFRESH = b"x-floodmark-live"


def arrival_of(scope: Scope, default: float) -> float:
    """Return when the request arrived, before it waited for its turn, as the time of the event loop."""
    return float(scope.get(_ARRIVAL, default))


class Turns(Struct, frozen=True, kw_only=True):
    """The numbers of requests in progress and waiting, and the pause between two, as a multiple of their duration."""

    at_once: int
    waiting: int = 128
    rest: float = 0.0


# For a process that only serves the API, and for one that also schedules or works.
ALONE = Turns(at_once=16)
BESIDE_WORK = Turns(at_once=4, rest=4.0)
# Probes have their own turns: a busy API must not look like a dead process.
PROBES = Turns(at_once=1, waiting=32)


class Busy(Exception):
    """No turn is available; `retry_after` is in seconds."""

    retry_after = 1


class Turnstile:
    """Gives turns, first come first served."""

    def __init__(self, turns: Turns, patience: float = PATIENCE_SECONDS) -> None:
        self._turns, self._patience = turns, patience
        self._free = asyncio.Semaphore(turns.at_once)
        self._waiting = 0
        self._beginning, self._next_at, self._usual = asyncio.Lock(), 0.0, _FIRST_GUESS_SECONDS

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Count the block as waiting for a turn; raise `Busy` if too many wait."""
        if self._waiting >= self._turns.waiting:
            raise Busy
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def turn(self) -> "Turn":
        """Wait for a turn; raise `Busy` if it takes too long."""
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
                try:
                    await self._pace()
                except BaseException:
                    self._free.release()
                    raise
        except TimeoutError:
            raise Busy from None
        return Turn(self)

    async def _pace(self) -> None:
        """Start turns one after the other, with a pause between."""
        if not self._turns.rest:
            return
        async with self._beginning:
            await asyncio.sleep(max(0.0, self._next_at - time.perf_counter()))
            self._next_at = time.perf_counter() + min((1 + self._turns.rest) * self._usual, _LONGEST_REST_SECONDS)

    def give_back(self, seconds: float) -> None:
        """End a turn that took this long."""
        # A moving average; a single slow turn, such as a call to another server, counts little.
        self._usual += (min(seconds, 10 * self._usual) - self._usual) / 8
        self._free.release()


class Turn:
    """One turn, ended once."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile: Turnstile | None = turnstile
        self._began = time.perf_counter()

    def end(self) -> None:
        """Give the turn to the next one."""
        turnstile, self._turnstile = self._turnstile, None
        if turnstile is not None:
            turnstile.give_back(time.perf_counter() - self._began)


class Admission:
    """A layer that lets requests into the application turn by turn.

    A turn begins when the whole request has arrived and ends when its response begins: slow senders and readers, and
    listeners of the live feed, block nobody. `probes` are paths with their own turns. Beside work, open pages that ask
    for themselves again get one turn at a time: they come together, and none of them waits for another server.
    """

    def __init__(self, app: ASGIApp, *, turns: Turns, probes: tuple[str, ...] = ()) -> None:
        self._app, self._probes = app, probes
        self._turnstile, self._probing = Turnstile(turns), Turnstile(PROBES)
        self._refreshing = Turnstile(replace(turns, at_once=1)) if turns.rest else self._turnstile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it with 503."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        turnstile = self._turnstile_of(scope)
        request_id = scope.get("floodmark.request_id")
        try:
            await self._admit(turnstile, scope, receive, send)
        except Busy:
            # Close the connection: a client that retries at once has to connect again.
            headers = {"Retry-After": str(Busy.retry_after), "Connection": "close"}
            hint = "try again after the time in Retry-After"
            answer = problem(
                503, "too many requests at once", request_id=request_id, hint=hint, kind="busy", headers=headers
            )
            await answer(scope, receive, send)
        except HTTPException as error:
            answer = problem(error.status_code, str(error.detail), request_id=request_id)
            await answer(scope, receive, send)
        return None

    def _turnstile_of(self, scope: Scope) -> Turnstile:
        if route_path(scope) in self._probes:
            return self._probing
        return self._refreshing if any(name == REFRESH for name, _ in scope["headers"]) else self._turnstile

    async def _admit(self, turnstile: Turnstile, scope: Scope, receive: Receive, send: Send) -> None:
        async with turnstile.waiting():
            arrived = await _Arrived.whole(receive)
            scope[_ARRIVAL] = asyncio.get_running_loop().time()
            turn = await turnstile.turn()
        try:
            await self._app(scope, arrived, _end_before(turn, send))
        finally:
            turn.end()


def _end_before(turn: Turn, send: Send) -> Send:
    async def send_message(message: Message) -> None:
        turn.end()
        await send(message)

    return send_message


class _Arrived:
    """A request that has arrived: replays its messages, then receives further ones."""

    def __init__(self, messages: list[Message], receive: Receive) -> None:
        self._messages, self._receive = messages, receive

    @classmethod
    async def whole(cls, receive: Receive) -> Self:
        """Wait until the whole request has arrived."""
        messages = [await receive()]
        while messages[-1].get("more_body", False):
            messages.append(await receive())
        return cls(messages[::-1], receive)

    async def __call__(self) -> Message:
        return self._messages.pop() if self._messages else await self._receive()
