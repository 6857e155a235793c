"""The source `feed`: the entries of an RSS or Atom feed. One request a run, and a short answer if nothing is new."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from floodmark.batch import Batch, Item, Watermark
from floodmark.clock import Clock
from floodmark.errors import Gone, InvalidInput, Permanent
from floodmark.http.client import Answer
from floodmark.sources.port import Context, Target
from floodmark.sources.web.port import Getting
from floodmark.sources.web.targets import completed
from floodmark.sources.web.urls import canonical, start_of
from floodmark.spec import JobSpec

if TYPE_CHECKING:
    from floodmark.sources.web.feeds import Entry, Feed

# Entries that are kept at once.
_BATCH = 100
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


class Ports(Struct, frozen=True, kw_only=True):
    """What the source asks of the rest of Floodmark."""

    http: Getting
    clock: Clock


class FeedSource:
    """Collects feeds. Without `ports` it can only check what it is asked."""

    kind = "feed"

    def __init__(self, ports: Ports | None = None) -> None:
        self._ports = ports

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` can be the address of a feed."""
        start_of(target)

    def param_names(self, target: str) -> frozenset[str]:
        """A feed has no params."""
        return frozenset()

    def complete(self, spec: JobSpec) -> JobSpec:
        """A job with its address in its one form."""
        return completed(spec)

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Entries, oldest first. The store knows which of them are new or changed."""
        if self._ports is None:
            raise InvalidInput("this process can only check feeds", hint="Start floodmark up, or a worker")
        try:
            url = start_of(target.name)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        return self._batches(self._ports, url, since or {}, context)

    async def _batches(self, ports: Ports, url: str, since: Watermark, context: Context) -> AsyncGenerator[Batch, None]:
        answer = await ports.http.get(url, headers=_conditions(since))
        result = context.result
        if answer.status == 304:
            result["summary"] = "nothing new"
            return
        body = _body(answer, url)
        mark = _mark(answer)
        if mark["hash"] == since.get("hash"):
            result["summary"] = "nothing new"
            yield Batch([], mark)
            return
        feed = read_feed(body, url)
        items = items_of(feed, answer.url, ports.clock.now())
        result |= {"summary": f"entries {len(items)}", "entries": len(items), "title": feed.title}
        for start in range(0, len(items), _BATCH):
            # The mark is true only when everything is kept.
            is_last = start + _BATCH >= len(items)
            yield Batch(items[start : start + _BATCH], mark if is_last else None)
        if not items:
            yield Batch([], mark)


def read_feed(body: bytes, url: str) -> "Feed":
    """The feed in this body, or `Permanent`."""
    # They bring what takes pages apart, which is heavy.
    from floodmark.sources.web.feeds import parse_feed  # noqa: PLC0415
    from floodmark.sources.web.trees import NotXml  # noqa: PLC0415

    try:
        return parse_feed(body)
    except NotXml as error:
        raise Permanent(
            f"{url} is no feed: {error}",
            hint=f"Look at what comes with: floodmark try {url}; for pages, floodmark add web",
        ) from error


def items_of(feed: "Feed", url: str, now: datetime) -> list[Item]:
    """What is collected of a feed, oldest first; of two entries with one id the first counts, as the newer one."""
    entries = {entry.id: entry for entry in reversed(feed.entries)}
    items = [_item(entry, feed, url, now) for entry in entries.values()]
    items.sort(key=lambda item: item.occurred_at or _LONG_AGO)
    return items


def _item(entry: "Entry", feed: "Feed", url: str, now: datetime) -> Item:
    link = canonical(entry.link, url) if entry.link else None
    told = {
        "id": entry.id,
        "link": link or entry.link,
        "title": entry.title,
        "summary": entry.summary,
        "content": entry.content,
        "author": entry.author,
        "tags": list(entry.tags),
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
    return Item(entry.id, data, moment, hashlib.blake2b(said.encode(errors="replace"), digest_size=16).hexdigest())


def _conditions(since: Watermark) -> dict[str, str] | None:
    said = {"If-None-Match": since.get("etag"), "If-Modified-Since": since.get("last_modified")}
    return {name: value for name, value in said.items() if isinstance(value, str) and value} or None


def _body(answer: Answer, url: str) -> bytes:
    if answer.status == 410:
        raise Gone(f"{url} is gone for good (status 410)", hint="Remove the job, or give it another address")
    if answer.status != 200:
        raise Permanent(f"{url} answers with status {answer.status}", hint=f"See it yourself: floodmark try {url}")
    return answer.body


def _mark(answer: Answer) -> Watermark:
    found = {
        "etag": answer.headers.get("ETag"),
        "last_modified": answer.headers.get("Last-Modified"),
        "hash": hashlib.blake2b(answer.body, digest_size=16).hexdigest(),
    }
    return {name: value for name, value in found.items() if value and len(value) <= 500}
