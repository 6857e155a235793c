"""From what a channel is called to what a request needs: its number and the hash that our account has for it.

Looking names up is what gets accounts flooded. So it is done once, and remembered. Imports Telethon.
"""

from typing import Any

from telethon.tl import types
from telethon.tl.functions.contacts import ResolveUsernameRequest
from telethon.tl.functions.messages import GetDialogsRequest

from floodmark.errors import Gone

from .channels import KnownChannel
from .port import ChannelStore
from .sessions import Session

_DIALOGS = 100
# An account is in at most a thousand channels or so; whoever is not among these dialogs is not in them.
_MOST_PAGES = 20


class Finder:
    """Finds one channel for one account. `pinned` is its number, once it is known: a name may change hands."""

    def __init__(self, session: Session, store: ChannelStore, *, target: str, pinned: int | None) -> None:
        self._session, self._store, self._target = session, store, target
        self._name = target.removeprefix("@") if target.startswith("@") else None
        self._number = pinned or (None if self._name else int(target))
        self.requests = 0

    @property
    def has_asked(self) -> bool:
        """Whether what it found comes from Telegram itself."""
        return self.requests > 0

    async def find(self) -> KnownChannel:
        """What is remembered, else what Telegram says. `Gone` if the account cannot reach it."""
        known = await self._store.known(self._session.account.name, channel_id=self._number, username=self._name)
        return known or await self._look_up()

    async def look_up_again(self, channel: KnownChannel) -> KnownChannel:
        """What was remembered is no longer true."""
        await self._store.forget(channel.account, channel.channel_id)
        self._number = channel.channel_id
        return await self._look_up()

    async def _look_up(self) -> KnownChannel:
        found = await self._by_name(self._name) if self._name else None
        if found is None or self._number not in (None, found.channel_id):
            # The name is not that of our channel any more, or there never was one.
            found = await self._by_last_name() or await self._among_dialogs()
        await self._store.remember(found)
        return found

    async def _by_last_name(self) -> KnownChannel | None:
        """By the name under which any account saw our channel last: it may have been renamed since it was added."""
        name = None if self._number is None else await self._store.last_name(self._number)
        if name is None or name.lower() == (self._name or "").lower():
            return None
        found = await self._by_name(name)
        return found if found is not None and found.channel_id == self._number else None

    async def _by_name(self, name: str) -> KnownChannel | None:
        try:
            answer = await self._ask("contacts.resolveUsername", ResolveUsernameRequest(name))
        except Gone:
            if self._number is None:
                raise
            return None
        if not isinstance(answer.peer, types.PeerChannel):
            raise Gone(
                f"{self._target} is {_what(answer)}, not a channel",
                hint="Remove the job: floodmark rm it, and add the channel by its right name",
            )
        for chat in answer.chats:
            if chat.id == answer.peer.channel_id:
                return self._channel(chat)
        raise Gone(f"{self._target} cannot be read", hint="Check it in Telegram")

    async def _among_dialogs(self) -> KnownChannel:
        """By its number alone it can only be found among what the account has joined."""
        offset_date, offset_id, offset_peer = None, 0, types.InputPeerEmpty()
        for _ in range(_MOST_PAGES):
            request = GetDialogsRequest(offset_date, offset_id, offset_peer, _DIALOGS, hash=0)
            answer = await self._ask("messages.getDialogs", request)
            for chat in answer.chats:
                if chat.id == self._number and isinstance(chat, types.Channel | types.ChannelForbidden):
                    return self._channel(chat)
            last = answer.messages[-1] if answer.messages else None
            if last is None or isinstance(answer, types.messages.Dialogs):
                break
            offset_date, offset_id = last.date, last.id
            offset_peer = _input_peer(last.peer_id, answer)
        raise self._unreachable()

    async def _ask(self, method: str, request: Any) -> Any:
        self.requests += 1
        return await self._session.call(method, request, target=self._target)

    def _unreachable(self) -> Gone:
        account = self._session.account.name
        if self._name:
            return Gone(
                f"{self._target} is no longer the name of channel {self._number}, "
                f"and account {account} has no other way to it",
                hint=f"Join the channel with account {account}, or add it again under its new name",
            )
        return Gone(
            f"account {account} does not know channel {self._number}",
            hint=f"Join the channel with account {account}, then floodmark resume the job; or add it by its @name",
        )

    def _channel(self, chat: Any) -> KnownChannel:
        if isinstance(chat, types.ChannelForbidden):
            raise Gone(
                f"{self._target} is private, or the account was removed from it", hint="Join it with the account again"
            )
        return KnownChannel(
            account=self._session.account.name,
            channel_id=chat.id,
            access_hash=chat.access_hash,
            username=username_of(chat),
            title=chat.title,
        )


def seen_in(answer: Any, channel: KnownChannel) -> KnownChannel | None:
    """The channel as an answer shows it; None if it does not."""
    for chat in answer.chats:
        if chat.id == channel.channel_id and isinstance(chat, types.Channel) and not chat.min:
            return KnownChannel(
                account=channel.account,
                channel_id=channel.channel_id,
                access_hash=chat.access_hash or channel.access_hash,
                username=username_of(chat),
                title=chat.title,
            )
    return None


def username_of(chat: Any) -> str | None:
    """Its name; of several, the first that is in use."""
    if chat.username:
        return str(chat.username)
    return next((str(name.username) for name in chat.usernames or () if name.active), None)


def _what(answer: Any) -> str:
    if isinstance(answer.peer, types.PeerUser):
        return "a bot" if any(user.bot for user in answer.users) else "a person"
    return "a group of the old kind"


def _input_peer(peer: Any, answer: Any) -> Any:
    if isinstance(peer, types.PeerChannel):
        chats = {chat.id: chat for chat in answer.chats}
        return types.InputPeerChannel(peer.channel_id, getattr(chats.get(peer.channel_id), "access_hash", 0) or 0)
    if isinstance(peer, types.PeerUser):
        users = {user.id: user for user in answer.users}
        return types.InputPeerUser(peer.user_id, getattr(users.get(peer.user_id), "access_hash", 0) or 0)
    return types.InputPeerChat(peer.chat_id)
