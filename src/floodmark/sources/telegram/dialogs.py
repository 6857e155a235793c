"""The channels that an account has joined. Imports Telethon."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from telethon.tl import types
from telethon.tl.functions.messages import GetDialogsRequest

from floodmark.coordination.partition import Partition
from floodmark.errors import Unavailable
from floodmark.extensions.services import Services
from floodmark.model.accounts import JoinedChannel

from .accounts import Accounts
from .channels import Channels, KnownChannel
from .services import TelegramServices
from .sessions import Session, Sessions

_DIALOGS = 100
# An account can join about a thousand channels; a channel that is not in this many pages of dialogs is not joined.
_MAX_PAGES = 20
# The time between two tries to get the session of an account.
_LOOK_SECONDS = 0.5

Ask = Callable[[str, Any], Awaitable[Any]]


async def read_joined(
    services: Services, account: str, *, holder: str, deadline: timedelta, patience: timedelta
) -> list[JoinedChannel]:
    """Open the session of an account as `holder`, and return the channels that it has joined.

    `Conflict` if another process has the session open and does not give it back within `patience`.
    """
    # Not the partition of this process: its own worker may have the session open.
    ours = replace(TelegramServices.of(services), holder=holder, partition=Partition(holder))
    ttl = services.settings.telegram_session_ttl
    sessions = Sessions(ours, ttl=ttl, linger=timedelta(), max_runs=1)
    async with _hold_patiently(ours.accounts, account, holder=holder, ttl=ttl, patience=patience):
        try:
            async with asyncio.timeout(deadline.total_seconds()), sessions.borrow(account) as session:
                return await list_joined(session, ours.channels)
        except TimeoutError as error:
            words = f"Telegram did not answer within {deadline.total_seconds():g} s"
            raise Unavailable(words, hint="try again later") from error


@asynccontextmanager
async def _hold_patiently(
    accounts: Accounts, name: str, *, holder: str, ttl: timedelta, patience: timedelta
) -> AsyncIterator[None]:
    """Hold the lease of a session; wait for a process that has it open, but does not use it."""
    last = time.monotonic() + patience.total_seconds()
    while not await accounts.lease(name, holder=holder, ttl=ttl) and time.monotonic() < last:
        await accounts.request_session(name, holder=holder)
        await asyncio.sleep(_LOOK_SECONDS)
    async with accounts.hold(name, holder=holder, ttl=ttl):
        yield


async def list_joined(session: Session, channels: Channels) -> list[JoinedChannel]:
    """Return the channels and groups of an account, and store them: no name has to be looked up later."""
    account = session.account.name
    found: dict[int, Any] = {}

    async def ask(method: str, request: Any) -> Any:
        return await session.call(method, request, target="")

    async for page in dialog_pages(ask):
        found |= {chat.id: chat for chat in page.chats if isinstance(chat, types.Channel) and not chat.left}
        found |= {-chat.id: chat for chat in page.chats if is_open_group(chat)}
    known = [known_channel(account, chat, getattr(chat, "access_hash", 0)) for chat in found.values()]
    await channels.store_all(account, known)
    return [_joined(account, chat) for chat in found.values()]


async def dialog_pages(ask: Ask) -> AsyncIterator[Any]:
    """Yield the dialogs of an account, page by page."""
    offset_date, offset_id, offset_peer = None, 0, types.InputPeerEmpty()
    for _ in range(_MAX_PAGES):
        request = GetDialogsRequest(offset_date, offset_id, offset_peer, _DIALOGS, hash=0)
        answer = await ask("messages.getDialogs", request)
        yield answer
        last = answer.messages[-1] if answer.messages else None
        if last is None or isinstance(answer, types.messages.Dialogs) or len(answer.dialogs) < _DIALOGS:
            return
        offset_date, offset_id = last.date, last.id
        offset_peer = _input_peer(last.peer_id, answer)


def is_open_group(chat: Any) -> bool:
    """Return whether a chat is a basic group that the account can read, and that has not become a supergroup."""
    return isinstance(chat, types.Chat) and not chat.left and not chat.deactivated and chat.migrated_to is None


def known_channel(account: str, chat: Any, access_hash: int) -> KnownChannel:
    """Return a channel or group as an account knows it."""
    if isinstance(chat, types.Chat):
        return KnownChannel(account=account, channel_id=-chat.id, access_hash=0, title=chat.title)
    # A channel may have several names instead of one; the first active one counts.
    names = [chat.username] if chat.username else [name.username for name in chat.usernames or () if name.active]
    username = str(names[0]) if names else None
    return KnownChannel(
        account=account, channel_id=chat.id, access_hash=access_hash, username=username, title=chat.title
    )


def _joined(account: str, chat: Any) -> JoinedChannel:
    known = known_channel(account, chat, getattr(chat, "access_hash", 0))
    return JoinedChannel(
        channel_id=known.channel_id,
        username=known.username,
        title=known.title or "",
        is_group=not getattr(chat, "broadcast", None),
        subscribers=chat.participants_count,
    )


def _input_peer(peer: Any, answer: Any) -> Any:
    if isinstance(peer, types.PeerChannel):
        return types.InputPeerChannel(peer.channel_id, _access_hash(answer.chats, peer.channel_id))
    if isinstance(peer, types.PeerUser):
        return types.InputPeerUser(peer.user_id, _access_hash(answer.users, peer.user_id))
    return types.InputPeerChat(peer.chat_id)


def _access_hash(among: Any, wanted: int) -> int:
    return next((getattr(each, "access_hash", None) or 0 for each in among if each.id == wanted), 0)
