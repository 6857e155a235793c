"""The source `feed`: the entries of an RSS, Atom or JSON feed, with one conditional request per run."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from floodmark.errors import Gone, InvalidInput, Permanent, SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.model.completeness import Coverage, GapKind, Trouble
from floodmark.outbound.client import HttpAnswer
from floodmark.rules.completeness import seconds_of
from floodmark.sources.port import Context, Target
from floodmark.sources.web.extraction.plan import require_packages
from floodmark.sources.web.targets import UrlSource
from floodmark.sources.web.urls import join_address, normalize_url, parse_start_url

from .params import FOLDER_HINT, NAMES, NO_FOLDER, FeedParams, parse_params

if TYPE_CHECKING:
    from floodmark.sources.web.feeds import Feed, FeedEntry

    from .following import Following

# Entries of one batch; fewer if their links are followed, which takes a second for each.
_BATCH, _FOLLOWED_BATCH = 100, 20
_NEWEST = 100
# What the watermark knows to ask for changes only.
_CONDITIONS = frozenset({"etag", "last_modified", "hash"})
_SHOWN_FAILURES = 10
# A larger feed is parsed in a thread.
_LARGE = 256 * 1024
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


class FeedSource(UrlSource):
    """Collects the entries of feeds."""

    kind = "feed"
    fills: frozenset[GapKind] = frozenset({"cut", "refused"})

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` is a URL and `params` are valid."""
        parse_start_url(target)
        parse_params(params)

    def param_names(self, target: str) -> frozenset[str]:
        """Return the parameters of a feed."""
        return NAMES

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield entries, oldest first. The store decides which of them are new or changed."""
        services = self._require_services()
        try:
            url, params = parse_start_url(target.name), parse_params(target.params)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        require_packages(params.plan.packages)
        if params.enclosures and services.settings.artifacts_dir is None:
            raise Permanent(NO_FOLDER, hint=FOLDER_HINT)
        return self._run(services, target, since or {}, context, url=url, params=params)

    async def _run(
        self, services: Services, target: Target, since: Watermark, context: Context, *, url: str, params: FeedParams
    ) -> AsyncGenerator[Batch, None]:
        from floodmark.sources.web.run_services import prepare_services  # noqa: PLC0415 - slow to import

        async with (
            prepare_services(services, (), params.proxy) as prepared,
            aclosing(self._batches(prepared, target, since, context, url=url, params=params)) as batches,
        ):
            async for batch in batches:
                yield batch

    async def _batches(
        self, services: Services, target: Target, since: Watermark, context: Context, *, url: str, params: FeedParams
    ) -> AsyncGenerator[Batch, None]:
        moved = _moved_to(since, url)
        if context.gaps:
            # All entries are read again, whatever the server says about changes.
            since = {name: value for name, value in since.items() if name not in _CONDITIONS}
        try:
            answer, first, found = await _fetch_or_discover(services, moved or url, since, url)
        except SlowDown:
            raise
        except SourceError as error:
            if moved is None:
                raise
            # The new URL may have been a mistake or has disappeared: use the job's own URL again.
            context.note(f"the feed is no longer at {moved} ({error}): back to {url}")
            moved, since = None, _keep_levels(since)
            answer, first, found = await _fetch_or_discover(services, url, since, url)
        if found is not None:
            context.note(f"the page {moved or url} names the feed {found}, which is used from now on")
            moved = found
        place = _find_move(answer, url, moved, context)
        if first is None:
            context.result["summary"] = "nothing new"
            # A 304 may omit the ETag: keep the known one.
            mark = since if answer.status == 304 else _keep_levels(since) | _make_mark(answer)
            if (mark := mark | place) != since:
                yield Batch([], mark)
            return
        now = services.clock.now()
        mark = _make_mark(answer) | place
        async with AsyncExitStack() as stack:
            following = None
            if params.full_text or params.enclosures:
                following = await stack.enter_async_context(_open_following(services, target, params))
            async for batch in self._slices(answer, first, since, mark, context, now=now, following=following):
                yield batch
            if following is not None:
                _report_following(following, context)
        if services.settings.api_public_url is not None:
            await _note_hub(services, target.name, answer, first)

    async def _slices(
        self,
        answer: HttpAnswer,
        feed: "Feed",
        since: Watermark,
        mark: Watermark,
        context: Context,
        *,
        now: datetime,
        following: "Following | None" = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield all entries of a feed in slices, so that any number fits into memory."""
        from .keys import Keys  # noqa: PLC0415 - slow to import

        keys, seen, count, apart = Keys(_levels(since)), 0, 0, 0
        window = _Window(now)
        size = _BATCH if following is None else _FOLLOWED_BATCH
        while True:
            seen += len(feed.entries) + feed.empty
            is_last = seen >= feed.total
            entries = keys.assign_keys(feed.entries, is_last=is_last)
            items = make_items(feed, answer.url, now, entries)
            count, apart = count + len(items), apart + sum(key != entry.id for key, entry in entries.items())
            _report_losses(feed, context)
            window.add(items)
            levels = {"levels": keys.levels} if keys.levels else {}
            newest = {item.key for item in items[-_NEWEST:]} if seen == len(feed.entries) + feed.empty else set()
            for start in range(0, len(items), size):
                # The mark moves only with the last batch; key levels are stored from the first one on.
                is_end = is_last and start + size >= len(items)
                so_far = {**since, **levels} if levels else None
                some = items[start : start + size]
                if following is not None:
                    some = await following.follow(some, newest)
                coverage = window.coverage(context, following) if is_end else None
                yield Batch(some, mark | levels if is_end else so_far, coverage=coverage)
            if is_last:
                break
            feed = await _parse(answer, skip=seen)
        context.result.update(summary=f"entries {count}", entries=count, title=feed.title)
        if apart:
            context.note(
                f"{apart:,} entries share an id with others and are distinguished by link, title, date and text"
            )
        if not items:
            yield Batch([], mark | levels, coverage=window.coverage(context, following))


