"""The data of the server: accounts, channels, their messages and changes.

All methods may be called from any thread: one lock protects the data.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from telethon.tl import types

from floodmark.errors import Conflict, InvalidInput, NotFound

from . import media
from .history import History
from .makers import Kind, maker
from .raw import Raw
from .sessions import DC, Key, number, secret_for

# The number of updates that a channel keeps for clients that were away; others get `ChannelDifferenceTooLong`.
_UPDATES_KEPT = 1_000
_FIRST_CHANNEL, _FIRST_USER, _FIRST_PERSON, _FIRST_GROUP = 1_500_000_001, 700_000_001, 800_000_001, 400_000_001


@dataclass(frozen=True, slots=True)
class Account:
    """An account that can sign in."""

    name: str
    user_id: int
    phone: str
    code: str
    password: str | None


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """A change of a channel: the update counter after it, and the update that describes it."""

    pts: int
    pts_count: int
    update: Any
    message: Raw | None = None


class TelegramBackend:
    """Accounts and channels. The same seed gives the same keys, ids and texts.

    `skew` is the offset of the server's clock.
    """

    def __init__(self, seed: int = 7, *, skew: timedelta = timedelta()) -> None:
        self.seed, self.skew = seed, skew
        self.lock = threading.RLock()
        self.accounts: dict[str, Account] = {}
        # Users that write in groups.
        self.people: dict[int, Any] = {}
        self.channels: dict[int, Channel] = {}
        self.keys: dict[int, Key] = {}
        # Keys whose code was right but whose password is still missing.
        self.half_signed_in: dict[int, str] = {}
        # Contents of uploaded files, and the period in which references of files are valid.
        self.files: dict[int, bytes] = {}
        self.period = 0
        # Authorizations that were exported to another data centre.
        self.exported: dict[bytes, str] = {}
        # The open takeout session of each account, and how the finished ones ended.
        self.takeouts: dict[str, int] = {}
        self.finished_takeouts: list[tuple[str, bool]] = []
        self.listeners: list[Callable[[Channel, Any], None]] = []

    def now(self) -> float:
        """Return the server's time in seconds since 1970."""
        return time.time() + self.skew.total_seconds()

    def account(
        self, name: str, *, phone: str | None = None, code: str = "12345", password: str | None = None
    ) -> Account:
        """Add an account with a session, which `LoopbackTelegram.session` returns."""
        with self.lock:
            if name in self.accounts:
                raise Conflict(f"there is already an account {name}", hint="give it another name")
            nth = len(self.accounts)
            made = Account(name, _FIRST_USER + nth, _digits(phone or f"+1000000{nth + 1:04}"), code, password)
            self.accounts[name] = made
            self.remember(Key(secret_for(self.seed, name), name))
            return made

    def channel(
        self,
        username: str | None,
        *,
        title: str | None = None,
        about: str = "",
        members: Iterable[str] | None = None,
    ) -> "Channel":
        """Add a channel. Without a username it is private: only `members` (None: every account) can see it."""
        with self.lock:
            if username is not None and self.find_channel(username) is not None:
                raise Conflict(f"there is already a channel {username}", hint="give it another name")
            channel_id = _FIRST_CHANNEL + len(self.channels)
            made = Channel(self, channel_id, username, title or (username or "Private").title())
            made.about, made.members = about, None if members is None else set(members)
            self.channels[channel_id] = made
            return made

    def basic_group(self, title: str, *, members: Iterable[str] | None = None) -> "Channel":
        """Add a basic group, which has no username. Its number is negative, as collectors name it."""
        with self.lock:
            made = Channel(self, -(_FIRST_GROUP + len(self.channels)), None, title)
            made.is_group, made.members = True, None if members is None else set(members)
            self.channels[made.channel_id] = made
            return made

    def upload(
        self,
        content: bytes,
        *,
        name: str = "report.pdf",
        mime: str = "application/pdf",
        has_thumb: bool = False,
        dc: int = DC,
    ) -> Any:
        """Add a file and return it as media of a message. The same content uploaded again is another file."""
        with self.lock:
            media_id = number(self.seed, "upload", len(self.files))
            self.files[media_id] = content
            return media.uploaded(media_id, len(content), name=name, mime=mime, has_thumb=has_thumb, dc=dc)

    def expire_references(self) -> None:
        """Make the references of all files invalid; messages that are read from now on have new ones."""
        with self.lock:
            self.period += 1

    def end_takeout(self, account: str) -> None:
        """End the takeout session of an account, as the server does after some days: it is invalid then."""
        with self.lock:
            self.takeouts.pop(account, None)

    def person(self, first_name: str, last_name: str | None = None, *, username: str | None = None) -> Any:
        """Add a user who can write in groups, and return it as a peer."""
        with self.lock:
            user_id = _FIRST_PERSON + len(self.people)
            user = types.User(
                user_id, first_name=first_name, last_name=last_name, username=username, access_hash=user_id
            )
            self.people[user_id] = user
            return types.PeerUser(user_id)

    def find_channel(self, username: str) -> "Channel | None":
        """Return the channel with this username, ignoring case."""
        wanted = username.lower().removeprefix("@")
        return next((c for c in self.channels.values() if c.username and c.username.lower() == wanted), None)

    def get_account(self, name: str) -> Account:
        """Return the account with this name."""
        if name not in self.accounts:
            raise NotFound(f"there is no account {name}", hint=f"there are: {', '.join(self.accounts) or 'none'}")
        return self.accounts[name]

    def remember(self, key: Key) -> Key:
        """Add a key."""
        self.keys[key.key_id] = key
        return key

    def access_hash(self, account: str, channel_id: int) -> int:
        """Return the access hash of a channel for an account; it differs between accounts."""
        return number(self.seed, "access", account, channel_id)

    def notify(self, channel: "Channel", update: Any) -> None:
        """Notify all listeners of a change."""
        for listener in tuple(self.listeners):
            listener(channel, update)


