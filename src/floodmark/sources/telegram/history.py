"""Read the history of one channel with one account, and count the requests. Imports Telethon."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from telethon.tl import types
from telethon.tl.functions.channels import GetMessagesRequest
from telethon.tl.functions.messages import GetHistoryRequest
from telethon.tl.functions.messages import GetMessagesRequest as GetOwnMessagesRequest

from floodmark.model.batch import Item
from floodmark.observability.events import FetchTimed

from .channel_lookup import find_in_answer
from .channels import KnownChannel
from .faults import UnknownChannel
from .forum_topics import add_topics
from .id_order import require_same_ids
from .peer_names import PeerNames
from .posts import items_of
from .services import TelegramServices
from .sessions import HISTORY, Session

if TYPE_CHECKING:
    from .takeouts import Takeout

PAGE = 100
# In an incremental run a page with fewer messages is taken for the newest one, without a request for the next page. If
# the server has cut it short, the next run continues from the watermark.
_FULL_ENOUGH = PAGE // 2
# Pages that may wait to be stored: enough to continue reading while the database writes to its disk.
_AHEAD = 3
# Pages that arrive this fast are joined, because a database stores a few large batches faster than many small ones.
# The first batch is one page, and no batch is larger than all batches before it.
_FAST_SECONDS, _AT_ONCE = 0.05, 4 * PAGE
# Turns of the event loop until a request is on the wire: it passes through a few tasks of ours and of Telethon.
_TURNS = 10
# The dates that a request can contain; nothing was posted outside them.
_FIRST_DATE, _LAST_DATE = datetime(2000, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)


class MessagePage(NamedTuple):
    """Messages, oldest first, and their items. `is_fast`: they arrived almost at once. `is_last`: none follow."""

    messages: Sequence[Any]
    items: Sequence[Item]
    is_fast: bool = False
    is_last: bool = False


class FoundMessages(NamedTuple):
    """Messages of one answer, and the names of the peers in it."""

    messages: Sequence[Any]
    names: PeerNames


class Lookup(Protocol):
    """Finds a channel again, and counts its requests."""

    requests: int

    async def look_up_again(self, channel: KnownChannel) -> KnownChannel:
        """Return the channel with an access hash that is valid."""
        ...


class ChannelHistory:
    """Reads a channel in ascending order of ids, in a takeout session if there is one.

    `with_raw`: items contain the whole message.
    """

    def __init__(
        self,
        session: Session,
        lookup: Lookup,
        channel: KnownChannel,
        *,
        target: str,
        services: TelegramServices,
        with_raw: bool = False,
    ) -> None:
        self._takeout: Takeout | None = None
        self._session, self._lookup, self._target, self._services = session, lookup, target, services
        self._with_raw = with_raw
        self.channel = channel
        self.pts: int | None = None
        """The channel's update counter in the last answer: it grows with each post, edit and deletion."""
        self._asked = 0
        self._last_read: tuple[int, datetime] | None = None
        self._is_looked_up = lookup.requests > 0

    @property
    def requests(self) -> int:
        """Return the number of requests, including those that looked up the channel."""
        return self._asked + self._lookup.requests

    def expect(self, message_id: int, date: datetime) -> None:
        """Set the newest message that was read before: the next page raises `Gone` if ids start again below it."""
        self._last_read = (message_id, date)

    @contextmanager
    def inside(self, takeout: "Takeout") -> Iterator[None]:
        """Make the calls in a takeout session during a block."""
        self._takeout = takeout
        try:
            yield
        finally:
            self._takeout = None

    async def items(self, found: FoundMessages) -> list[Item]:
        """Return the items of messages; deleted ones are left out."""
        channel = self.channel
        items = items_of(found.messages, channel.channel_id, channel.username, found.names, with_raw=self._with_raw)
        if found.names.is_forum(channel.channel_id):
            self._asked += await add_topics(items, found.messages, self._session, channel, self._services.topics)
        return items

    async def page(self, after: int) -> FoundMessages:
        """Return the first messages after an id, oldest first; none at the end of the history."""
        began = time.monotonic()
        last_read, self._last_read = self._last_read, None
        # One place of the page is for the newest message up to `after`, to check that ids did not start again.
        found, names = await self._history(offset_id=after + 1, add_offset=-PAGE + (last_read is not None), limit=PAGE)
        if last_read is not None:
            require_same_ids(((message.id, message.date) for message in found), last_read, self._target)
        seconds = time.monotonic() - began
        # An id must not be read twice, or reading would never end; do not rely on the server's use of offsets.
        if found and found[0].id <= after:
            found = [message for message in found if message.id > after]
        lag = (self._services.clock.now() - found[-1].date).total_seconds() if found and found[-1].date else None
        self._services.events.emit(FetchTimed(chat=self._target, seconds=seconds, lag=lag))
        return FoundMessages(found, names)

    async def id_before_newest(self, count: int) -> int:
        """Return the id after which the newest `count` messages follow; 0 if there are fewer."""
        found, _ = await self._history(add_offset=count - 1, limit=1)
        return found[0].id - 1 if found else 0

    async def id_before(self, moment: datetime) -> int:
        """Return the id after which all messages since that moment follow."""
        if moment < _FIRST_DATE:
            return 0
        # The last message before the moment and the first one since.
        found, _ = await self._history(offset_date=min(moment, _LAST_DATE), add_offset=-1, limit=2)
        for message in found:
            if message.date is not None and message.date >= moment:
                return int(message.id) - 1
        return found[-1].id if found else 0

    async def messages(self, ids: Sequence[int]) -> FoundMessages:
        """Return the messages with these ids as they are now; a deleted message is a `MessageEmpty`."""
        answer = await self._ask(method_for_messages(self.channel), lambda: request_messages(self.channel, ids))
        return FoundMessages(answer.messages, PeerNames(answer.users, answer.chats))

    async def _history(
        self, *, offset_id: int = 0, offset_date: datetime | None = None, add_offset: int, limit: int
    ) -> tuple[list[Any], PeerNames]:
        def request() -> Any:
            return GetHistoryRequest(
                peer=input_peer(self.channel),
                offset_id=offset_id,
                offset_date=offset_date,
                add_offset=add_offset,
                limit=limit,
                max_id=0,
                min_id=0,
                hash=0,
            )

        answer = await self._ask(HISTORY, request)
        self.pts = getattr(answer, "pts", None)
        return list(reversed(answer.messages)), PeerNames(answer.users, answer.chats)

    async def _ask(self, method: str, request: Callable[[], Any]) -> Any:
        try:
            answer = await self._send(method, request)
        except UnknownChannel:
            if self._is_looked_up:
                raise
            # The stored access hash is out of date.
            self._is_looked_up = True
            self.channel = await self._lookup.look_up_again(self.channel)
            answer = await self._send(method, request)
        # Every answer contains the current name of the channel, which may have been renamed.
        now = find_in_answer(answer, self.channel)
        if now is not None and now != self.channel:
            self.channel = now
            await self._services.channels.store(now)
        return answer

    async def _send(self, method: str, request: Callable[[], Any]) -> Any:
        self._asked += 1
        calls = self._takeout or self._session
        return await calls.call(method, request(), target=self._target, channel_id=self.channel.channel_id)


