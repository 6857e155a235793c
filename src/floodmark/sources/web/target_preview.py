"""What a job for a site or a feed would collect, from one look at its address."""

from datetime import datetime
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.previews import OtherTarget, PreviewItem, SourcePreview
from floodmark.model.spec import JobSpec
from floodmark.sources.form import PreviewTools

from .extraction.plan import RESERVED, parse_plan
from .preview import UrlPreview, preview_url

_ITEMS, _OTHERS, _TEXT, _TITLE = 10, 5, 600, 200


async def preview_target(spec: JobSpec, tools: PreviewTools) -> SourcePreview:
    """Fetch the address once. A feed is collected by `feed`, anything else by `web`."""
    agent, obeys = tools.settings.http_user_agent or "floodmark", spec.params.get("robots") != "ignore"
    plan = parse_plan(spec.params) if spec.source == "web" else None
    if spec.params.get("proxy") or tools.settings.web_proxy:
        # The site must not see the address of this machine.
        raise InvalidInput("a job with a proxy has no preview", hint="add it, and run it once: floodmark run NAME")
    found = await preview_url(tools.http, spec.target, agent=agent, now=tools.now, obeys_robots=obeys, plan=plan)
    if found.is_selected:
        return _of_matches(found)
    return _of_feed(found) if found.kind == "feed" else _of_page(found)


def _of_feed(found: UrlPreview) -> SourcePreview:
    # Feeds are read oldest first.
    newest = found.items[::-1]
    return SourcePreview(
        source="feed",
        target=found.url,
        collects=f"The entries of a feed: {_count(len(newest), 'entry', 'entries')} now, and every new or changed one.",
        title=found.title[:_TITLE],
        note=found.note if not newest else None,
        count=len(newest),
        items=tuple(_entry(entry) for entry in newest[:_ITEMS]),
    )


def _of_matches(found: UrlPreview) -> SourcePreview:
    count = len(found.items)
    return SourcePreview(
        source="web",
        collects=f"The matches of the selector: {_count(count, 'match', 'matches')} on this page now.",
        title=found.title[:_TITLE],
        note="; ".join(found.remarks) or None,
        count=count,
        items=tuple(_match(match, found.url) for match in found.items[:_ITEMS]),
    )


def _match(match: dict[str, Any], url: str) -> PreviewItem:
    fields = {name: value for name, value in match.items() if name not in RESERVED and value is not None}
    text = ", ".join(f"{name}: {value}" for name, value in fields.items())
    first = next(iter(fields.values()), "")
    return PreviewItem(title=str(first)[:_TITLE], text=text[:_TEXT], url=url, at=_moment(match.get("published")))


def _of_page(found: UrlPreview) -> SourcePreview:
    more = f" It links to {_count(len(found.follow), 'page', 'pages')} of the site." if found.items else ""
    return SourcePreview(
        source="web",
        collects=f"This page and the pages it links to, when they are new, changed or deleted.{more}",
        title=found.title[:_TITLE],
        note=found.note,
        items=tuple(_page(page, found.url) for page in found.items[:_ITEMS]),
        others=tuple(OtherTarget("feed", address) for address in found.lists[:_OTHERS] if _may_be_feed(address)),
    )


def _entry(entry: dict[str, Any]) -> PreviewItem:
    return PreviewItem(
        title=str(entry.get("title") or entry.get("link") or "")[:_TITLE],
        text=str(entry.get("summary") or entry.get("text") or "")[:_TEXT],
        url=entry.get("link") or None,
        at=_moment(entry.get("published")),
    )


def _page(page: dict[str, Any], url: str) -> PreviewItem:
    return PreviewItem(
        title=str(page.get("title") or url)[:_TITLE],
        text=str(page.get("text") or "")[:_TEXT],
        url=url,
        at=_moment(page.get("published")),
    )


def _may_be_feed(address: str) -> bool:
    return "sitemap" not in address.lower()


def _moment(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
