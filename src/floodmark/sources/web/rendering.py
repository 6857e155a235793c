"""Pages as a browser shows them: rendered in the browsers of this worker, behind the guard of cookie scans."""

from msgspec.structs import replace

from floodmark.errors import Permanent
from floodmark.outbound.client import HttpAnswer
from floodmark.settings import Settings
from floodmark.sources.cookies.messages import RenderedPage, RenderOrder
from floodmark.sources.cookies.pool import Pool
from floodmark.sources.cookies.source import browser_rules
from floodmark.version import __version__

from .responses import HTML_TYPES

LATE = "did not show in time what --wait-for names, and is read as it was"
_CUT = "is cut after rendering: it is larger than HTTP_MAX_BODY_BYTES"


def open_browsers(settings: Settings) -> Pool:
    """Return the browsers of a worker for crawls. They start with the first page."""
    # User agents are set per page.
    return Pool(replace(browser_rules(settings), browsers=settings.web_max_browsers, user_agent=""))


class Rendering:
    """Renders the pages of one crawl."""

    def __init__(self, pool: Pool, settings: Settings, *, site: str, wait_for: str) -> None:
        self._pool, self._site, self._wait_for = pool, site, wait_for
        self._seconds = settings.web_render_timeout.total_seconds()
        self._most = settings.http_max_body_bytes
        self._agent = settings.http_user_agent or f"floodmark/{__version__}"

    async def render(self, answer: HttpAnswer, url: str) -> tuple[HttpAnswer, list[str]]:
        """Return the response with its content after its scripts have run, and remarks about it.

        Only an HTML page with status 200 is rendered. Its URL is another one if a script has moved on to it.
        """
        if answer.status != 200 or answer.media_type not in HTML_TYPES:
            return answer, []
        order = RenderOrder(
            url=url,
            site=self._site,
            agent=self._agent,
            wait_for=self._wait_for,
            page_seconds=self._seconds,
            wait_seconds=self._seconds,
            most_characters=self._most,
        )
        found = await self._pool.render(order)
        if found.status >= 400:
            raise Permanent(f"cannot be rendered: the browser gets status {found.status}")
        return _with_content(answer, found), _remarks(found)


def _with_content(answer: HttpAnswer, found: RenderedPage) -> HttpAnswer:
    from multidict import CIMultiDict, CIMultiDictProxy  # noqa: PLC0415 - slow to import

    headers = CIMultiDict(answer.headers)
    # Scripts load content that these do not describe.
    for name in ("ETag", "Last-Modified"):
        headers.popall(name, None)
    headers["Content-Type"] = "text/html; charset=utf-8"
    body = found.html.encode(errors="replace")
    return replace(answer, url=found.url, headers=CIMultiDictProxy(headers), body=body)


def _remarks(found: RenderedPage) -> list[str]:
    return [*([] if found.is_complete else [LATE]), *([_CUT] if found.is_cut else [])]