def input_peer(channel: KnownChannel) -> Any:
    """Return a channel as requests name it."""
    if channel.channel_id < 0:
        return types.InputPeerChat(-channel.channel_id)
    return types.InputPeerChannel(channel.channel_id, channel.access_hash)


def method_for_messages(channel: KnownChannel) -> str:
    """Return the method of `request_messages`."""
    return "messages.getMessages" if channel.channel_id < 0 else "channels.getMessages"


def request_messages(channel: KnownChannel, ids: Sequence[int]) -> Any:
    """Return the request for messages by their ids. Those of basic groups are numbered by account."""
    wanted = [types.InputMessageID(message_id) for message_id in ids]
    if channel.channel_id < 0:
        return GetOwnMessagesRequest(wanted)
    return GetMessagesRequest(types.InputChannel(channel.channel_id, channel.access_hash), wanted)


async def read_pages(
    history: ChannelHistory, after: int, *, is_incremental: bool = False
) -> AsyncGenerator[MessagePage, None]:
    """Yield the history after an id, page by page; the next pages are read while the caller stores a page.

    It ends at an empty page; an incremental run also ends at a page that is less than half full.

    Each page is held back until it is known whether another follows. Pages that arrive fast, or faster than they are
    stored, are joined. Pages that were read before an error are yielded before it is raised.
    """
    ahead: asyncio.Queue[MessagePage | Exception | None] = asyncio.Queue(_AHEAD)
    reading = asyncio.create_task(_read_ahead(history, after, ahead, is_incremental=is_incremental), name="read ahead")
    held: MessagePage | None = None
    yielded = 0
    try:
        while (came := await ahead.get()) is not None:
            if isinstance(came, Exception):
                if held is not None:
                    yield held
                raise came
            is_joined = came.is_fast or not ahead.empty()
            if held is not None and is_joined and len(held.messages) < min(yielded, _AT_ONCE):
                held = MessagePage([*held.messages, *came.messages], [*held.items, *came.items])
                continue
            if held is not None:
                yielded += len(held.messages)
                yield held
            held = came
        if held is not None:
            yield held._replace(is_last=True)
    finally:
        await _abandon(reading)


async def _read_ahead(
    history: ChannelHistory,
    after: int,
    ahead: "asyncio.Queue[MessagePage | Exception | None]",
    *,
    is_incremental: bool,
) -> None:
    """Put pages into the queue while it has room; then None, or the error that ended the reading."""
    asking: asyncio.Task[FoundMessages] | None = None
    try:
        began, found = time.monotonic(), await history.page(after)
        while found.messages:
            is_fast, began = time.monotonic() - began < _FAST_SECONDS, time.monotonic()
            asking = None
            if not is_incremental or len(found.messages) >= _FULL_ENOUGH:
                asking = asyncio.create_task(history.page(found.messages[-1].id), name="next page")
                # Let the request for the next page leave first; it would wait until this page is converted otherwise.
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            await ahead.put(MessagePage(found.messages, await history.items(found), is_fast))
            if asking is None:
                break
            found = await asking
        await ahead.put(None)
    except Exception as error:  # noqa: BLE001 - raised again by `read_pages`
        await ahead.put(error)
    finally:
        if asking is not None:
            await _abandon(asking)


async def _abandon(reading: "asyncio.Task[Any]") -> None:
    reading.cancel()
    await asyncio.wait([reading])
    if not reading.cancelled():
        # Mark the exception as retrieved: asyncio would log it otherwise.
        reading.exception()
