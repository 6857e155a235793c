"""Telegram sessions of this process: one client per account, open only while this process holds the account's lease.

Telegram ends a session for good when it is used in two places at once. So the lease is acquired before connecting and
renewed after a third of its length; if that fails, the connection is closed before the lease ends. Idle sessions stay
connected for a while, because connecting costs calls. If there are adaptive jobs they stay connected until another
process asks for them, because Telegram pushes updates only to connected accounts.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from floodmark.errors import AccountLost, FloodmarkError, NotFound, Permanent, SlowDown, Transient
from floodmark.model.accounts import AccountRow
from floodmark.observability.events import BreakersInUse
from floodmark.outbound.caller import CallKey
from floodmark.process.tasks import end_tasks

from .account_choice import AccountLoad, WaitingLine
from .accounts import TelegramAccount
from .hints import relogin_hint
from .proxies import ResolvedProxy, resolve_proxy
from .services import TelegramServices

# Closing a connection takes a moment, and must end before the lease does: the share of the lease kept for it.
_MARGIN = 1 / 6
_CLOSING_SECONDS = 5.0
# A session that receives updates reconnects by itself, but not more often than this.
_RECONNECT_SECONDS = 1.0
_CONNECT = "connect"
# Behind the scope of an account: downloads have limits and a circuit breaker of their own.
MEDIA = ":media"
HISTORY = "messages.getHistory"

_log = structlog.get_logger()


def scope_of(account: str) -> str:
    """Return the scope of an account's rate limits and circuit breaker."""
    return f"telegram:{account}"