class Channel:
    """A channel and its history. Created by `TelegramBackend.channel`."""

    def __init__(self, backend: TelegramBackend, channel_id: int, username: str | None, title: str) -> None:
        self.backend, self.channel_id = backend, channel_id
        self.username, self.title, self.about = username, title, ""
        self.subscribers = 100 + number(backend.seed, channel_id, "subscribers") % 90_000
        self.members: set[str] | None = None
        # In a group its members write.
        self.is_group = False
        # Whether its web preview is public.
        self.has_preview = True
        # The titles of the topics of a forum; None for other groups.
        self.topics: dict[int, str] | None = None
        # The discussion group of a channel, or the channel of a discussion group; and its copies of posts.
        self.linked: Channel | None = None
        self._copies: dict[int, int] = {}
        # The supergroup that a basic group has become.
        self.moved_to: Channel | None = None
        # Channels that its messages were forwarded from.
        self.origins: dict[int, Channel] = {}
        self.created = int(backend.now()) - 86_400 * 365
        self.history = History()
        self.pts = 1
        # Seconds since 1970 of the server's clock when `pts` moved last.
        self.moved_at = 0
        self.changes: deque[ChannelChange] = deque(maxlen=_UPDATES_KEPT)
        self._chance = Random(f"{backend.seed}:{channel_id}")  # noqa: S311 - a likeness, not a secret

    @property
    def peer(self) -> Any:
        """Return the channel as a peer object."""
        return types.PeerChat(-self.channel_id) if self.is_basic else types.PeerChannel(self.channel_id)

    @property
    def is_basic(self) -> bool:
        """Return whether it is a basic group."""
        return self.channel_id < 0

    def become_supergroup(self) -> "Channel":
        """Replace a basic group by a supergroup, and return that. The old messages stay in the basic group."""
        with self.backend.lock:
            made = self.backend.channel(None, title=self.title, members=self.members)
            made.is_group, self.moved_to = True, made
            return made

    def is_open_to(self, account: str) -> bool:
        """Return whether an account can read it."""
        return self.username is not None or self.members is None or account in self.members

    def has_member(self, account: str) -> bool:
        """Return whether an account has it among its dialogs and gets its updates."""
        return self.members is None or account in self.members

    def fill(
        self,
        count: int,
        *,
        start: datetime | None = None,
        every: timedelta = timedelta(minutes=3),
        kind: Kind = "lifelike",
        gaps: float = 0.0,
    ) -> None:
        """Append messages to the history without updates to clients.

        They are generated on demand, so a hundred thousand cost little. `gaps` is the share of deleted ids.
        """
        step = every.total_seconds()
        begin = start.timestamp() if start is not None else self.backend.now() - step * count
        self.fill_at([int(begin + step * index) for index in range(count)], kind=kind, gaps=gaps)

    def fill_at(self, dates: Sequence[int], *, kind: Kind = "lifelike", gaps: float = 0.0) -> None:
        """Append messages with these dates, in seconds since 1970."""
        with self.backend.lock:
            skipped = [self._chance.random() < gaps for _ in dates] if gaps else ()
            self.history.fill(dates, maker(kind, self.backend.seed, self.channel_id), skipped)
            self.pts += len(dates)

    def post(self, text: str, *, date: datetime | None = None, **fields: Any) -> int:
        """Post a message now and return its id; `fields` are those of Telethon's `Message`."""
        with self.backend.lock:
            usual = {"post": True, "views": 1, "forwards": 0}
            if self.is_group:
                usual = {}
            elif self.linked is not None:
                usual["replies"] = types.MessageReplies(0, 1, comments=True, channel_id=self.linked.channel_id)
            message = types.Message(self.history.top + 1, self.peer, self._seconds(date), text, **{**usual, **fields})
            self._note_origin(message)
            message_id = self._append(message)
            if self.linked is not None and not self.is_group:
                self._copies[message_id] = self.linked.copy(self, message)
            return message_id

    def discuss_in(self, group: "Channel") -> None:
        """Make a group the discussion group: it gets a copy of each post, and its members can comment on it."""
        with self.backend.lock:
            group.is_group = True
            self.linked, group.linked = group, self

    def comment(self, post_id: int, text: str, *, author: Any = None, reply_to: int | None = None) -> int:
        """Comment on a post, or reply to a comment on it, and return the id in the discussion group."""
        group, root = self.linked, self._copies[post_id]
        assert group is not None
        if reply_to is None:
            header = types.MessageReplyHeader(reply_to_msg_id=root)
        else:
            header = types.MessageReplyHeader(reply_to_msg_id=reply_to, reply_to_top_id=root)
        return group.post(text, from_id=author, reply_to=header)

    def copy(self, channel: "Channel", message: Any) -> int:
        """Post the copy of a post that Telegram puts into the discussion group, and return its id."""
        header = types.MessageFwdHeader(
            message.date,
            from_id=channel.peer,
            channel_post=message.id,
            saved_from_peer=channel.peer,
            saved_from_msg_id=message.id,
        )
        return self.post(message.message, media=message.media, fwd_from=header, from_id=channel.peer)

    def topic(self, title: str) -> int:
        """Begin a topic, which makes a group a forum, and return the number of the topic."""
        with self.backend.lock:
            self.is_group = True
            self.topics = self.topics or {1: "General"}
            if not self.history.top:
                # The number of the general topic belongs to the first message.
                self.service("", action=types.MessageActionChannelCreate(self.title))
            number = self.service("", action=types.MessageActionTopicCreate(title, 7_322_096))
            self.topics[number] = title
            return number

    def _note_origin(self, message: Any) -> None:
        origin = getattr(message.fwd_from, "from_id", None)
        found = self.backend.channels.get(getattr(origin, "channel_id", 0))
        if found is not None:
            self.origins[found.channel_id] = found

    def grow(self, *, date: datetime | None = None) -> int:
        """Post one more lifelike message now and return its id."""
        with self.backend.lock:
            if not self.history.has_maker:
                self.fill_at([])
            message_id = self.history.grow(self._seconds(date))
            self._notify_new(message_id)
            return message_id

    def album(self, texts: Sequence[str], *, date: datetime | None = None, **fields: Any) -> list[int]:
        """Post several photos as one album, each with its text, and return their ids."""
        with self.backend.lock:
            group = number(self.backend.seed, self.channel_id, "posted", self.history.top + 1)
            moment = date or self._now()
            return [
                self.post(text, date=moment, grouped_id=group, **{"media": self._photo(), **fields}) for text in texts
            ]

    def service(self, text: str, *, date: datetime | None = None, action: Any = None) -> int:
        """Post a service message and return its id."""
        with self.backend.lock:
            action = types.MessageActionCustomAction(text) if action is None else action
            return self._append(
                types.MessageService(self.history.top + 1, self.peer, self._seconds(date), post=True, action=action)
            )

    def edit(self, message_id: int, text: str | None = None, *, date: datetime | None = None, **fields: Any) -> None:
        """Change the text or other fields of a message; its edit date is now by default."""
        with self.backend.lock:
            message = self._require_message(message_id)
            changes = {"edit_date": self._seconds(date), **fields} | ({} if text is None else {"message": text})
            for name, value in changes.items():
                setattr(message, name, value)
            self.history.keep(message, 0)
            raw = self.history.raw(message_id)
            self._record_change(lambda pts: types.UpdateEditChannelMessage(raw, pts, 1))

    def delete(self, *message_ids: int) -> None:
        """Delete messages. Their ids are never used again."""
        with self.backend.lock:
            for message_id in message_ids:
                self._require_message(message_id)
            for message_id in message_ids:
                self.history.drop(message_id)
            gone = list(message_ids)
            self._record_change(
                lambda pts: types.UpdateDeleteChannelMessages(self.channel_id, gone, pts, len(gone)), len(gone)
            )

    def rename(self, username: str | None) -> None:
        """Change its username; the old one is free for others at once."""
        with self.backend.lock:
            if username is not None and self.backend.find_channel(username) not in (None, self):
                raise Conflict(f"there is already a channel {username}", hint="give it another name")
            self.username = username
            self.backend.notify(self, types.UpdateChannel(self.channel_id))

    def make_private(self, members: Iterable[str] = ()) -> None:
        """Remove its username and exclude all accounts except these: others get CHANNEL_PRIVATE."""
        with self.backend.lock:
            self.username, self.members = None, set(members)

    def ids(self) -> list[int]:
        """Return the ids of the existing messages, ascending."""
        with self.backend.lock:
            return list(self.history.ids)

    def message(self, message_id: int) -> Any | None:
        """Return a message as a Telethon object, or None if it is deleted or never existed."""
        with self.backend.lock:
            return self.history.message(message_id)

    def _append(self, message: Any) -> int:
        self.history.keep(message, message.date)
        self._notify_new(message.id)
        return int(message.id)

    def _notify_new(self, message_id: int) -> None:
        raw = self.history.raw(message_id)
        self._record_change(lambda pts: types.UpdateNewChannelMessage(raw, pts, 1), message=raw)

    def _record_change(self, make_update: Callable[[int], Any], count: int = 1, *, message: Raw | None = None) -> None:
        self.pts += count
        self.moved_at = int(self.backend.now())
        change = ChannelChange(self.pts, count, make_update(self.pts), message)
        if not self.is_basic:
            self.changes.append(change)
            self.backend.notify(self, change.update)

    def _require_message(self, message_id: int) -> Any:
        message = self.history.message(message_id)
        if message is None:
            raise NotFound(f"no message {message_id} in {self.title}", hint="channel.ids() lists the messages")
        return message

    def _photo(self) -> Any:
        return media.photo(self.backend.seed, self.channel_id, self.history.top + 1)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.backend.now(), UTC)

    def _seconds(self, date: datetime | None) -> int:
        if date is None:
            return int(self.backend.now())
        if date.tzinfo is None:
            raise InvalidInput(f"{date} has no time zone", hint="datetime(..., tzinfo=UTC)")
        return int(date.timestamp())


def _digits(phone: str) -> str:
    return "".join(sign for sign in phone if sign.isdigit())