class _Window:
    """The period of the entries that a poll found: all entries between the oldest and the newest one.

    Feeds drop old entries. If the oldest entry of a poll is newer than the newest one before, some may be missing.
    """

    def __init__(self, now: datetime) -> None:
        self._now, self._begin, self._end = now, now, _LONG_AGO

    def add(self, items: list[Item]) -> None:
        """Add entries; those without a date, or with one in the future, say nothing."""
        dates = [item.occurred_at for item in items if item.occurred_at is not None and item.occurred_at <= self._now]
        self._begin, self._end = min([self._begin, *dates]), max([self._end, *dates])

    def coverage(self, context: Context, following: "Following | None") -> Coverage | None:
        """Return what the poll says. A gap that it was to fill, and that it has not filled, is lost."""
        troubles = [] if following is None else _find_troubles(following)
        is_known = self._begin <= self._end
        lost = [(gap.first, gap.last) for gap in context.gaps if gap.first is not None and gap.last is not None]
        if lost:
            context.note("gaps are filled with the entries that the feed still has; the others cannot be obtained")
        return Coverage(
            axis="time",
            ranges=((seconds_of(self._begin), seconds_of(self._end)),) if is_known else (),
            begins_at=self._begin if is_known else None,
            ends_at=self._end if is_known else None,
            lost=lost,
            troubles=troubles,
            cleared=("refused", "bound"),
        )


def _find_troubles(following: "Following") -> list[Trouble]:
    made = []
    if following.failed:
        url, reason = next(iter(following.failed.items()))
        text = f"links that could not be read, such as {url}: {reason}"
        made.append(Trouble(kind="refused", reason=text, count=len(following.failed)))
    if following.not_followed:
        text = f"links that are not followed, because {_NEWEST} entries are newer"
        made.append(Trouble(kind="bound", reason=text, count=following.not_followed))
    return made