class Session:
    """The open session of one account. Calls go through `Caller`; after a lost connection the next call reconnects."""

    def __init__(
        self,
        account: TelegramAccount,
        services: TelegramServices,
        *,
        ttl: timedelta,
        leased_at: float,
        proxy: ResolvedProxy | None = None,
    ) -> None:
        self.account, self._services, self._ttl = account, services, ttl
        self._valid_until = leased_at + ttl.total_seconds()
        self._client: Any = _client(account, services, proxy)
        self._connecting = asyncio.Lock()
        self._answers: set[asyncio.Future[Any]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self.is_lost = False
        self.is_listening = False
        # The takeout session of the account, and the number of runs that use it.
        self.takeout_id: int | None = None
        self.takeout_users, self.takeout_lock = 0, asyncio.Lock()
        self.on_disconnect: Callable[[], None] | None = None

    async def open(self) -> None:
        """Connect, and keep the lease from now on."""
        # The breaker is known since the start of the process, unless the account was added later.
        self._services.events.emit(BreakersInUse([scope_of(self.account.name)]))
        self._renewing = _start_detached(self._renew(), name=f"session {self.account.name}")
        await self._make_call(_CONNECT, "", self._connect)

    async def call(self, method: str, request: Any, *, target: str, channel_id: int | None = None) -> Any:
        """Return the answer to a request, within the rate limits of the account. Raises only errors of sources.

        Messages contain `target`; metrics contain the id of the channel, which stays when its name changes.
        """

        async def send() -> Any:
            await self._connect()
            return await self._wait_for(self._client(request), method, target)

        return await self._make_call(method, target if channel_id is None else str(channel_id), send)

    async def call_media(self, method: str, request: Any, *, channel_id: int, dc_id: int | None = None) -> Any:
        """Return the answer to a request of a download, to the data centre of the file.

        It has its own rate limits and circuit breaker.
        """
        account = f"{self.account.name}{MEDIA}"

        async def send() -> Any:
            await self._connect()
            return await self._wait_for(self._ask_centre(request, dc_id), method, str(channel_id), account=account)

        return await self._make_call(method, str(channel_id), send, scope=scope_of(account))

    async def _ask_centre(self, request: Any, dc_id: int | None) -> Any:
        client = self._client
        if dc_id in (None, client.session.dc_id):
            return await client(request)
        sender = await client._borrow_exported_sender(dc_id)
        try:
            return await client._call(sender, request)
        finally:
            await client._return_exported_sender(sender)

    def listen(self) -> None:
        """Receive updates from the next call on."""
        self.is_listening = True
        self._client.listen()

    async def resume_listening(self) -> None:
        """Reconnect if the connection was lost: updates are pushed after the first call of a connection."""
        if not self._client.is_connected():
            from telethon.tl.functions.updates import GetStateRequest  # noqa: PLC0415 - takes a while to import

            await self.call("updates.getState", GetStateRequest(), target="")

    async def close(self) -> None:
        """Disconnect, and cancel the calls that still wait for an answer. Later calls are refused."""
        self.is_lost = True
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            await end_tasks(self._renewing)
        await self._disconnect()
        _cancel(tuple(self._answers))

    async def _make_call(self, method: str, target: str, send: Any, *, scope: str | None = None) -> Any:
        key = CallKey(scope=scope or scope_of(self.account.name), method=method, target=target)
        try:
            return await self._services.calls.call(key, send)
        except AccountLost as lost:
            self.is_lost = True
            await self._park(lost)
            raise

    async def _park(self, lost: AccountLost) -> None:
        name, accounts = self.account.name, self._services.accounts
        is_parked = await accounts.park(name, lost.reason, seen=self.account)
        if not is_parked and any(row.name == name for row in await accounts.active()):
            # A person has logged in again while this old session was open.
            raise SlowDown(timedelta(seconds=1), None, f"account {name} has a new session") from lost

    async def _connect(self) -> None:
        async with self._connecting:
            self._require_lease()
            if not self._client.is_connected():
                # Reconnecting would leave the tasks of the last connection running otherwise.
                await self._disconnect()
                await self._wait_for(_start_detached(self._client.connect(), name=_CONNECT), _CONNECT, "")
                self._client.disconnected.add_done_callback(self._handle_disconnect)

    def _handle_disconnect(self, ended: "asyncio.Future[Any]") -> None:
        """Cancel all calls: Telethon notifies only those whose request was sent, the others would wait for ever."""
        if not ended.cancelled():
            ended.exception()
        # One turn later, when the notified calls have ended.
        asyncio.get_running_loop().call_soon(_cancel, tuple(self._answers))
        if self.on_disconnect is not None and self.is_listening and not self.is_lost:
            self.on_disconnect()

    def _require_lease(self) -> None:
        # A process that was suspended comes here first: it must send nothing after its lease has ended.
        if self.is_lost or time.monotonic() >= self._valid_until - self._margin:
            raise SlowDown(
                timedelta(seconds=1), None, f"the session lease of account {self.account.name} could not be renewed"
            )

    async def _wait_for(self, request: Awaitable[Any], method: str, target: str, *, account: str | None = None) -> Any:
        from .faults import translate  # noqa: PLC0415 - Telethon takes a while to import

        answer = asyncio.ensure_future(request)
        self._answers.add(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Telethon cancels pending requests when it disconnects; this task itself was not cancelled.
            raise Transient(f"{method}: the connection was closed before the answer came") from None
        except Exception as error:
            name, now = account or self.account.name, self._services.clock.now()
            translated = translate(error, account=name, method=method, target=target, now=now)
            if isinstance(translated, AccountLost):
                translated = AccountLost(self.account.name, translated.reason, hint=relogin_hint(self.account.name))
            raise translated from error
        finally:
            self._answers.discard(answer)

    @property
    def _margin(self) -> float:
        return self._ttl.total_seconds() * _MARGIN

    async def _renew(self) -> None:
        """Renew the lease until that fails; then close the session before the lease ends."""
        name, holder, ttl = self.account.name, self._services.holder, self._ttl.total_seconds()
        while True:
            await asyncio.sleep(ttl / 3)
            began, is_ours, why = time.monotonic(), None, ""
            try:
                async with asyncio.timeout(max(0.0, self._valid_until - self._margin - began)):
                    is_ours = await self._services.accounts.lease(name, holder=holder, ttl=self._ttl)
            except Exception as error:  # noqa: BLE001 - logged below; the session must not outlive its lease
                why = f"{type(error).__name__}: {error}"
            if is_ours:
                self._valid_until = began + ttl
            elif is_ours is False or time.monotonic() + ttl / 3 >= self._valid_until - self._margin:
                self.is_lost = True
                _log.warning("session closed", account=name, reason=why or "its lease was taken away")
                await self.close()
                return

    async def _disconnect(self) -> None:
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._client.disconnect()
        except Exception as error:  # noqa: BLE001 - logged; the connection is given up either way
            _log.warning(
                "session not closed cleanly", account=self.account.name, reason=f"{type(error).__name__}: {error}"
            )
        ended = self._client.disconnected
        if ended.done() and not ended.cancelled():
            # Mark the exception as retrieved: the caller has got it already.
            ended.exception()


class _AccountUse:
    """The session of one account, the runs that use it, and those that wait for it."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.runs = 0
        self.downloads = 0
        self.is_unread = asyncio.Event()
        self.is_unread.set()
        self.lock = asyncio.Lock()
        self.line = WaitingLine()
        self.timer: asyncio.TimerHandle | None = None
        self.is_checked = False
        self.asked_at, self.is_requested = 0.0, False
        self.leave_at = 0.0
        """From then on the session is closed when it is idle, if another worker is preferred for it."""

    @property
    def is_used(self) -> bool:
        """Return whether anything uses the session."""
        return bool(self.runs or self.downloads)

    def cancel_timer(self) -> None:
        """Keep the idle session open."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Sessions:
    """Lends the sessions of this process to runs, to at most `max_runs` at once per account."""

    def __init__(self, services: TelegramServices, *, ttl: timedelta, linger: timedelta, max_runs: int) -> None:
        self._services, self._ttl, self._linger, self._max_runs = services, ttl, linger, max_runs
        self._uses: dict[str, _AccountUse] = {}
        self._checks: set[asyncio.Task[None]] = set()
        services.partition.listen(self._give_up_foreign)

    async def load(self, names: Collection[str]) -> AccountLoad:
        """Return the load of these accounts."""
        calls = self._services.calls
        waiting = frozenset([name for name in names if await calls.wait_of(scope_of(name), HISTORY) is not None])
        # Counted last: other runs may have chosen an account during the queries.
        runs = {name: use.runs for name, use in self._uses.items()}
        foreign = frozenset(name for name in names if not self._is_mine(name))
        return AccountLoad(
            holder=self._services.holder, runs=runs, max_runs=self._max_runs, waiting=waiting, foreign=foreign
        )

    @asynccontextmanager
    async def borrow(self, name: str, *, is_download: bool = False) -> AsyncIterator[Session]:
        """Yield the session of an account for one run. `SlowDown` if the account is busy, here or elsewhere.

        A download takes no place from the runs, and takes the session away from no other process.
        """
        use = self._uses.setdefault(name, _AccountUse())
        if is_download:
            async with self._borrow_for_download(name, use) as session:
                yield session
            return
        if use.runs >= self._max_runs:
            raise self._wait(use, f"account {name} is busy: {use.runs} channels are being read on it")
        use.runs += 1
        use.is_unread.clear()
        use.cancel_timer()
        began = time.monotonic()
        try:
            session = await self._session(name, use)
            if not session.is_listening and self._linger and await self._services.updates.are_wanted():
                session.listen()
            yield session
        finally:
            use.runs -= 1
            if not use.runs:
                use.is_unread.set()
            use.line.record_run(time.monotonic() - began)
            await self._leave(name, use)

    @asynccontextmanager
    async def _borrow_for_download(self, name: str, use: _AccountUse) -> AsyncIterator[Session]:
        use.downloads += 1
        use.cancel_timer()
        try:
            yield await self._session(name, use, may_ask=False)
        finally:
            use.downloads -= 1
            await self._leave(name, use)

    def may_download(self, row: AccountRow) -> bool:
        """Return whether this process downloads files with an account: it has, or should have, the session open."""
        use = self._uses.get(row.name)
        if use is not None and use.session is not None:
            return not use.session.is_lost
        return row.holder in (None, self._services.holder) and self._is_mine(row.name)

    async def wait_for_runs(self, name: str, seconds: float) -> None:
        """Wait until no run uses the session of an account, but not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._uses[name].is_unread.wait()

    async def is_requested(self, name: str) -> bool:
        """Return whether another process asks for the session of an account. The result may be a second old."""
        use, now = self._uses[name], time.monotonic()
        if now >= use.asked_at + _RECONNECT_SECONDS:
            use.asked_at = now
            use.is_requested = await self._services.accounts.is_requested(name, holder=self._services.holder)
        return use.is_requested

    async def close(self) -> None:
        """Close all sessions and release their leases."""
        for name, use in self._uses.items():
            use.cancel_timer()
            await self._close(name, use, even_if_used=True)
        if self._checks:
            await asyncio.wait(self._checks)

    def _is_mine(self, name: str) -> bool:
        return self._services.partition.is_mine(scope_of(name))

    def _give_up_foreign(self) -> None:
        """Close the sessions that other workers should have now: idle ones at once, the others after their last run."""
        for name, use in self._uses.items():
            if use.session is not None and not self._is_mine(name):
                use.leave_at = 0.0
                if not use.is_used and not use.is_checked:
                    use.cancel_timer()
                    self._check_soon(name, use)

    def _is_overdue(self, name: str, use: _AccountUse) -> bool:
        return time.monotonic() >= use.leave_at and not self._is_mine(name)

    async def _session(self, name: str, use: _AccountUse, *, may_ask: bool = True) -> Session:
        async with use.lock:
            if use.session is not None and use.session.is_lost:
                await self._end(name, use)
            if use.session is None:
                use.session = await self._open(name, use, may_ask=may_ask)
                use.session.on_disconnect = partial(self._start_timer, name, use, _RECONNECT_SECONDS)
                # Opened here because the preferred worker was busy, it would otherwise stay as long as it is used.
                use.leave_at = time.monotonic() + self._linger.total_seconds()
            return use.session

    async def _open(self, name: str, use: _AccountUse, *, may_ask: bool) -> Session:
        await self._require_no_wait(name)
        leased_at, holder = time.monotonic(), self._services.holder
        if not await self._services.accounts.lease(name, holder=holder, ttl=self._ttl):
            try:
                other = (await self._services.accounts.show(name)).holder
            except NotFound as error:
                raise _no_such(name, error) from error
            if may_ask:
                await self._services.accounts.request_session(name, holder=holder)
            raise self._wait(use, f"the session of account {name} is open in {other or 'another process'}")
        session = None
        try:
            account = await self._usable(name)
            proxy = await resolve_proxy(account.secrets.proxy, self._services.settings)
            session = Session(account, self._services, ttl=self._ttl, leased_at=leased_at, proxy=proxy)
            await session.open()
        except BaseException:
            if session is not None:
                await session.close()
            await self._services.accounts.release(name, holder=holder)
            raise
        return session

    async def _require_no_wait(self, name: str) -> None:
        """Raise the `SlowDown` of an account that must wait: connecting is a call too."""
        scope = scope_of(name)
        await self._services.calls.load(scope)
        for method in (_CONNECT, HISTORY):
            wait = await self._services.calls.wait_of(scope, method)
            if wait is not None:
                raise wait

    async def _usable(self, name: str) -> TelegramAccount:
        try:
            account = await self._services.accounts.get(name)
        except NotFound as error:
            raise _no_such(name, error) from error
        except FloodmarkError as error:
            # This process cannot decrypt the session; others may be able to.
            raise Permanent(str(error), hint=error.hint) from error
        if account.state != "active":
            raise AccountLost(name, account.reason or "it is parked", hint=relogin_hint(name))
        return account

    def _wait(self, use: _AccountUse, reason: str) -> SlowDown:
        after = use.line.join(time.monotonic(), self._max_runs)
        _log.debug("a run waits for its account", reason=reason, seconds=round(after.total_seconds(), 1))
        return SlowDown(after, None, reason)

    async def _leave(self, name: str, use: _AccountUse) -> None:
        if use.is_used or use.session is None:
            return
        if use.session.is_lost or self._is_overdue(name, use) or not self._linger:
            await self._close(name, use)
        else:
            self._start_timer(name, use, self._linger.total_seconds())

    def _start_timer(self, name: str, use: _AccountUse, seconds: float) -> None:
        """Check the session after this time, if it is idle then. A check that is running starts the next timer."""
        if not use.is_used and not use.is_checked:
            use.cancel_timer()
            use.timer = asyncio.get_running_loop().call_later(seconds, self._check_soon, name, use)

    def _check_soon(self, name: str, use: _AccountUse) -> None:
        use.is_checked = True
        task = _start_detached(self._check_idle(name, use), name=f"check session {name}")
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check_idle(self, name: str, use: _AccountUse) -> None:
        """Close an idle session, unless updates are pushed to it and no other process asks for it or should have it."""
        session = use.session
        try:
            stays = session is not None and session.is_listening and await self._is_free_to_listen(name, use)
            if session is not None and stays:
                await session.resume_listening()
        except Exception as error:  # noqa: BLE001 - logged; the next check tries again
            stays = True
            _log.warning("updates are not received", account=name, reason=f"{type(error).__name__}: {error}")
        finally:
            use.is_checked = False
        if session is None or session.is_lost or not stays:
            await self._close(name, use)
        elif use.session is session:
            self._start_timer(name, use, self._linger.total_seconds())

    async def _is_free_to_listen(self, name: str, use: _AccountUse) -> bool:
        services = self._services
        if self._is_overdue(name, use) or not await services.updates.are_wanted():
            return False
        return not await services.accounts.is_requested(name, holder=services.holder)

    async def _close(self, name: str, use: _AccountUse, *, even_if_used: bool = False) -> None:
        async with use.lock:
            if use.session is not None and (even_if_used or not use.is_used):
                await self._end(name, use)

    async def _end(self, name: str, use: _AccountUse) -> None:
        session, use.session = use.session, None
        assert session is not None
        await session.close()
        try:
            await self._services.accounts.release(name, holder=self._services.holder)
        except Exception as error:  # noqa: BLE001 - logged; the lease ends by itself
            _log.warning("lease not given back", account=name, reason=f"{type(error).__name__}: {error}")


def _start_detached(work: Coroutine[Any, Any, Any], *, name: str) -> "asyncio.Task[Any]":
    """Start a task whose logs and traces belong to the session, not to the execution that opened it."""
    return asyncio.create_task(work, name=name, context=Context())


def _cancel(answers: "Iterable[asyncio.Future[Any]]") -> None:
    for answer in answers:
        answer.cancel()


def _no_such(name: str, error: NotFound) -> AccountLost:
    return AccountLost(name, "there is no such account", hint=error.hint)


def _client(account: TelegramAccount, services: TelegramServices, proxy: ResolvedProxy | None) -> Any:
    from telethon.sessions import StringSession  # noqa: PLC0415 - takes a while to import

    from .client import make_client  # noqa: PLC0415

    session = StringSession(account.session)
    return make_client(session, account.api_id, account.api_hash, listener=services.updates, proxy=proxy)
