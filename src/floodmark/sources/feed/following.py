"""Follows the links of feed entries: the text of their pages, and their files.

Only new and changed entries are followed. What was read before is taken from the stored item.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from floodmark.errors import Permanent, SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Item, SitePage
from floodmark.outbound.client import HttpAnswer
from floodmark.sources.collected_items import CollectedItems
from floodmark.sources.web.archive.raw import write_enclosure
from floodmark.sources.web.charsets import decode_text
from floodmark.sources.web.extract import Document, parse_document
from floodmark.sources.web.extraction.pool import ExtractionPool
from floodmark.sources.web.nesting import TooNested
from floodmark.sources.web.responses import HTML_TYPES, make_request
from floodmark.sources.web.robots import FORBIDDEN, Robots
from floodmark.sources.web.robots_cache import fetch_robots
from floodmark.sources.web.source import ROBOTS_LIMITS
from floodmark.sources.web.urls import normalize_url, origin_of

from .params import FeedParams

_MOST_FILES = 10
_COMPARED = ("title", "summary", "content", "link")


class Following:
    """Adds the text of pages and the files to the entries of one run."""

    def __init__(self, services: Services, stream: str, params: FeedParams, folder: Path | None) -> None:
        self._services, self._stream, self._params, self._folder = services, stream, params, folder
        self._collected, self._pool = CollectedItems(services.database), ExtractionPool(1)
        self._stack = AsyncExitStack()
        self._robots: dict[str, Robots] = {}
        self.not_followed = 0
        self.failed: dict[str, str] = {}
        """Links that could not be read, each with the reason."""

    async def __aenter__(self) -> "Following":
        await self._stack.enter_async_context(self._pool.using())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def follow(self, items: Sequence[Item], newest: Set[str]) -> list[Item]:
        """Return the items with what their links lead to; raise `SlowDown` to wait.

        Links are followed only for entries with the keys `newest`; what is stored of the others stays.
        """
        known = await self._collected.data(self._stream, [item.key for item in items])
        return [await self._follow(item, known.get(item.key), is_newest=item.key in newest) for item in items]

    async def _follow(self, item: Item, before: Any, *, is_newest: bool) -> Item:
        data = dict(item.data)
        kept = before if isinstance(before, dict) and _is_same(before, data) else {}
        wants_text = self._params.full_text and bool(data.get("link")) and "text" not in kept
        wants_files = self._params.enclosures and bool(data.get("enclosures")) and not _has_files(kept)
        if (wants_text or wants_files) and not is_newest:
            self.not_followed += 1
            wants_text = wants_files = False
        text = await self._read_text(str(data["link"])) if wants_text else kept.get("text")
        if text:
            data["text"] = text
        if wants_files:
            data["enclosures"] = [await self._download(file) for file in data["enclosures"][:_MOST_FILES]] + [
                *data["enclosures"][_MOST_FILES:]
            ]
        elif _has_files(kept):
            data["enclosures"] = kept["enclosures"]
        # The text of a page that could be read only later makes a revision; its later changes do not.
        marks = [mark for mark, is_there in (("text", text), ("files", _has_files(data))) if is_there]
        return replace(item, data=data, fingerprint=[item.fingerprint, *marks] if marks else item.fingerprint)

    async def _read_text(self, link: str) -> str | None:
        url = normalize_url(link)
        if url is None:
            return None
        answer = await self._get(url)
        if answer is None:
            return None
        try:
            document = await self._read_document(url, answer)
        except (SourceError, TooNested) as error:
            self.failed[url] = str(error)
            return None
        if not document.text or document.is_soft_miss:
            self.failed[url] = document.lacking or "has no text"
            return None
        return document.text

    async def _read_document(self, url: str, answer: HttpAnswer) -> Document:
        """Read a page. The feed names it, so that it counts whatever its canonical URL is."""
        if answer.media_type not in HTML_TYPES:
            raise Permanent(f"not HTML: {answer.media_type or 'no media type'}")
        request = make_request(SitePage(url=url), answer, self._params.plan)
        if request is None:
            return await asyncio.to_thread(lambda: parse_document(decode_text(answer.body, answer.charset)))
        found = await self._pool.read(request)
        if found.document is None:
            raise Permanent(found.skipped or "cannot be read")
        return found.document

    async def _download(self, file: Mapping[str, Any]) -> dict[str, Any]:
        url = normalize_url(str(file.get("url", "")))
        found = dict(file)
        answer = None if url is None or self._folder is None else await self._get(url)
        if answer is None:
            return found
        assert self._folder is not None
        found["sha256"] = await asyncio.to_thread(write_enclosure, self._folder, answer)
        found["bytes"] = len(answer.body)
        return found

    async def _get(self, url: str) -> HttpAnswer | None:
        """Return the response of a link; None if it cannot be read."""
        try:
            if self._params.obeys_robots and not (await self._rules(url)).allows(url):
                self.failed[url] = FORBIDDEN
                return None
            answer = await self._services.http.get(url)
        except SlowDown:
            raise
        except SourceError as error:
            self.failed[url] = str(error)
            return None
        if answer.status != 200:
            self.failed[url] = f"answers with status {answer.status}"
            return None
        return answer

    async def _rules(self, url: str) -> Robots:
        origin = origin_of(url)
        if origin not in self._robots:
            agent = self._services.settings.http_user_agent or "floodmark"

            async def get(address: str) -> HttpAnswer:
                return await self._services.http.get(address, limits=ROBOTS_LIMITS)

            self._robots[origin] = await fetch_robots(get, origin, agent)
        return self._robots[origin]


def _is_same(before: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Return whether an entry has not changed since it was stored."""
    return all(before.get(name) == data.get(name) for name in _COMPARED)


def _has_files(data: Mapping[str, Any]) -> bool:
    return any("sha256" in file for file in data.get("enclosures") or () if isinstance(file, dict))
