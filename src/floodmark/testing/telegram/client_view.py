"""The client of a request, and the values that responses need."""

from dataclasses import dataclass
from typing import Any

from telethon.tl import types

from .backend import Account, Channel, TelegramBackend
from .sessions import DC, HOST, Key


class Refusal(Exception):
    """Raised to respond with an error of the protocol."""

    def __init__(self, name: str, code: int = 400) -> None:
        super().__init__(name)
        self.name, self.code = name, code


@dataclass(frozen=True, slots=True)
class ClientView:
    """A client with a key, which may be signed in."""

    backend: TelegramBackend
    key: Key
    port: int
    takeout_id: int | None = None

    def require_takeout(self) -> None:
        """Refuse a call in a takeout session that is not open."""
        if self.takeout_id is not None and self.backend.takeouts.get(self.account.name) != self.takeout_id:
            raise Refusal("TAKEOUT_INVALID")

    @property
    def account(self) -> Account:
        """Return the account of the session."""
        if self.key.revoked is not None:
            raise Refusal(self.key.revoked, 406 if self.key.revoked == "AUTH_KEY_DUPLICATED" else 401)
        if self.key.account is None:
            raise Refusal("AUTH_KEY_UNREGISTERED", 401)
        return self.backend.accounts[self.key.account]

    @property
    def me(self) -> Any:
        """Return the account as a user object of the protocol."""
        account = self.account
        return types.User(
            account.user_id,
            is_self=True,
            access_hash=self.backend.access_hash(account.name, account.user_id),
            first_name=account.name,
            phone=account.phone,
        )

    def channel(self, named: Any) -> Channel:
        """Return the channel that a request names by id and access hash; both must be right."""
        account = self.account
        if isinstance(named, types.InputPeerChat):
            return self._group(named.chat_id)
        found = self.backend.channels.get(getattr(named, "channel_id", 0))
        if found is None or named.access_hash != self.backend.access_hash(account.name, found.channel_id):
            raise Refusal("CHANNEL_INVALID" if isinstance(named, types.InputChannel) else "PEER_ID_INVALID")
        if not found.is_open_to(account.name):
            raise Refusal("CHANNEL_PRIVATE")
        return found

    def _group(self, chat_id: int) -> Channel:
        found = self.backend.channels.get(-chat_id)
        if found is None or not found.has_member(self.account.name):
            raise Refusal("PEER_ID_INVALID")
        return found

    def chat(self, channel: Channel) -> Any:
        """Return a channel as this account sees it."""
        account = self.account
        if channel.is_basic:
            return self._basic_group(channel)
        return types.Channel(
            channel.channel_id,
            channel.title,
            types.ChatPhotoEmpty(),
            channel.created,
            broadcast=None if channel.is_group else True,
            megagroup=True if channel.is_group else None,
            forum=None if channel.topics is None else True,
            left=None if channel.has_member(account.name) else True,
            access_hash=self.backend.access_hash(account.name, channel.channel_id),
            username=channel.username,
            participants_count=channel.subscribers,
        )

    def _basic_group(self, group: Channel) -> Any:
        moved_to = group.moved_to
        return types.Chat(
            -group.channel_id,
            group.title,
            types.ChatPhotoEmpty(),
            group.subscribers,
            group.created,
            1,
            deactivated=None if moved_to is None else True,
            migrated_to=None if moved_to is None else types.InputChannel(moved_to.channel_id, 0),
        )

    def chats(self, *channels: Channel) -> list[Any]:
        """Return several channels as this account sees them."""
        return [self.chat(channel) for channel in channels]

    def config(self) -> Any:
        """Return the configuration; all data centres are this server."""
        now = int(self.backend.now())
        return types.Config(
            now,
            now + 3_600,
            False,
            DC,
            [types.DcOption(dc, HOST, self.port, static=True) for dc in range(1, 6)],
            "",
            *_CONFIG_NUMBERS,
            "https://t.me/",
            1_024,
            4_096,
            DC,
        )


# From `chat_size_max` to `call_packet_timeout_ms`, in the order of the protocol; no client of ours looks at them.
_CONFIG_NUMBERS = (
    *(200, 200_000, 100, 210_000, 5_000, 30_000, 300_000, 30_000, 1_500, 60_000, 2, 172_800, 172_800, 172_800),
    *(2_419_200, 200, 604_800, 20_000, 90_000, 30_000, 10_000),
)
