"""One run over one channel: turns a plan into batches. Imports Telethon."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from floodmark.errors import Gone, SlowDown, TargetDenied
from floodmark.model.batch import Batch, Item
from floodmark.model.completeness import Coverage
from floodmark.rules.intervals import count
from floodmark.rules.streams import default_stream
from floodmark.sources.collected_items import CollectedKey
from floodmark.sources.port import Context

from .channel_lookup import ChannelLookup
from .comments import CommentReading
from .completeness import coverage_of, fill_gaps
from .history import ChannelHistory, MessagePage, read_pages
from .plans import ChannelMark, ReadingPlan, UnfinishedRun, encode_mark, is_day_over, plan_comments
from .preview.sameness import drop_previewed
from .revisits import revisit
from .sampling import EngagementSampling, sightings
from .services import TelegramServices
from .sessions import Session
from .targets import TelegramParams
from .wanted_media import wanted_files


class ChannelReading:
    """Reads a channel according to a plan, and tracks the position and the counts."""

    def __init__(
        self,
        services: TelegramServices,
        session: Session,
        plan: ReadingPlan,
        mark: ChannelMark,
        context: Context,
        *,
        target: str,
        params: TelegramParams,
        points: tuple[timedelta, ...],
    ) -> None:
        self._services, self._session, self._plan, self._context = services, session, plan, context
        self._params, self._points = params, points
        self._target, self.mark = target, mark
        run = mark.run if plan.is_resumed else None
        self._run = run or UnfinishedRun(execution=context.execution_id, mode=plan.mode)
        if self._run.execution != context.execution_id:
            # Another execution continues the run: the counts of the first one are in its own result.
            self._run = replace(self._run, execution=context.execution_id, parsed=0, requests=0)
        self._earlier = self._run.requests
        self._known_upto = mark.id
        self._is_begun = plan.is_resumed
        self._tracks_changes = params.revisit is not None
        self._pts_before, self._messages = mark.pts, 0
        self.parsed = 0
        self._history: ChannelHistory | None = None
        self._comments: CommentReading | None = None
        self._comment_count = 0
        # The discussion group that new posts name.
        self._discussion: int | None = None
        self._has_read_posts = False

    @property
    def result(self) -> dict[str, Any]:
        """Return the result of the execution."""
        newest = self.mark.date
        comments = {"comments_count": self._comment_count} if self._params.comments else {}
        return {
            "mode": self._plan.mode,
            "parsed_count": self._run.parsed,
            **comments,
            "max_message_date": None if newest is None else newest.isoformat().replace("+00:00", "Z"),
            "requests": self._requests,
        }

    @property
    def _requests(self) -> int:
        readings = (self._history, self._comments)
        return self._earlier + sum(reading.requests for reading in readings if reading is not None)

    async def batches(
        self, *, revisit_from: datetime | None, changes_from: datetime | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Yield new posts, oldest first; then the current state of stored posts since `revisit_from`.

        Without it, they are those since `changes_from`, if any were edited or deleted since the last run.

        After an error the position is yielded before the error is raised, so that a run which may make only one call
        still makes progress.
        """
        if revisit_from is None:
            self._run = replace(self._run, phase="new")
        try:
            history = await self._find()
            if self._context.gaps:
                async for batch in self._fill(history):
                    yield batch
            if self._run.phase == "new":
                async for batch in self._read_new_posts(history, will_go_on=revisit_from is not None):
                    yield batch
                self._record_read(history)
                if revisit_from is None and self._has_changes(history):
                    revisit_from = changes_from
            if revisit_from is not None:
                async for batch in self._revisit(history, revisit_from):
                    yield batch
            self._has_read_posts = True
            async for batch in self._read_further(history):
                yield batch
        except Exception as error:
            if self._is_ahead:
                yield self._batch((), is_over=False)
            if isinstance(error, SlowDown):
                raise SlowDown(error.after, error.key, f"{error.reason}{self._describe_position()}") from error
            raise

    @property
    def _is_ahead(self) -> bool:
        """Whether the position of the run differs from that of the last batch."""
        if self._has_read_posts:
            return False
        run = self.mark.run
        stored = (self.mark.id, "new") if run is None else (run.at, run.phase)
        return self._is_begun and stored != (self._run.at, self._run.phase)

    def _describe_position(self) -> str:
        if self._has_read_posts:
            return ", continues after the posts"
        if self._run.phase == "revisit":
            return ", continues to look for edits"
        return f", continues at message {self._run.at + 1}" if self._is_begun and self._run.at else ""

    async def _find(self) -> ChannelHistory:
        lookup = ChannelLookup(self._session, self._services.channels, target=self._target, pinned=self.mark.channel)
        channel = await lookup.find()
        self._history = ChannelHistory(
            self._session, lookup, channel, target=self._target, services=self._services, with_raw=self._params.raw
        )
        self.mark = replace(self.mark, channel=channel.channel_id)
        return self._history

    async def _find_start(self, history: ChannelHistory) -> int:
        """Return the id after which the run starts: the oldest of those in the plan."""
        plan, starts = self._plan, list[int]()
        if plan.after is not None:
            starts.append(plan.after)
        if plan.since is not None:
            starts.append(await history.id_before(plan.since))
        if plan.newest is not None:
            starts.append(await history.id_before_newest(plan.newest))
        return min(starts)

    async def _read_new_posts(self, history: ChannelHistory, *, will_go_on: bool) -> AsyncGenerator[Batch, None]:
        """Yield new posts; in the first run in a takeout session, if the job wants one."""
        if not self._params.takeout:
            async for batch in self._read_new(history, will_go_on=will_go_on):
                yield batch
            return
        from .takeouts import Takeout, finish_takeout  # noqa: PLC0415 - only some jobs use it

        accounts = self._services.accounts
        is_first = self._plan.mode == "historical" and (self._known_upto is None or self._plan.is_resumed)
        if not is_first:
            # The process may have been killed before it ended the session of the first run.
            await finish_takeout(self._session, accounts, target=self._target)
            async for batch in self._read_new(history, will_go_on=will_go_on):
                yield batch
            return
        async with Takeout(self._session, accounts, target=self._target) as takeout:
            with history.inside(takeout):
                async for batch in self._read_new(history, will_go_on=will_go_on):
                    yield batch
            await takeout.finish()

    async def _read_new(self, history: ChannelHistory, *, will_go_on: bool) -> AsyncGenerator[Batch, None]:
        start = await self._find_start(history)
        self._run, self._is_begun = replace(self._run, at=start), True
        if self.mark.id is not None and self.mark.date is not None and start == self.mark.id:
            history.expect(self.mark.id, self.mark.date)
        is_incremental = self._plan.mode == "incremental" and self.mark.id is not None
        async with aclosing(read_pages(history, start, is_incremental=is_incremental)) as pages:
            async for page in pages:
                messages, items, is_past = self._cut_at_end(page)
                is_last, before = page.is_last or is_past, self._run.at
                self._advance(messages, is_past=is_past)
                self._count(items)
                coverage = coverage_of(history, before, self._run.at, messages)
                items = await self._drop_previewed(items)
                yield self._batch(items, messages, is_over=is_last and not will_go_on, coverage=coverage)
                if is_last:
                    return
        if self.mark.id is None or self.mark.run is not None:
            # Nothing to read, but the next run now knows where to start; or an interrupted run has ended.
            self.mark = replace(self.mark, id=start if self.mark.id is None else self.mark.id)
            if not will_go_on:
                yield self._batch((), is_over=True)

    async def _fill(self, history: ChannelHistory) -> AsyncGenerator[Batch, None]:
        """Yield what is in the gaps of the ledger. The watermark stays."""
        found = deleted = 0
        account = self._session.account
        parts = fill_gaps(history, self._services.collected, self.stream, self._context.gaps)
        async with aclosing(parts) as filled:
            async for part in filled:
                found, deleted = found + len(part.items), deleted + count(part.coverage.deleted)
                self._context.result["filled"] = {"found": found, "deleted": deleted}
                yield Batch(
                    part.items,
                    stream=self.stream,
                    tenant_id=account.tenant_id,
                    user_id=account.user_id,
                    files=wanted_files(part.messages, part.items, self._params.media_rules),
                    is_backfill=True,
                    coverage=part.coverage,
                )

    def _record_read(self, history: ChannelHistory) -> None:
        """Record that all posts were read, unless the plan has an end."""
        if history.pts is not None and self._plan.until is None:
            self._services.updates.record_read(history.channel.channel_id, self._target, history.pts)

    def _has_changes(self, history: ChannelHistory) -> bool:
        """Return whether the update counter has grown by more than the new posts: an edit or a deletion."""
        accounted = self._accounted_pts(history)
        return accounted is not None and history.pts is not None and history.pts > accounted

    def _accounted_pts(self, history: ChannelHistory) -> int | None:
        """Return the update counter up to which the posts that were read account for all updates."""
        if history.pts is None:
            return self._pts_before
        if self._pts_before is None or self._plan.mode == "historical" or self._run.phase == "revisit":
            return history.pts
        return min(history.pts, self._pts_before + self._messages)

    def _count(self, items: Sequence[Item]) -> None:
        """Count the items after the watermark; the others were read before."""
        known = self._known_upto or 0
        is_all_new = bool(items) and items[0].data["id"] > known
        count = len(items) if is_all_new else sum(item.data["id"] > known for item in items)
        self.parsed += count
        self._run = replace(self._run, parsed=self._run.parsed + count)
        if self._params.comments:
            groups = (item.data["discussion"] for item in reversed(items) if "discussion" in item.data)
            self._discussion = next(groups, self._discussion)

    def _cut_at_end(self, page: MessagePage) -> tuple[Sequence[Any], Sequence[Item], bool]:
        """Return the messages and items before the end of the plan, and whether there were later ones."""
        until, newest = self._plan.until, page.messages[-1].date
        if until is None or newest is None or newest < until:
            return page.messages, page.items, False
        messages = [message for message in page.messages if message.date is None or message.date < until]
        items = [item for item in page.items if item.occurred_at is None or item.occurred_at < until]
        return messages, items, True

    def _advance(self, messages: Sequence[Any], *, is_past: bool) -> None:
        self._messages += len(messages)
        if messages:
            last = messages[-1]
            self._run = replace(self._run, at=last.id)
            if self.mark.id is None or last.id > self.mark.id:
                dates = (message.date for message in reversed(messages) if message.date is not None)
                self.mark = replace(self.mark, id=last.id, date=next(dates, self.mark.date))
        elif self.mark.id is None:
            self.mark = replace(self.mark, id=self._run.at)
        if is_past:
            self.mark = replace(self.mark, complete=True)

    async def _revisit(self, history: ChannelHistory, since: datetime) -> AsyncGenerator[Batch, None]:
        began = self._run.began if self._run.phase == "revisit" else None
        after = None
        if began is not None and self._run.key is not None and self._run.date is not None:
            after = CollectedKey(key=self._run.key, occurred_at=self._run.date)
        began = began or self._services.clock.now()
        self._run = replace(self._run, phase="revisit", began=began)
        is_done = False
        async for page in revisit(
            history, self._services.collected, self.stream, since=since, after=after, upto=self._known_upto
        ):
            is_done = page.is_last
            self._run = replace(self._run, date=page.upto.occurred_at, key=page.upto.key)
            if is_done:
                self.mark = replace(self.mark, revisited_at=began)
            seen = sightings(page.items, self._services.clock.now())
            await self._services.engagement.store(self.stream, seen, self._points)
            items = await self._drop_previewed(page.items)
            yield self._batch(items, page.messages, is_over=is_done)
        if not is_done:
            self.mark = replace(self.mark, revisited_at=began)
            yield self._batch((), is_over=True)

    async def _drop_previewed(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items without posts that are stored from the web preview and show the same there."""
        upto = self.mark.previewed
        keys = [] if upto is None else [item.key for item in items if not item.deleted and item.data["id"] <= upto]
        if not keys:
            return items
        return drop_previewed(items, await self._services.collected.data(self.stream, keys))

    async def _read_further(self, history: ChannelHistory) -> AsyncGenerator[Batch, None]:
        """Yield what the job wants beyond the posts, which are stored by now."""
        if self._params.engagement is not None and self._params.day is None:
            async for batch in self._sample(history):
                yield batch
        if self._params.comments and self._params.day is None:
            async for batch in self._read_comments(history):
                yield batch

    async def _sample(self, history: ChannelHistory) -> AsyncGenerator[Batch, None]:
        sampling = EngagementSampling(self._services, history, self.stream, self._points)
        async with aclosing(sampling.steps(self.mark.sampled or {})) as steps:
            async for positions in steps:
                self.mark = replace(self.mark, sampled=dict(positions))
                yield self._batch((), is_over=True)

    async def _read_comments(self, history: ChannelHistory) -> AsyncGenerator[Batch, None]:
        """Yield new comments, when the posts are stored. A group that cannot be read does not fail the run."""
        mark = self.mark.comments
        if mark is not None and self._discussion not in (None, mark.group):
            # The channel has another group now, or has got its first one.
            mark = None
        self._comments = CommentReading(
            self._session,
            self._services,
            history.channel,
            mark=mark,
            plan=plan_comments(self._params, self._services.clock.now()),
            with_raw=self._params.raw,
        )
        try:
            async with aclosing(self._comments.pages()) as pages:
                async for page in pages:
                    self.mark = replace(self.mark, comments=page.mark)
                    self._comment_count += len(page.items)
                    batch = self._batch(page.items, page.messages, is_over=True)
                    yield replace(batch, stream=self._stream_of(page.mark.group), is_aside=True)
        except (Gone, TargetDenied) as error:
            account = self._session.account.name
            self._context.note(f"comments were not read: {error}. Join the discussion group with account {account}")
            if mark is None and self.mark.comments is not None:
                # Not the group of before: the next run looks for it again.
                self.mark = replace(self.mark, comments=None)
                yield self._batch((), is_over=True)
        if self.mark.comments is not None and self.mark.comments.group == 0:
            self._context.note("there are no comments: the channel has no discussion group")

    @property
    def stream(self) -> str:
        """Return the stream of the posts, which does not depend on the name of the channel."""
        return self._stream_of(self.mark.channel)

    def _stream_of(self, channel: int | None) -> str:
        tenant = self._context.tenant_id or self._session.account.tenant_id
        return default_stream("telegram", str(channel), tenant)

    def _batch(
        self,
        items: Sequence[Item],
        messages: Sequence[Any] = (),
        *,
        is_over: bool,
        coverage: Coverage | None = None,
    ) -> Batch:
        until = self._plan.until
        if is_over and until is not None and not self.mark.complete:
            self.mark = replace(self.mark, complete=is_day_over(until, self._services.clock.now()))
        if is_over and self._tracks_changes and self._history is not None:
            self.mark = replace(self.mark, pts=self._accounted_pts(self._history))
        self._run = replace(self._run, requests=self._requests)
        self.mark = replace(self.mark, run=None if is_over else self._run)
        account = self._session.account
        return Batch(
            items,
            encode_mark(self.mark),
            stream=self.stream,
            tenant_id=account.tenant_id,
            user_id=account.user_id,
            files=wanted_files(messages, items, self._params.media_rules),
            is_backfill=self._run.mode == "historical",
            coverage=coverage,
        )
