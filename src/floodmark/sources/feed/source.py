"""The source `feed`: the entries of an RSS, Atom or JSON feed. One request a run; short if nothing is new."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from floodmark.errors import Gone, InvalidInput, Permanent, SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.model.hosts import allowed_hosts
from floodmark.model.spec import JobSpec
from floodmark.outbound.client import HttpAnswer
from floodmark.outbound.guard import Guard
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target
from floodmark.sources.web.targets import completed
from floodmark.sources.web.urls import canonical, join_address, start_of

if TYPE_CHECKING:
    from floodmark.sources.web.feeds import Enclosure, Feed, FeedEntry

# Entries that are kept at once.
_BATCH = 100
# A larger feed is taken apart beside the loop.
_LARGE = 256 * 1024
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


class FeedSource:
    """Collects feeds. Without services it can only check jobs."""

    kind = "feed"

    def __init__(self, settings: Settings) -> None:
        self._guard = Guard(allowed_hosts(settings.http_allow_hosts))
        self._services: Services | None = None

    def use_services(self, services: Services) -> None:
        """Read feeds with the polite HTTP client of the process."""
        self._services = services

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` can be the address of a feed."""
        start_of(target)

    def param_names(self, target: str) -> frozenset[str]:
        """A feed has no params."""
        return frozenset()

    def complete(self, spec: JobSpec) -> JobSpec:
        """A job with its address in its one form, which is public or allowed by name."""
        return completed(spec, self._guard)

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Entries, oldest first. The store knows which of them are new or changed."""
        if self._services is None:
            raise InvalidInput("this process can only check feeds", hint="Start floodmark up, or a worker")
        try:
            url = start_of(target.name)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        return self._batches(self._services, url, since or {}, context)

    async def _batches(
        self, services: Services, url: str, since: Watermark, context: Context
    ) -> AsyncGenerator[Batch, None]:
        moved = _moved_to(since, url)
        try:
            answer, first = await _ask(services, moved or url, since, url)
        except SlowDown:
            raise
        except SourceError as error:
            if moved is None:
                raise
            # The new address may have been a mistake, or has gone: the one that the job names counts again.
            context.note(f"the feed is not at {moved} any more ({error}): {url} is asked again")
            moved, since = None, {name: since[name] for name in ("levels",) if name in since}
            answer, first = await _ask(services, url, since, url)
        place = _new_place(answer, url, moved, context)
        if first is None:
            context.result["summary"] = "nothing new"
            # A 304 need not repeat the tag: what is known stays.
            kept = {name: since[name] for name in ("levels",) if name in since}
            mark = since if answer.status == 304 else kept | _mark(answer)
            if (mark := mark | place) != since:
                yield Batch([], mark)
            return
        now = services.clock.now()
        async for batch in self._slices(answer, first, since, _mark(answer) | place, context, now=now):
            yield batch

    async def _slices(
        self, answer: HttpAnswer, feed: "Feed", since: Watermark, mark: Watermark, context: Context, *, now: datetime
    ) -> AsyncGenerator[Batch, None]:
        """All entries of a feed, so many at a time: memory is bounded, their number is not."""
        from .keys import Keys  # noqa: PLC0415 - brings what takes pages apart, which is heavy

        keys, seen, count, apart = Keys(_levels(since)), 0, 0, 0
        while True:
            seen += len(feed.entries) + feed.empty
            is_last = seen >= feed.total
            entries = keys.tell_apart(feed.entries, is_last=is_last)
            items = items_of(feed, answer.url, now, entries)
            count, apart = count + len(items), apart + sum(key != entry.id for key, entry in entries.items())
            _note_losses(feed, context)
            levels = {"levels": keys.levels} if keys.levels else {}
            for start in range(0, len(items), _BATCH):
                # The mark is true only when everything is kept; keys are the same from the first batch on.
                is_end = is_last and start + _BATCH >= len(items)
                so_far = {**since, **levels} if levels else None
                yield Batch(items[start : start + _BATCH], mark | levels if is_end else so_far)
            if is_last:
                break
            feed = await _read(answer, skip=seen)
        context.result.update(summary=f"entries {count}", entries=count, title=feed.title)
        if apart:
            context.note(f"{apart:,} entries share an id with others and are told apart by link, title, date and text")
        if not items:
            yield Batch([], mark | levels)


async def _ask(services: Services, url: str, since: Watermark, named: str) -> tuple[HttpAnswer, "Feed | None"]:
    """What is at an address: the first slice of the feed, None if nothing is new."""
    answer = await services.http.get(url, headers=_conditions(since))
    if answer.status == 304:
        return answer, None
    if answer.status == 410:
        raise Gone(f"{url} is gone for good (status 410)", hint="Remove the job, or give it another address")
    if answer.status != 200:
        raise Permanent(f"{url} answers with status {answer.status}", hint=f"See it yourself: floodmark try {named}")
    if _mark(answer)["hash"] == since.get("hash"):
        return answer, None
    return answer, await _read(answer, url=url)


async def _read(answer: HttpAnswer, *, skip: int = 0, url: str | None = None) -> "Feed":
    if len(answer.body) > _LARGE:
        return await asyncio.to_thread(read_feed, answer, url or answer.url, skip=skip)
    return read_feed(answer, url or answer.url, skip=skip)


def read_feed(answer: HttpAnswer, url: str, *, skip: int = 0) -> "Feed":
    """The feed in this answer, from the entry after `skip` on, or `Permanent`."""
    # They bring what takes pages apart, which is heavy.
    from floodmark.sources.web import feeds  # noqa: PLC0415
    from floodmark.sources.web.trees import NotXml  # noqa: PLC0415

    try:
        return feeds.parse_feed(answer.body, answer.charset, answer.url, skip=skip, most=feeds.MOST_ENTRIES)
    except NotXml as error:
        raise Permanent(
            f"{url} is no feed: {error}",
            hint=f"Look at what comes with: floodmark try {url}; for pages, floodmark add web",
        ) from error


def items_of(feed: "Feed", url: str, now: datetime, entries: "Mapping[str, FeedEntry] | None" = None) -> list[Item]:
    """What is collected of a feed, oldest first; `entries` by their keys, if those are known already."""
    if entries is None:
        from .keys import Keys  # noqa: PLC0415 - heavy

        entries = Keys().tell_apart(feed.entries)
    # Feeds have the newest first: of those without a date the last is the oldest.
    items = [_item(key, entry, feed, url, now) for key, entry in reversed(list(entries.items()))]
    items.sort(key=lambda item: item.occurred_at or _LONG_AGO)
    return items


def _item(key: str, entry: "FeedEntry", feed: "Feed", url: str, now: datetime) -> Item:
    link = canonical(entry.link, url) if entry.link else None
    told = {
        "id": entry.id,
        "link": _with_fragment(link, entry.link) if link else entry.link,
        "title": entry.title,
        "summary": entry.summary,
        "content": entry.content,
        "author": entry.author,
        "tags": list(entry.tags),
        "enclosures": [_enclosure(enclosure, url) for enclosure in entry.enclosures],
        "language": feed.language,
        "feed": feed.title,
    }
    said = "\n".join([entry.title, entry.summary, entry.content, link or ""])
    data = {
        **{name: value for name, value in told.items() if value},
        "published": None if entry.published is None else entry.published.isoformat(),
        "updated": None if entry.updated is None else entry.updated.isoformat(),
        "fetched_at": now.isoformat(),
    }
    moment = entry.published or entry.updated
    return Item(key, data, moment, hashlib.blake2b(said.encode(errors="replace"), digest_size=16).hexdigest())


def _enclosure(enclosure: "Enclosure", url: str) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(enclosure)
    return {**told, "url": join_address(url, enclosure.url)}


def _with_fragment(link: str, written: str | None) -> str:
    """An entry may be a part of a page, such as one day of a calendar."""
    fragment = (written or "").partition("#")[2].strip()
    return f"{link}#{fragment}" if fragment else link


def _note_losses(feed: "Feed", context: Context) -> None:
    """What a reader of the outcome should know: nothing is left out silently."""
    if feed.fault is not None:
        context.note(f"the feed is not well-formed ({feed.fault}): it is read as far as it goes")
    if feed.empty:
        context.note(f"entries left out because they hold nothing: {feed.empty:,}")
    cut = sum(entry.is_cut for entry in feed.entries)
    if cut:
        context.note(f"entries whose text is too long or too deeply nested, and is cut: {cut:,}")


def _levels(since: Watermark) -> dict[str, int]:
    said = since.get("levels")
    return {name: level for name, level in said.items() if level in (1, 2)} if isinstance(said, dict) else {}


def _moved_to(since: Watermark, url: str) -> str | None:
    """Where the feed has moved for good, if the job still names the address it moved from."""
    place = since.get("moved")
    if not isinstance(place, dict) or place.get("from") != url or not isinstance(place.get("to"), str):
        return None
    return str(place["to"])


def _new_place(answer: HttpAnswer, url: str, moved: str | None, context: Context) -> Watermark:
    """What is remembered of a permanent redirect; a step from https to http is not believed."""
    asked = moved or url
    to = canonical(answer.url) if answer.is_permanent_redirect else moved
    if to is None or to == url or (urlsplit(asked).scheme, urlsplit(to).scheme) == ("https", "http"):
        return {}
    if to != moved:
        context.note(f"the feed has moved for good to {to}, which is asked from now on; the job still names {url}")
    return {"moved": {"from": url, "to": to}}


def _conditions(since: Watermark) -> dict[str, str] | None:
    said = {"If-None-Match": since.get("etag"), "If-Modified-Since": since.get("last_modified")}
    return {name: value for name, value in said.items() if isinstance(value, str) and value} or None


def _mark(answer: HttpAnswer) -> Watermark:
    found = {
        "etag": answer.headers.get("ETag"),
        "last_modified": answer.headers.get("Last-Modified"),
        "hash": hashlib.blake2b(answer.body, digest_size=16).hexdigest(),
    }
    return {name: value for name, value in found.items() if value and len(value) <= 500}
