"""The names of the users, channels and groups that an answer of Telegram mentions. Imports Telethon."""

from collections.abc import Iterable
from typing import Any

from telethon.tl import types

from .plain_values import peer_of


class PeerNames:
    """Describes users, channels and groups by number and, if an answer contains it, by name."""

    def __init__(self, users: Iterable[Any] = (), chats: Iterable[Any] = ()) -> None:
        self._users = {user.id: user for user in users}
        self._chats = {chat.id: chat for chat in chats}

    def describe(self, peer: Any) -> dict[str, Any]:
        """Return the number of a peer, and its `name` and `username` if they are known."""
        made = peer_of(peer)
        found = self._users.get(peer.user_id) if isinstance(peer, types.PeerUser) else self._chats.get(_number(peer))
        if found is None:
            return made
        if name := _name_of(found):
            made["name"] = name
        if username := _username_of(found):
            made["username"] = username
        made |= {flag: True for flag in _FLAGS if getattr(found, flag, None)}
        return made

    def is_forum(self, channel_id: int) -> bool:
        """Return whether a group has topics."""
        return bool(getattr(self._chats.get(channel_id), "forum", None))

    def username_of(self, user_id: int) -> str | None:
        """Return the username of a user."""
        user = self._users.get(user_id)
        return None if user is None else _username_of(user)


NO_NAMES = PeerNames()
_FLAGS = ("bot", "deleted", "verified", "scam", "fake")


def _number(peer: Any) -> int:
    return int(peer.channel_id if isinstance(peer, types.PeerChannel) else peer.chat_id)


def _name_of(found: Any) -> str:
    if title := getattr(found, "title", None):
        return str(title)
    names = (getattr(found, "first_name", None), getattr(found, "last_name", None))
    return " ".join(name for name in names if name)


def _username_of(found: Any) -> str | None:
    username: str | None = getattr(found, "username", None)
    # Collectible usernames are in a list instead; the first active one counts.
    others = (each.username for each in getattr(found, "usernames", None) or () if each.active)
    return username or next(others, None)
