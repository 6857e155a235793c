"""Look up the id of a channel and the access hash that an account has for it. Imports Telethon.

Looking up names is what causes flood waits, so it is done once and the result is stored.
"""

from typing import Any

from telethon.tl import types
from telethon.tl.functions.contacts import ResolveUsernameRequest

from floodmark.errors import Gone

from .channels import Channels, KnownChannel
from .dialogs import dialog_pages, known_channel
from .sessions import Session


class ChannelLookup:
    """Finds one channel for one account. `pinned` is its id once it is known: a name may move to another channel."""

    def __init__(self, session: Session, channels: Channels, *, target: str, pinned: int | None) -> None:
        self._session, self._channels, self._target = session, channels, target
        self._name = target.removeprefix("@") if target.startswith("@") else None
        self._number = pinned or (None if self._name else int(target))
        self.requests = 0

    async def find(self) -> KnownChannel:
        """Return the channel as it is stored, or else as Telegram shows it. `Gone` if the account cannot reach it."""
        known = await self._channels.find(self._session.account.name, channel_id=self._number, username=self._name)
        return known or await self._look_up()

    async def look_up_again(self, channel: KnownChannel) -> KnownChannel:
        """Look up a channel whose stored access hash is no longer valid."""
        await self._channels.forget(channel.account, channel.channel_id)
        self._number = channel.channel_id
        return await self._look_up()

    async def _look_up(self) -> KnownChannel:
        found = await self._find_by_name(self._name) if self._name else None
        if found is None or self._number not in (None, found.channel_id):
            # The name now belongs to another channel, or the target is a number.
            found = await self._find_by_last_name() or await self._find_in_dialogs()
        await self._channels.store(found)
        return found

    async def _find_by_last_name(self) -> KnownChannel | None:
        """Find the channel by the name under which any account last saw it: it may have been renamed."""
        name = None if self._number is None else await self._channels.last_name(self._number)
        if name is None or name.lower() == (self._name or "").lower():
            return None
        found = await self._find_by_name(name)
        return found if found is not None and found.channel_id == self._number else None

    async def _find_by_name(self, name: str) -> KnownChannel | None:
        try:
            answer = await self._ask("contacts.resolveUsername", ResolveUsernameRequest(name))
        except Gone:
            if self._number is None:
                raise
            return None
        if not isinstance(answer.peer, types.PeerChannel):
            raise Gone(
                f"{self._target} is {_describe_peer(answer)}, not a channel",
                hint="Remove the job with floodmark rm, and add the channel under its correct name",
            )
        for chat in answer.chats:
            if chat.id == answer.peer.channel_id:
                return self._channel(chat)
        raise Gone(f"{self._target} cannot be read", hint="Check it in Telegram")

    async def _find_in_dialogs(self) -> KnownChannel:
        """Find the channel by its id, which works only for channels that the account has joined."""
        async for page in dialog_pages(self._ask):
            for chat in page.chats:
                if chat.id == self._number and isinstance(chat, types.Channel | types.ChannelForbidden):
                    return self._channel(chat)
                if -chat.id == self._number and isinstance(chat, types.Chat | types.ChatForbidden):
                    return self._group(chat)
        raise self._unreachable()

    async def _ask(self, method: str, request: Any) -> Any:
        self.requests += 1
        return await self._session.call(method, request, target=self._target)

    def _unreachable(self) -> Gone:
        account = self._session.account.name
        if self._name:
            return Gone(
                f"{self._target} is no longer the name of channel {self._number}, "
                f"and account {account} cannot find the channel without a name",
                hint=f"Join the channel with account {account}, or add it again under its new name",
            )
        return Gone(
            f"account {account} does not know channel {self._number}",
            hint=f"Join the channel with account {account}, then floodmark resume the job; or add it by its @name",
        )

    def _group(self, chat: Any) -> KnownChannel:
        require_still_basic(chat)
        if isinstance(chat, types.ChatForbidden) or chat.left or chat.deactivated:
            raise Gone(f"the account is no longer a member of group {chat.id}", hint="Join it with the account again")
        return known_channel(self._session.account.name, chat, 0)

    def _channel(self, chat: Any) -> KnownChannel:
        if isinstance(chat, types.ChannelForbidden):
            raise Gone(
                f"{self._target} is private, or the account was removed from it", hint="Join it with the account again"
            )
        return known_channel(self._session.account.name, chat, chat.access_hash)


def find_in_answer(answer: Any, channel: KnownChannel) -> KnownChannel | None:
    """Return the channel as an answer shows it; None if it does not."""
    for chat in answer.chats:
        if chat.id == channel.channel_id and isinstance(chat, types.Channel) and not chat.min:
            return known_channel(channel.account, chat, chat.access_hash or channel.access_hash)
        if -chat.id == channel.channel_id and isinstance(chat, types.Chat):
            require_still_basic(chat)
            return known_channel(channel.account, chat, 0)
    return None


def require_still_basic(chat: Any) -> None:
    """Raise `Gone` for a basic group that has become a supergroup: new messages are only there."""
    moved_to = getattr(getattr(chat, "migrated_to", None), "channel_id", None)
    if moved_to is not None:
        raise Gone(
            f"group {chat.id} has become the supergroup {moved_to}; its old messages stay",
            hint=f"floodmark add telegram {moved_to} collects the new ones; then remove this job: floodmark rm",
        )


def _describe_peer(answer: Any) -> str:
    if isinstance(answer.peer, types.PeerUser):
        return "a bot" if any(user.bot for user in answer.users) else "a person"
    return "a basic group"
