"""One visit of a page: request, evidence, rendering, extraction. What follows from it is the crawl's business."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from floodmark.errors import SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import SitePage
from floodmark.outbound.client import HttpAnswer
from floodmark.sources.cookies.browser import BrowserMissing

from .archive.evidence import Evidence
from .extraction.documents import ExtractedDocument
from .extraction.pool import ExtractionPool
from .login import cookie_header, is_safe, log_in
from .params import WebParams
from .request_headers import fill_headers
from .responses import (
    SITEMAP,
    Kind,
    VisitedPage,
    is_index,
    make_failed,
    make_request,
    note_rendered,
    read_response,
    read_script_redirect,
)
from .urls import Scope

if TYPE_CHECKING:
    from .rendering import Rendering

# A larger page is parsed in a thread.
_LARGE = 256 * 1024


class RequestPace(Struct, frozen=True, kw_only=True):
    """How fast pages are requested. `delay`: None for that of the process."""

    concurrency: int
    delay: timedelta | None


class PageVisitor:
    """Visits pages for one run of a job. `rendering` and `evidence` are None if the job wants none."""

    def __init__(
        self,
        services: Services,
        params: WebParams,
        scope: Scope,
        *,
        pool: ExtractionPool,
        rendering: "Rendering | None" = None,
        evidence: Evidence | None = None,
    ) -> None:
        self._services, self._params, self._scope = services, params, scope
        self._pool, self._rendering, self._evidence = pool, rendering, evidence
        self._own_headers = fill_headers(params.headers, params.basic_auth, services.section)

    async def open(self) -> None:
        """Log in and prepare the archive."""
        if self._params.login:
            jar = await log_in(self._services, self._scope, self._params)
            self._own_headers |= cookie_header(jar, self._own_headers.get("Cookie", ""))
        if self._evidence is not None:
            await self._evidence.open()

    async def sync(self) -> None:
        """Make the evidence of all visits durable."""
        if self._evidence is not None:
            await self._evidence.sync()

    async def close(self) -> None:
        """Complete the archive."""
        if self._evidence is not None:
            await self._evidence.close()

    async def visit(
        self, page: SitePage, crawl: int, pace: RequestPace, *, is_anew: bool, skip: int = 0
    ) -> VisitedPage:
        """Return the result of a visit; raise `SlowDown` if the site asks to wait.

        `is_anew`: unchanged pages are read too. `skip`: how many links of the page an earlier visit has followed.
        """
        try:
            answer = await self._services.http.get(
                page.url,
                headers=self._headers(page, is_anew=is_anew or skip > 0),
                follow=False,
                concurrency=pace.concurrency,
                delay=pace.delay,
            )
        except SlowDown:
            raise
        except SourceError as error:
            return make_failed(page, crawl, str(error))
        if self._evidence is not None:
            await self._evidence.add_response(page.url, answer, self._services.clock.now())
        if self._rendering is None or is_index(page):
            seen = await self._extract(page, answer, crawl, skip)
        else:
            try:
                answer, remarks = await self._rendering.render(answer, page.url)
            except BrowserMissing:
                raise
            except SourceError as error:
                return make_failed(page, crawl, str(error))
            moved = read_script_redirect(page, answer, crawl, self._scope)
            seen = moved or await self._extract(page, answer, crawl, skip)
            note_rendered(seen, remarks)
        if self._evidence is not None and seen.kind is Kind.READ and not skip:
            seen.raw = await self._evidence.add_revision(answer)
        return seen

    async def _extract(self, page: SitePage, answer: HttpAnswer, crawl: int, skip: int) -> VisitedPage:
        request = make_request(page, answer, self._params.plan)
        if request is not None:
            try:
                return self._read(page, answer, crawl, skip, await self._pool.read(request))
            except SourceError as error:
                return make_failed(page, crawl, str(error))
        if len(answer.body) > _LARGE:
            return await asyncio.to_thread(self._read, page, answer, crawl, skip)
        return self._read(page, answer, crawl, skip)

    def _read(
        self, page: SitePage, answer: HttpAnswer, crawl: int, skip: int, extracted: ExtractedDocument | None = None
    ) -> VisitedPage:
        now = self._services.clock.now()
        try:
            return read_response(page, answer, crawl=crawl, scope=self._scope, now=now, extracted=extracted, skip=skip)
        except Exception as error:  # noqa: BLE001 - reported as the page's result; the other pages can be read
            return make_failed(page, crawl, f"cannot be read: {type(error).__name__}: {error}")

    def _headers(self, page: SitePage, *, is_anew: bool) -> dict[str, str] | None:
        """Return the headers of a request. Those of the job, which may be secret, are sent to the site only."""
        conditions = {} if is_anew or self._needs_content(page) else _conditions(page)
        own = self._own_headers if is_safe(page.url, self._scope) else {}
        return {**own, **conditions} or None

    def _needs_content(self, page: SitePage) -> bool:
        """Return whether a response without a body (304) is of no use."""
        # Scripts load content that an ETag does not describe.
        return self._params.render or (self._params.trusts_lastmod and page.note == SITEMAP)


def _conditions(page: SitePage) -> dict[str, str]:
    headers = {"If-None-Match": page.etag, "If-Modified-Since": page.last_modified}
    return {name: value for name, value in headers.items() if value}