def _open_following(services: Services, target: Target, params: FeedParams) -> "Following":
    from .following import Following  # noqa: PLC0415 - slow to import

    return Following(services, target.stream, params, services.settings.artifacts_dir)


def _report_following(following: "Following", context: Context) -> None:
    if following.not_followed:
        context.note(
            f"entries whose links are not followed, because {_NEWEST} others are newer: {following.not_followed:,}"
        )
    for url, reason in list(following.failed.items())[:_SHOWN_FAILURES]:
        context.note(f"{url}: {reason}")
    if (more := len(following.failed) - _SHOWN_FAILURES) > 0:
        context.note(f"further links that could not be read: {more:,}")


async def _note_hub(services: Services, target: str, answer: HttpAnswer, feed: "Feed") -> None:
    """Store the hub of a feed. The leader subscribes there if the job is adaptive."""
    from .hubs import find_hub  # noqa: PLC0415 - slow to import
    from .subscriptions import FeedSubscriptions  # noqa: PLC0415

    await FeedSubscriptions(services.database, services.clock).note_hub(target, find_hub(answer, feed))


async def _fetch_or_discover(
    services: Services, url: str, since: Watermark, named: str
) -> tuple[HttpAnswer, "Feed | None", str | None]:
    """Fetch a feed. If the URL is that of a page, fetch the feed that the page names and return its URL too."""
    from .discovery import find_feeds, is_page  # noqa: PLC0415 - slow to import

    answer = await services.http.get(url, headers=_conditions(since))
    if answer.status != 200 or not is_page(answer):
        return *await _read(answer, url, since, named), None
    found = await asyncio.to_thread(find_feeds, answer)
    if not found:
        raise Permanent(
            f"{url} is not a feed, but a page that names none",
            hint=f"See the response with: floodmark try {named}; for pages use floodmark add web",
        )
    # Without conditions: those of the watermark may be of another URL.
    return *await _read(await services.http.get(found[0]), found[0], since, named), found[0]


async def _read(answer: HttpAnswer, url: str, since: Watermark, named: str) -> tuple[HttpAnswer, "Feed | None"]:
    """Return the response and the first slice of the feed, None if nothing is new."""
    if answer.status == 304:
        return answer, None
    if answer.status == 410:
        raise Gone(f"{url} is gone for good (status 410)", hint="Remove the job, or change its URL")
    if answer.status != 200:
        raise Permanent(
            f"{url} answers with status {answer.status}", hint=f"See the response with: floodmark try {named}"
        )
    if _make_mark(answer)["hash"] == since.get("hash"):
        return answer, None
    return answer, await _parse(answer, url=url)


async def _parse(answer: HttpAnswer, *, skip: int = 0, url: str | None = None) -> "Feed":
    if len(answer.body) > _LARGE:
        return await asyncio.to_thread(_parse_slice, answer, url or answer.url, skip=skip)
    return _parse_slice(answer, url or answer.url, skip=skip)


def _parse_slice(answer: HttpAnswer, url: str, *, skip: int = 0) -> "Feed":
    from floodmark.sources.web import feeds  # noqa: PLC0415 - slow to import
    from floodmark.sources.web.xml_trees import NotXml  # noqa: PLC0415

    try:
        return feeds.parse_feed(answer.body, answer.charset, answer.url, skip=skip)
    except NotXml as error:
        raise Permanent(
            f"{url} is not a feed: {error}",
            hint=f"See the response with: floodmark try {url}; for pages use floodmark add web",
        ) from error


def make_items(feed: "Feed", url: str, now: datetime, entries: "Mapping[str, FeedEntry] | None" = None) -> list[Item]:
    """Return the items of a feed, oldest first. `entries`: by key, if keys are already assigned."""
    if entries is None:
        from .keys import Keys  # noqa: PLC0415 - slow to import

        entries = Keys().assign_keys(feed.entries)
    # Feeds start with the newest entry: without dates the last one is the oldest.
    items = [_make_item(key, entry, feed, url, now) for key, entry in reversed(list(entries.items()))]
    items.sort(key=lambda item: item.occurred_at or _LONG_AGO)
    return items


