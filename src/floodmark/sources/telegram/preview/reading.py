"""One run over one channel through its web preview: turns a plan into batches.

The preview pages only from newer posts to older ones. So a run reads windows of ids in ascending order, each from its
end back to its beginning: posts are stored oldest first, memory is bounded by a window, and an interrupted run loses at
most one window.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from floodmark.errors import Gone, Permanent, SlowDown, Transient
from floodmark.model.batch import Batch, Item
from floodmark.observability.events import FetchTimed
from floodmark.rules.streams import default_stream
from floodmark.sources.port import Context
from floodmark.sources.telegram.id_order import require_same_ids
from floodmark.sources.telegram.plans import ChannelMark, ReadingPlan, UnfinishedRun, encode_mark, is_day_over

from .posts import items_of

if TYPE_CHECKING:
    from floodmark.sources.telegram.services import TelegramServices

    from .pages import PreviewPage, ShownPost

# Ids of a window. The first one is a page, so that every run makes progress however few requests it may send.
_FIRST_WINDOW, _WINDOW, _WIDEST_WINDOW = 20, 100, 2000
# Windows with fewer posts grow.
_FEW_POSTS = 50
# After this many pages the execution gives its slot to others and continues.
_SLICE = 100
_GO_ON = timedelta(seconds=1)


class PreviewReading:
    """Reads a channel according to a plan, and tracks the position and the counts."""

    def __init__(
        self, services: "TelegramServices", plan: ReadingPlan, mark: ChannelMark, context: Context, *, target: str
    ) -> None:
        assert services.preview is not None
        self._services, self._client, self._plan, self._context = services, services.preview, plan, context
        self._target, self._name, self.mark = target, target.removeprefix("@"), mark
        run = mark.run if plan.is_resumed else None
        self._run = run or UnfinishedRun(execution=context.execution_id, mode=plan.mode)
        if self._run.execution != context.execution_id:
            # Another execution continues the run: the counts of the first one are in its own result.
            self._run = replace(self._run, execution=context.execution_id, parsed=0, requests=0)
        self._earlier, self._asked = self._run.requests, 0
        self._known_upto = mark.id
        self.parsed = 0

    @property
    def result(self) -> dict[str, Any]:
        """Return the result of the execution."""
        newest = self.mark.date
        return {
            "mode": self._plan.mode,
            "parsed_count": self._run.parsed,
            "max_message_date": None if newest is None else newest.isoformat().replace("+00:00", "Z"),
            "requests": self._requests,
            "preview": True,
        }

    @property
    def _requests(self) -> int:
        return self._earlier + self._asked

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield new posts, oldest first."""
        newest = await self._page()
        if not newest.posts:
            return
        self._pin(newest)
        start = await self._find_start(newest)
        self._run = replace(self._run, at=start)
        if self.mark.id is not None and self.mark.date is not None and start == self.mark.id:
            posted = ((number, post.date) for post in newest.posts for number in post.ids)
            require_same_ids(posted, (self.mark.id, self.mark.date), self._target)
        at, top, window = start, newest.highest, _FIRST_WINDOW
        while at < top:
            if self._asked >= _SLICE:
                raise SlowDown(_GO_ON, None, f"{self._target} continues at message {at + 1}")
            end = min(top, at + window)
            posts = await self._read_window(at, end, newest if end == top else None)
            is_past = self._is_past(posts)
            posts = [post for post in posts if not self._is_after_end(post.date)]
            if end < top and posts and not is_past and posts[-1].ids[0] - 1 > at:
                # The window may cut an album: its messages are read together with the next window.
                end = posts.pop().ids[0] - 1
            at = top if is_past else end
            yield await self._batch(posts, end, is_over=at == top, is_past=is_past)
            window = _WINDOW if len(posts) >= _FEW_POSTS else min(2 * window, _WIDEST_WINDOW)
        if self.mark.id is None or self.mark.run is not None:
            yield await self._batch((), at, is_over=True, is_past=False)

    def _pin(self, page: "PreviewPage") -> None:
        """Require that the name still belongs to the channel that was read before."""
        if page.channel_id is None:
            raise Permanent(
                f"the preview of {self._target} does not contain the number of the channel",
                hint="Its form may have changed: read the channel with an account",
            )
        if self.mark.channel not in (None, page.channel_id):
            raise Gone(
                f"{self._target} is no longer the name of channel {self.mark.channel}, but of {page.channel_id}",
                hint="Add the channel under its new name, or read it with an account, which finds renamed channels",
            )
        self.mark = replace(self.mark, channel=page.channel_id)
        if page.name is not None and page.name.lower() == self._name:
            # As the channel writes it.
            self._name = page.name

    async def _page(self, before: int | None = None) -> "PreviewPage":
        self._asked += 1
        began = time.monotonic()
        page = await self._client.page(self._name, before)
        dates = [post.date for post in page.posts if post.date is not None]
        lag = (self._services.clock.now() - dates[-1]).total_seconds() if dates and before is None else None
        self._services.events.emit(FetchTimed(chat=self._target, seconds=time.monotonic() - began, lag=lag))
        if before is not None and page.channel_id not in (None, self.mark.channel):
            raise Transient(f"the name {self._target} has passed to another channel during the run")
        return page

    async def _find_start(self, newest: "PreviewPage") -> int:
        """Return the id after which the run starts: the oldest of those in the plan."""
        plan, starts = self._plan, list[int]()
        if plan.after is not None:
            starts.append(plan.after)
        if plan.since is not None:
            starts.append(await self._id_before(plan.since, newest))
        if plan.newest is not None:
            # Numbers of deleted messages count too: to count messages, all pages would have to be read.
            starts.append(max(0, newest.highest - plan.newest))
        return min(starts)

    async def _id_before(self, moment: datetime, newest: "PreviewPage") -> int:
        """Return an id after which all posts since that moment follow, by halving the history."""
        # All messages up to `low` are older, all messages above `high` are not.
        low, high, upto, page = 0, newest.highest, newest.highest, newest
        while True:
            earlier = [post.ids[-1] for post in page.posts if post.date is not None and post.date < moment]
            later = [post.ids[0] for post in page.posts if post.date is not None and post.date >= moment]
            if earlier and later:
                return max(earlier)
            if later:
                high = page.lowest - 1 if page.has_older else low
            else:
                low = upto
            if low >= high:
                return low
            upto = (low + high + 1) // 2
            page = await self._page(upto + 1)

    async def _read_window(self, at: int, end: int, newest: "PreviewPage | None") -> list["ShownPost"]:
        """Return the posts with ids above `at` and up to `end`, in order."""
        page = newest or await self._page(end + 1)
        found = {post.ids: post for post in page.posts}
        while page.posts and page.lowest > at + 1 and page.has_older:
            before = page.lowest
            page = await self._page(before)
            if page.posts and page.lowest >= before:
                raise Transient(f"the preview of {self._target} repeats the posts before message {before}")
            found |= {post.ids: post for post in page.posts}
        inside = [post for post in found.values() if at < post.ids[-1] and post.ids[0] <= end]
        return sorted(inside, key=lambda post: post.ids)

    def _is_after_end(self, date: datetime | None) -> bool:
        until = self._plan.until
        return until is not None and date is not None and date >= until

    def _is_past(self, posts: Sequence["ShownPost"]) -> bool:
        return any(self._is_after_end(post.date) for post in posts)

    async def _batch(self, posts: Sequence["ShownPost"], upto: int, *, is_over: bool, is_past: bool) -> Batch:
        at, channel = self._run.at, self.mark.channel
        assert channel is not None
        items = [item for post in posts for item in items_of(post, channel, self._name)]
        items = [item for item in items if at < item.data["id"] <= upto]
        self._advance(items, upto, is_past=is_past)
        until = self._plan.until
        if is_over and until is not None and not self.mark.complete:
            self.mark = replace(self.mark, complete=is_day_over(until, self._services.clock.now()))
        self._run = replace(self._run, requests=self._requests)
        self.mark = replace(self.mark, run=None if is_over else self._run)
        return Batch(
            await self._drop_known(items),
            encode_mark(self.mark),
            stream=self.stream,
            is_backfill=self._run.mode == "historical",
        )

    def _advance(self, items: Sequence[Item], upto: int, *, is_past: bool) -> None:
        count = sum(item.data["id"] > (self._known_upto or 0) for item in items)
        self.parsed += count
        self._run = replace(self._run, at=upto, parsed=self._run.parsed + count)
        if items:
            last = max(item.data["id"] for item in items)
            if self.mark.id is None or last > self.mark.id:
                dates = [item.occurred_at for item in items if item.occurred_at is not None]
                self.mark = replace(self.mark, id=last, date=max(dates, default=self.mark.date))
            self.mark = replace(self.mark, previewed=max(last, self.mark.previewed or 0))
        elif self.mark.id is None:
            self.mark = replace(self.mark, id=upto)
        if is_past:
            self.mark = replace(self.mark, complete=True)

    async def _drop_known(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items without those that are stored as they are; an account may have read more of them."""
        from .sameness import drop_known  # noqa: PLC0415 - slow to import

        stored = await self._services.collected.data(self.stream, [item.key for item in items])
        return drop_known(items, stored) if stored else items

    @property
    def stream(self) -> str:
        """Return the stream of the posts, which does not depend on the name of the channel."""
        return default_stream("telegram", str(self.mark.channel), self._context.tenant_id)
