"""The history of one channel, as one account can ask for it. Counts its requests. Imports Telethon."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from telethon.tl import types
from telethon.tl.functions.channels import GetMessagesRequest
from telethon.tl.functions.messages import GetHistoryRequest

from floodmark.errors import Gone
from floodmark.model.batch import Item
from floodmark.observability.events import FetchTimed

from .channels import KnownChannel
from .faults import Unknown
from .finding import Finder, seen_in
from .port import Ports
from .posts import items_of
from .sessions import HISTORY, Session

PAGE = 100
# Pages that may wait to be kept: enough to go on reading while a database writes to its disk.
_AHEAD = 3
# Pages that come this fast are kept several at a time, which costs a database much less than one by one; at first a
# page, and never more than was kept before.
_FAST_SECONDS, _AT_ONCE = 0.05, 4 * PAGE
# Of the event loop, until a request that was made is on the wire: it passes through a few tasks, ours and Telethon's.
_TURNS = 10
# Dates of neighbouring messages may be out of order by a little.
_SAME_TIME = timedelta(minutes=1)
# What a date can be in a request; nothing was posted outside.
_FIRST_DATE, _LAST_DATE = datetime(2000, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)


class MessagePage(NamedTuple):
    """Messages, oldest first, and the items they make.

    `is_fast`: they were there almost at once. `is_last`: there was nothing behind them.
    """

    messages: Sequence[Any]
    items: Sequence[Item]
    is_fast: bool = False
    is_last: bool = False


class ChannelHistory:
    """Reads a channel by id, upwards."""

    def __init__(self, session: Session, finder: Finder, channel: KnownChannel, *, target: str, ports: Ports) -> None:
        self._session, self._finder, self._target, self._ports = session, finder, target, ports
        self.channel = channel
        self._asked = 0
        self._last_read: tuple[int, datetime] | None = None
        self._is_looked_up = finder.has_asked

    @property
    def requests(self) -> int:
        """How many were made, those to find the channel among them."""
        return self._asked + self._finder.requests

    def expect(self, message_id: int, date: datetime) -> None:
        """Name the newest message that was read before: the next page raises `Gone` if ids begin again below it."""
        self._last_read = (message_id, date)

    async def page(self, after: int) -> list[Any]:
        """The first messages behind an id, oldest first; an empty list at the end of the history."""
        began = time.monotonic()
        last_read, self._last_read = self._last_read, None
        # One place of the page for the newest message up to `after`: it tells whether ids are still those we know.
        found = await self._history(offset_id=after + 1, add_offset=-PAGE + (last_read is not None), limit=PAGE)
        if last_read is not None:
            _require_same_ids(found, last_read, self._target)
        seconds = time.monotonic() - began
        # Whatever the server thinks of offsets: an id that was read must not come twice, or there is no end.
        if found and found[0].id <= after:
            found = [message for message in found if message.id > after]
        lag = (self._ports.clock.now() - found[-1].date).total_seconds() if found and found[-1].date else None
        self._ports.events.emit(FetchTimed(chat=self._target, seconds=seconds, lag=lag))
        return found

    async def before_newest(self, count: int) -> int:
        """The id behind which the newest so many messages are, or all if there are not so many."""
        found = await self._history(add_offset=count - 1, limit=1)
        return found[0].id - 1 if found else 0

    async def before(self, moment: datetime) -> int:
        """The id behind which everything from that moment on is."""
        if moment < _FIRST_DATE:
            return 0
        # The last message before the moment and the first one from it on.
        found = await self._history(offset_date=min(moment, _LAST_DATE), add_offset=-1, limit=2)
        for message in found:
            if message.date is not None and message.date >= moment:
                return int(message.id) - 1
        return found[-1].id if found else 0

    async def by_ids(self, ids: Sequence[int]) -> Sequence[Any]:
        """These messages as they are now; one that is gone comes as an empty one."""
        wanted = [types.InputMessageID(message_id) for message_id in ids]
        answer = await self._ask(
            "channels.getMessages",
            lambda: GetMessagesRequest(types.InputChannel(self.channel.channel_id, self.channel.access_hash), wanted),
        )
        found: Sequence[Any] = answer.messages
        return found

    async def _history(
        self, *, offset_id: int = 0, offset_date: datetime | None = None, add_offset: int, limit: int
    ) -> list[Any]:
        def request() -> Any:
            return GetHistoryRequest(
                peer=types.InputPeerChannel(self.channel.channel_id, self.channel.access_hash),
                offset_id=offset_id,
                offset_date=offset_date,
                add_offset=add_offset,
                limit=limit,
                max_id=0,
                min_id=0,
                hash=0,
            )

        answer = await self._ask(HISTORY, request)
        return list(reversed(answer.messages))

    async def _ask(self, method: str, request: Callable[[], Any]) -> Any:
        try:
            answer = await self._send(method, request)
        except Unknown:
            if self._is_looked_up:
                raise
            # What we remembered of it is out of date.
            self._is_looked_up = True
            self.channel = await self._finder.look_up_again(self.channel)
            answer = await self._send(method, request)
        await self._notice(answer)
        return answer

    async def _send(self, method: str, request: Callable[[], Any]) -> Any:
        self._asked += 1
        return await self._session.call(method, request(), target=self._target, channel_id=self.channel.channel_id)

    async def _notice(self, answer: Any) -> None:
        """A channel that was renamed tells so with every answer."""
        now = seen_in(answer, self.channel)
        if now is not None and now != self.channel:
            self.channel = now
            await self._ports.channels.remember(now)


def _require_same_ids(found: Sequence[Any], last_read: tuple[int, datetime], target: str) -> None:
    """Raise `Gone` if a message has a lower id than the newest one that was read, and was posted later.

    Ids of a channel only grow. If they begin again, everything new lies below the watermark and would never be read.
    """
    newest, date = last_read
    for message in found:
        if message.id <= newest and message.date is not None and message.date > date + _SAME_TIME:
            raise Gone(
                f"{target} numbers its messages from the beginning again: message {message.id} is from"
                f" {message.date:%Y-%m-%d %H:%M}, but message {newest} from {date:%Y-%m-%d %H:%M} was collected before",
                hint="Check that it is still the channel you want. `floodmark watermark reset` collects it from its"
                " first message; posts whose number was used before become new revisions. Then resume the job",
            )


async def pages(history: ChannelHistory, after: int) -> AsyncGenerator[MessagePage, None]:
    """The history behind an id, page by page. While some are being kept, the next are on their way.

    Each page is held back until it is known whether another follows. Pages that come fast, or faster than they are
    kept, come as one. What was read before an error comes first.
    """
    ahead: asyncio.Queue[MessagePage | Exception | None] = asyncio.Queue(_AHEAD)
    reading = asyncio.create_task(_read_ahead(history, after, ahead), name="read ahead")
    held: MessagePage | None = None
    told = 0
    try:
        while (came := await ahead.get()) is not None:
            if isinstance(came, Exception):
                if held is not None:
                    yield held
                raise came
            is_joined = came.is_fast or not ahead.empty()
            if held is not None and is_joined and len(held.messages) < min(told, _AT_ONCE):
                held = MessagePage([*held.messages, *came.messages], [*held.items, *came.items])
                continue
            if held is not None:
                told += len(held.messages)
                yield held
            held = came
        if held is not None:
            yield held._replace(is_last=True)
    finally:
        await _abandon(reading)


async def _read_ahead(
    history: ChannelHistory, after: int, ahead: "asyncio.Queue[MessagePage | Exception | None]"
) -> None:
    """Pages as long as there is room for them; at the end None, or what went wrong."""
    asking: asyncio.Task[list[Any]] | None = None
    try:
        began, messages = time.monotonic(), await history.page(after)
        while messages:
            is_fast, began = time.monotonic() - began < _FAST_SECONDS, time.monotonic()
            asking = asyncio.create_task(history.page(messages[-1].id), name="next page")
            await _give_way()
            items = items_of(messages, history.channel.channel_id, history.channel.username)
            await ahead.put(MessagePage(messages, items, is_fast))
            messages = await asking
        await ahead.put(None)
    except Exception as error:  # noqa: BLE001 - raised where the pages are read
        await ahead.put(error)
    finally:
        if asking is not None:
            await _abandon(asking)


async def _give_way() -> None:
    """Let the request for the next page leave: else it waits until this one is items, and we for its answer."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _abandon(reading: "asyncio.Task[Any]") -> None:
    reading.cancel()
    await asyncio.wait([reading])
    if not reading.cancelled():
        # Nobody will read it any more, whatever became of it.
        reading.exception()