def _make_item(key: str, entry: "FeedEntry", feed: "Feed", url: str, now: datetime) -> Item:
    link = normalize_url(entry.link, url) if entry.link else None
    fields = {
        "id": entry.id,
        "link": _with_fragment(link, entry.link) if link else entry.link,
        "title": entry.title,
        "summary": entry.summary,
        "content": entry.content,
        "author": entry.author,
        "tags": list(entry.tags),
        "enclosures": [
            msgspec.to_builtins(enclosure) | {"url": join_address(url, enclosure.url)} for enclosure in entry.enclosures
        ],
        "language": feed.language,
        "feed": feed.title,
    }
    text = "\n".join([entry.title, entry.summary, entry.content, link or ""])
    data = {
        **{name: value for name, value in fields.items() if value},
        "published": None if entry.published is None else entry.published.isoformat(),
        "updated": None if entry.updated is None else entry.updated.isoformat(),
        "fetched_at": now.isoformat(),
    }
    moment = entry.published or entry.updated
    return Item(key, data, moment, hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest())


def _with_fragment(link: str, written: str | None) -> str:
    """Return the link with its fragment: an entry may be a part of a page, such as one day of a calendar."""
    fragment = (written or "").partition("#")[2].strip()
    return f"{link}#{fragment}" if fragment else link


def _report_losses(feed: "Feed", context: Context) -> None:
    """Note everything that is left out of the items."""
    if feed.fault is not None:
        context.note(f"the feed is not well-formed ({feed.fault}) and is read as far as possible")
    if feed.empty:
        context.note(f"entries left out because they are empty: {feed.empty:,}")
    cut = sum(entry.is_cut for entry in feed.entries)
    if cut:
        context.note(f"entries whose text is cut because it is too long or too deeply nested: {cut:,}")


def _levels(since: Watermark) -> dict[str, int]:
    levels = since.get("levels")
    return {name: level for name, level in levels.items() if level in (1, 2)} if isinstance(levels, dict) else {}


def _keep_levels(since: Watermark) -> Watermark:
    return {"levels": since["levels"]} if "levels" in since else {}


def _moved_to(since: Watermark, url: str) -> str | None:
    """Return the new URL after a permanent redirect, if the job still has the URL that redirected."""
    place = since.get("moved")
    if not isinstance(place, dict) or place.get("from") != url or not isinstance(place.get("to"), str):
        return None
    return str(place["to"])


def _find_move(answer: HttpAnswer, url: str, moved: str | None, context: Context) -> Watermark:
    """Return the watermark of a permanent redirect; one from https to http is ignored."""
    requested = moved or url
    to = normalize_url(answer.url) if answer.is_permanent_redirect else moved
    if to is None or to == url or (urlsplit(requested).scheme, urlsplit(to).scheme) == ("https", "http"):
        return {}
    if to != moved:
        context.note(f"the feed has moved permanently to {to}, which is used from now on; the job still has {url}")
    return {"moved": {"from": url, "to": to}}


def _conditions(since: Watermark) -> dict[str, str] | None:
    headers = {"If-None-Match": since.get("etag"), "If-Modified-Since": since.get("last_modified")}
    return {name: value for name, value in headers.items() if isinstance(value, str) and value} or None


def _make_mark(answer: HttpAnswer) -> Watermark:
    found = {
        "etag": answer.headers.get("ETag"),
        "last_modified": answer.headers.get("Last-Modified"),
        "hash": hashlib.blake2b(answer.body, digest_size=16).hexdigest(),
    }
    return {name: value for name, value in found.items() if value and len(value) <= 500}
