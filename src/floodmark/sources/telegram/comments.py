"""Read the comments on the posts of a channel: they are messages of its discussion group. Imports Telethon.

The group is read like a channel, a hundred messages per request, instead of each thread by itself. A comment replies to
the copy of a post that Telegram has put into the group; other messages of the group are not stored.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from msgspec.structs import replace
from telethon.tl import types
from telethon.tl.functions.channels import GetFullChannelRequest

from floodmark.errors import Gone
from floodmark.model.batch import Item

from .channels import KnownChannel
from .dialogs import known_channel
from .history import ChannelHistory, MessagePage, read_pages
from .plans import CommentMark, ReadingPlan
from .services import TelegramServices
from .sessions import Session


class CommentPage(NamedTuple):
    """Comments, oldest first, and how far the group is read once they are stored."""

    items: Sequence[Item]
    mark: CommentMark
    messages: Sequence[Any] = ()


class DiscussionLookup:
    """Finds the discussion group of a channel."""

    def __init__(self, session: Session, services: TelegramServices, channel: KnownChannel) -> None:
        self._session, self._services, self._channel = session, services, channel
        self.requests = 0

    async def find(self, group: int | None) -> KnownChannel | None:
        """Return the group with this id as the account knows it, or else the one of the channel; None if it has none.

        `Gone` if the account cannot read it.
        """
        account = self._session.account.name
        known = await self._services.channels.find(account, channel_id=group) if group else None
        return known or await self._look_up()

    async def look_up_again(self, channel: KnownChannel) -> KnownChannel:
        """Return the group with a new access hash. `Gone` if the channel has none any more."""
        await self._services.channels.forget(channel.account, channel.channel_id)
        found = await self._look_up()
        if found is None or found.channel_id != channel.channel_id:
            raise Gone(f"group {channel.channel_id} is no longer the discussion group of the channel")
        return found

    async def _look_up(self) -> KnownChannel | None:
        self.requests += 1
        channel = self._channel
        request = GetFullChannelRequest(types.InputChannel(channel.channel_id, channel.access_hash))
        answer = await self._session.call(
            "channels.getFullChannel", request, target=str(channel.channel_id), channel_id=channel.channel_id
        )
        number = answer.full_chat.linked_chat_id
        if number is None:
            return None
        for chat in answer.chats:
            if chat.id == number and isinstance(chat, types.Channel) and chat.access_hash is not None:
                found = known_channel(channel.account, chat, chat.access_hash)
                await self._services.channels.store(found)
                return found
        raise Gone(f"the account cannot read the discussion group {number}")


class CommentReading:
    """Reads the comments on the posts of a channel. `mark` is None before the first time."""

    def __init__(
        self,
        session: Session,
        services: TelegramServices,
        channel: KnownChannel,
        *,
        mark: CommentMark | None,
        plan: ReadingPlan,
        with_raw: bool,
    ) -> None:
        self._session, self._services, self._channel = session, services, channel
        self.mark, self._plan, self._with_raw = mark, plan, with_raw
        self._lookup = DiscussionLookup(session, services, channel)
        self._history: ChannelHistory | None = None
        # From the copy of a post in the group to the number of the post; None for other messages.
        self._posts: dict[int, int | None] = {}

    @property
    def requests(self) -> int:
        """Return the number of requests so far."""
        return self._lookup.requests if self._history is None else self._history.requests

    async def pages(self) -> AsyncGenerator[CommentPage, None]:
        """Yield the comments that were not read yet, oldest first. `Gone` if the group cannot be read."""
        if self.mark is not None and self.mark.group == 0:
            return
        group = await self._lookup.find(None if self.mark is None else self.mark.group)
        if group is None:
            yield CommentPage((), CommentMark(group=0))
            return
        self._history = history = ChannelHistory(
            self._session,
            self._lookup,
            group,
            target=str(group.channel_id),
            services=self._services,
            with_raw=self._with_raw,
        )
        is_known = self.mark is not None and self.mark.group == group.channel_id
        start = self.mark.id if self.mark is not None and is_known else await self._find_start(history)
        mark = CommentMark(group=group.channel_id, id=start)
        async with aclosing(read_pages(history, start, is_incremental=is_known)) as pages:
            async for page in pages:
                mark = replace(mark, id=page.messages[-1].id)
                yield CommentPage(await self._comments(history, page), mark, page.messages)
        if self.mark is None or not is_known:
            yield CommentPage((), mark)

    async def _find_start(self, history: ChannelHistory) -> int:
        """Return where the first reading starts: the params of the job count for comments as for posts."""
        if self._plan.since is not None:
            return await history.id_before(self._plan.since)
        return 0 if self._plan.newest is None else await history.id_before_newest(self._plan.newest)

    async def _comments(self, history: ChannelHistory, page: MessagePage) -> list[Item]:
        """Return the items of a page that are comments, each with its post."""
        self._posts.update(_copied_posts(page.messages, self._channel.channel_id))
        roots = {message.id: root for message in page.messages if (root := _root_of(message)) is not None}
        unknown = sorted({root for root in roots.values() if root not in self._posts})
        for start in range(0, len(unknown), _AT_ONCE):
            some = unknown[start : start + _AT_ONCE]
            found = await history.messages(some)
            self._posts.update(dict.fromkeys(some))
            self._posts.update(_copied_posts(found.messages, self._channel.channel_id))
        comments = []
        for item in page.items:
            post = self._posts.get(roots.get(item.data["id"], 0))
            if post is not None:
                item.data["comment_on"] = {"channel_id": self._channel.channel_id, "id": post}
                comments.append(item)
        return comments


# The most messages per request.
_AT_ONCE = 100


def _copied_posts(messages: Sequence[Any], channel_id: int) -> Mapping[int, int]:
    """Return the numbers of the posts of a channel whose copies are among these messages."""
    found = dict[int, int]()
    for message in messages:
        header = getattr(message, "fwd_from", None)
        origin = getattr(header, "saved_from_peer", None)
        if isinstance(origin, types.PeerChannel) and origin.channel_id == channel_id and header is not None:
            number = header.saved_from_msg_id or header.channel_post
            if number is not None:
                found[message.id] = number
    return found


def _root_of(message: Any) -> int | None:
    """Return the first message of the thread that a message belongs to."""
    header = getattr(message, "reply_to", None)
    if not isinstance(header, types.MessageReplyHeader) or header.reply_to_peer_id is not None:
        return None
    root: int | None = header.reply_to_top_id or header.reply_to_msg_id
    return root
