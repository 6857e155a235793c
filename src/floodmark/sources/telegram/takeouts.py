"""Takeout sessions, in which Telegram lets an account read long histories with wider limits. Imports Telethon.

Column: `accounts.takeout_id`, from the beginning of a takeout session to its end. After a restart the same one is used;
one that Telegram has ended is begun again. It is finished when the last first read of the account is complete.
"""

from typing import Any

import structlog
from telethon.tl.functions import InvokeWithTakeoutRequest
from telethon.tl.functions.account import FinishTakeoutSessionRequest, InitTakeoutSessionRequest

from floodmark.errors import SourceError

from .accounts import Accounts
from .faults import TakeoutEnded
from .sessions import Session

_INIT, _FINISH = "account.initTakeoutSession", "account.finishTakeoutSession"

_log = structlog.get_logger()


class Takeout:
    """Calls of one run in the takeout session of its account. Use it with `async with`."""

    def __init__(self, session: Session, accounts: Accounts, *, target: str) -> None:
        self._session, self._accounts, self._target = session, accounts, target

    async def __aenter__(self) -> "Takeout":
        self._session.takeout_users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._session.takeout_users -= 1

    async def call(self, method: str, request: Any, *, target: str, channel_id: int | None = None) -> Any:
        """Return the answer to a request, as `Session.call`. `SlowDown` if the owner must allow the takeout first."""
        takeout_id = await self._open(None)
        try:
            return await self._ask(takeout_id, method, request, target=target, channel_id=channel_id)
        except TakeoutEnded:
            takeout_id = await self._open(takeout_id)
            return await self._ask(takeout_id, method, request, target=target, channel_id=channel_id)

    async def finish(self) -> None:
        """End the takeout session, unless another run uses it. An error is only logged: the next run tries again."""
        await finish_takeout(self._session, self._accounts, target=self._target, users=1)

    async def _ask(self, takeout_id: int, method: str, request: Any, **names: Any) -> Any:
        return await self._session.call(method, InvokeWithTakeoutRequest(takeout_id, request), **names)

    async def _open(self, ended: int | None) -> int:
        """Return the open takeout session; begin one if there is none, or only the one that has ended."""
        name = self._session.account.name
        async with self._session.takeout_lock:
            known = self._session.takeout_id or await self._accounts.takeout(name)
            if known is not None and known != ended:
                self._session.takeout_id = known
                return known
            wanted = InitTakeoutSessionRequest(message_channels=True, message_megagroups=True)
            begun = await self._session.call(_INIT, wanted, target=self._target)
            await self._accounts.store_takeout(name, begun.id)
            self._session.takeout_id = int(begun.id)
            return int(begun.id)


async def finish_takeout(session: Session, accounts: Accounts, *, target: str, users: int = 0) -> None:
    """End the takeout session of an account, if there is one and no more than `users` runs use it."""
    name = session.account.name
    async with session.takeout_lock:
        known = await accounts.takeout(name)
        if known is None or session.takeout_users > users:
            return
        request = InvokeWithTakeoutRequest(known, FinishTakeoutSessionRequest(success=True))
        try:
            await session.call(_FINISH, request, target=target)
        except TakeoutEnded:
            _log.info("the takeout session had ended already", account=name)
        except SourceError as error:
            _log.warning("the takeout session stays open", account=name, reason=str(error))
            return
        await accounts.store_takeout(name, None)
        session.takeout_id = None
