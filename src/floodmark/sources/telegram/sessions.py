"""Telegram sessions of this process: one client for each account, open only while the account is leased to us.

A session that is used in two places at once is ended by Telegram for good. So the lease is taken before connecting,
renewed at a third of its length, and if that fails the connection is closed before the lease runs out. Idle sessions
stay connected for a while, because connecting costs calls.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from datetime import timedelta
from typing import Any

import structlog

from floodmark.errors import AccountLost, FloodmarkError, NotFound, Permanent, SlowDown, Transient
from floodmark.observability.events import BreakersInUse
from floodmark.outbound.caller import CallKey
from floodmark.version import __version__

from .accounts import TelegramAccount
from .choosing import Desks, Line
from .port import Ports

# Closing a connection takes a moment; it has to be over when the lease is.
_MARGIN = 1 / 6
_CLOSING_SECONDS = 5.0
_CONNECT = "connect"
HISTORY = "messages.getHistory"

_log = structlog.get_logger()
# Telethon tells of every broken connection as an error; what came of it is said in our own words.
_QUIET = logging.getLogger("telethon.sessions")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


def scope_of(account: str) -> str:
    """The scope of an account's limits and of its breaker."""
    return f"telegram:{account}"


class Session:
    """The open session of one account. Calls go through `Caller`; a dropped connection is made again by the next."""

    def __init__(self, account: TelegramAccount, ports: Ports, *, ttl: timedelta, leased_at: float) -> None:
        self.account, self._ports, self._ttl = account, ports, ttl
        self._valid_until = leased_at + ttl.total_seconds()
        self._client = _client(account)
        self._connecting = asyncio.Lock()
        self._answers: set[asyncio.Future[Any]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self.is_lost = False

    async def open(self) -> None:
        """Connect, and from now on keep the lease."""
        # Known from the start of the process, unless the account was added since.
        self._ports.events.emit(BreakersInUse([scope_of(self.account.name)]))
        self._renewing = _detached(self._renew(), name=f"session {self.account.name}")
        await self._through(_CONNECT, "", self._connected)

    async def call(self, method: str, request: Any, *, target: str, channel_id: int | None = None) -> Any:
        """The answer to a request, within the limits of the account. Raises only what sources speak in.

        People read `target`, and metrics the number of the channel, which stays when its name changes.
        """

        async def send() -> Any:
            await self._connected()
            return await self._answer(self._client(request), method, target)

        return await self._through(method, target if channel_id is None else str(channel_id), send)

    async def close(self) -> None:
        """Disconnect; whoever still waits for an answer is told that none will come."""
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        await self._disconnect()
        _give_up(tuple(self._answers))

    async def _through(self, method: str, target: str, send: Any) -> Any:
        key = CallKey(scope=scope_of(self.account.name), method=method, target=target)
        try:
            return await self._ports.calls.call(key, send)
        except AccountLost as lost:
            self.is_lost = True
            await self._park(lost)
            raise

    async def _park(self, lost: AccountLost) -> None:
        name, accounts = self.account.name, self._ports.accounts
        is_parked = await accounts.park(name, lost.reason, seen=self.account)
        if not is_parked and any(row.name == name for row in await accounts.names()):
            # Someone has logged in again while this old session was open.
            raise SlowDown(timedelta(seconds=1), None, f"account {name} has a new session") from lost

    async def _connected(self) -> None:
        async with self._connecting:
            self._require_lease()
            if not self._client.is_connected():
                # Connecting anew would otherwise leave the tasks of the last connection behind.
                await self._disconnect()
                await self._answer(_detached(self._client.connect(), name=_CONNECT), _CONNECT, "")
                self._client.disconnected.add_done_callback(self._dropped)

    def _dropped(self, ended: "asyncio.Future[Any]") -> None:
        """The connection is gone. Telethon tells those whose request was sent; the others would wait for ever."""
        if not ended.cancelled():
            ended.exception()
        # A turn later: who was told has ended by then.
        asyncio.get_running_loop().call_soon(_give_up, tuple(self._answers))

    def _require_lease(self) -> None:
        # A process that was frozen wakes up here first: not one byte may leave it after its lease.
        if self.is_lost or time.monotonic() >= self._valid_until - self._margin:
            raise SlowDown(
                timedelta(seconds=1), None, f"the session of account {self.account.name} could not be kept: it is free"
            )

    async def _answer(self, asked: Awaitable[Any], method: str, target: str) -> Any:
        from .faults import translate  # noqa: PLC0415 - Telethon takes a while to import

        answer = asyncio.ensure_future(asked)
        self._answers.add(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Telethon cancels what is pending when it disconnects. Nobody has cancelled us.
            raise Transient(f"{method}: the connection was closed before the answer came") from None
        except Exception as error:
            told = translate(
                error, account=self.account.name, method=method, target=target, now=self._ports.clock.now()
            )
            raise told from error
        finally:
            self._answers.discard(answer)

    @property
    def _margin(self) -> float:
        return self._ttl.total_seconds() * _MARGIN

    async def _renew(self) -> None:
        """Keep the lease until it cannot be kept; then be gone before it ends."""
        name, holder = self.account.name, self._ports.holder
        while True:
            await asyncio.sleep(self._ttl.total_seconds() / 3)
            began, is_ours, why = time.monotonic(), None, ""
            try:
                async with asyncio.timeout(max(0.0, self._valid_until - self._margin - began)):
                    is_ours = await self._ports.accounts.lease(name, holder=holder, ttl=self._ttl)
            except Exception as error:  # noqa: BLE001 - whatever it is, the session must not outlive its lease
                why = f"{type(error).__name__}: {error}"
            if is_ours:
                self._valid_until = began + self._ttl.total_seconds()
            elif (
                is_ours is False or time.monotonic() + self._ttl.total_seconds() / 3 >= self._valid_until - self._margin
            ):
                self.is_lost = True
                _log.warning("session closed", account=name, reason=why or "its lease was taken away")
                await self.close()
                return

    async def _disconnect(self) -> None:
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._client.disconnect()
        except Exception as error:  # noqa: BLE001 - the connection is given up either way; why is told
            _log.warning(
                "session not closed cleanly", account=self.account.name, reason=f"{type(error).__name__}: {error}"
            )
        ended = self._client.disconnected
        if ended.done() and not ended.cancelled():
            # Why it ended was told to whoever made the call; nobody else asks.
            ended.exception()


class _Desk:
    """Who uses the session of one account, and who waits for it."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.users = 0
        self.lock = asyncio.Lock()
        self.line = Line()
        self.timer: asyncio.TimerHandle | None = None

    def stay(self) -> None:
        """It is needed after all."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Sessions:
    """Lends out the sessions of this process, to so many runs at once on each account."""

    def __init__(self, ports: Ports, *, ttl: timedelta, linger: timedelta, lanes: int) -> None:
        self._ports, self._ttl, self._linger, self._lanes = ports, ttl, linger, lanes
        self._desks: dict[str, _Desk] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def desks(self, names: Iterable[str]) -> Desks:
        """How things stand with these accounts."""
        calls = self._ports.calls
        waiting = frozenset([name for name in names if await calls.wait_of(scope_of(name), HISTORY) is not None])
        # Counted last: others have chosen while we asked.
        users = {name: desk.users for name, desk in self._desks.items()}
        return Desks(holder=self._ports.holder, users=users, lanes=self._lanes, waiting=waiting)

    @asynccontextmanager
    async def borrow(self, name: str) -> AsyncIterator[Session]:
        """The session of an account for one run. `SlowDown` if there is no room, or another process has it open."""
        desk = self._desks.setdefault(name, _Desk())
        if desk.users >= self._lanes:
            raise self._wait(desk, f"account {name} is busy: {desk.users} channels are being read on it")
        desk.users += 1
        desk.stay()
        began = time.monotonic()
        try:
            yield await self._session(name, desk)
        finally:
            desk.users -= 1
            desk.line.ran(time.monotonic() - began)
            await self._leave(name, desk)

    async def close(self) -> None:
        """Close them all and give the leases back."""
        for name, desk in self._desks.items():
            desk.stay()
            await self._close(name, desk, even_if_used=True)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _session(self, name: str, desk: _Desk) -> Session:
        async with desk.lock:
            if desk.session is not None and desk.session.is_lost:
                await self._end(name, desk)
            if desk.session is None:
                desk.session = await self._open(name, desk)
            return desk.session

    async def _open(self, name: str, desk: _Desk) -> Session:
        await self._refuse_if_told_to_wait(name)
        leased_at, holder = time.monotonic(), self._ports.holder
        if not await self._ports.accounts.lease(name, holder=holder, ttl=self._ttl):
            other = await self._other(name)
            raise self._wait(desk, f"the session of account {name} is open in {other or 'another process'}")
        session = None
        try:
            session = Session(await self._usable(name), self._ports, ttl=self._ttl, leased_at=leased_at)
            await session.open()
        except BaseException:
            if session is not None:
                await session.close()
            await self._ports.accounts.release(name, holder=holder)
            raise
        return session

    async def _other(self, name: str) -> str | None:
        """Who has it open."""
        try:
            return (await self._ports.accounts.show(name)).holder
        except NotFound as error:
            raise _no_such(name, error) from error

    async def _refuse_if_told_to_wait(self, name: str) -> None:
        """Connecting is a call too: not while the account has to wait anyway."""
        scope = scope_of(name)
        await self._ports.calls.load(scope)
        for method in (_CONNECT, HISTORY):
            told = await self._ports.calls.wait_of(scope, method)
            if told is not None:
                raise told

    async def _usable(self, name: str) -> TelegramAccount:
        try:
            account = await self._ports.accounts.get(name)
        except NotFound as error:
            raise _no_such(name, error) from error
        except FloodmarkError as error:
            # This process has not the key: others may have.
            raise Permanent(str(error), hint=error.hint) from error
        if account.state != "active":
            raise AccountLost(name, account.reason or "it is parked", hint=f"floodmark accounts add {name} --replace")
        return account

    def _wait(self, desk: _Desk, reason: str) -> SlowDown:
        after = desk.line.join(time.monotonic(), self._lanes)
        _log.debug("a run waits for its account", reason=reason, seconds=round(after.total_seconds(), 1))
        return SlowDown(after, None, reason)

    async def _leave(self, name: str, desk: _Desk) -> None:
        if desk.users or desk.session is None:
            return
        if desk.session.is_lost or not self._linger:
            await self._close(name, desk)
        else:
            desk.stay()
            loop = asyncio.get_running_loop()
            desk.timer = loop.call_later(self._linger.total_seconds(), self._close_soon, name, desk)

    def _close_soon(self, name: str, desk: _Desk) -> None:
        task = asyncio.create_task(self._close(name, desk), name=f"close session {name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, name: str, desk: _Desk, *, even_if_used: bool = False) -> None:
        async with desk.lock:
            if desk.session is not None and (even_if_used or not desk.users):
                await self._end(name, desk)

    async def _end(self, name: str, desk: _Desk) -> None:
        session, desk.session = desk.session, None
        assert session is not None
        await session.close()
        try:
            await self._ports.accounts.release(name, holder=self._ports.holder)
        except Exception as error:  # noqa: BLE001 - the database is away; the lease ends by itself
            _log.warning("lease not given back", account=name, reason=f"{type(error).__name__}: {error}")


def _detached(work: Coroutine[Any, Any, Any], *, name: str) -> "asyncio.Task[Any]":
    """A task that, with all it starts, belongs to the session and not to the execution that happened to open it."""
    return asyncio.create_task(work, name=name, context=Context())


def _give_up(answers: "Iterable[asyncio.Future[Any]]") -> None:
    for answer in answers:
        answer.cancel()


def _no_such(name: str, error: NotFound) -> AccountLost:
    return AccountLost(name, "there is no such account", hint=error.hint)


def _client(account: TelegramAccount) -> Any:
    """Telethon's client, without any of its own waiting and trying again: that is decided elsewhere, and seen."""
    from telethon import TelegramClient  # noqa: PLC0415 - takes a while to import
    from telethon.sessions import StringSession  # noqa: PLC0415

    return TelegramClient(
        StringSession(account.session),
        account.api_id,
        account.api_hash,
        app_version=__version__,
        base_logger=_QUIET,
        auto_reconnect=False,
        connection_retries=1,
        retry_delay=0,
        request_retries=0,
        flood_sleep_threshold=0,
        raise_last_call_error=True,
        receive_updates=False,
    )
