"""`try`: fetch a URL once, without a job."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from floodmark.sources.web.extraction.plan import RESERVED, parse_plan
from floodmark.sources.web.urls import parse_start_url

from .output import counted, facts, plain, print_json, safe, short, table
from .root import AsJson, CliContext
from .times import relative

if TYPE_CHECKING:
    from floodmark.settings import Settings
    from floodmark.sources.web.extraction.plan import ExtractionPlan
    from floodmark.sources.web.preview import UrlPreview

_TEXT_SHOWN, _ENTRIES_SHOWN, _LINKS_SHOWN, _MATCHES_SHOWN = 1200, 10, 5, 20


def try_url(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="A page or a feed.")],
    *,
    ignore_robots: Annotated[
        bool, typer.Option("--ignore-robots", help="Fetch it even if robots.txt disallows it.")
    ] = False,
    select: Annotated[
        str | None, typer.Option(metavar="SELECTOR", help="Show the matches of this selector (CSS, XPath, JSONPath).")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:TYPE]=SELECTOR", help="A field of each match; can be repeated."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="FIELDS", help="Fields that identify a match.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CSS", help="Parts that do not count; can be repeated.")
    ] = None,
    extractor: Annotated[str | None, typer.Option(metavar="NAME", help="built-in or trafilatura.")] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Read PDF documents.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a page or a feed once and show what would be collected, without storing it.

    floodmark try https://example.com/news
    """
    cli = CliContext.of(context)
    start = parse_start_url(url)
    given = {"select": select, "fields": field, "key_fields": key, "ignore": ignore, "extractor": extractor, "pdf": pdf}
    plan = parse_plan({name: value for name, value in given.items() if value})
    settings = cli.settings()
    with cli.busy(f"Fetching {safe(start)}"):
        found = asyncio.run(_fetch(settings, start, plan, obeys_robots=not ignore_robots))
    if as_json:
        return print_json(found)
    return _show(cli, found)


async def _fetch(settings: "Settings", url: str, plan: "ExtractionPlan", *, obeys_robots: bool) -> "UrlPreview":
    from floodmark.sources.web.preview import preview_url  # noqa: PLC0415 - loads the HTTP client
    from floodmark.wiring.resources import http_of  # noqa: PLC0415 - loads the HTTP client

    agent = settings.http_user_agent or "floodmark"
    async with http_of(settings) as http:
        now = datetime.now(UTC)
        return await preview_url(http, url, agent=agent, now=now, obeys_robots=obeys_robots, plan=plan)


def _show(cli: CliContext, found: "UrlPreview") -> None:
    is_page = found.kind != "feed" and bool(found.items) and not found.is_selected
    cli.out.print(
        facts([*_describe_response(found), *(_describe_page(found.items[0], found.follow) if is_page else ())])
    )
    if is_page:
        _show_text(cli, found.items[0]["text"])
    elif found.is_selected:
        _show_matches(cli, found)
    elif found.items:
        _show_entries(cli, found)
    _print_next_step(cli, found)


def _describe_response(found: "UrlPreview") -> list[tuple[str, object]]:
    size = f"{found.wire_bytes:,} bytes in {found.seconds:.1f} s"
    return [
        ("URL", found.url),
        ("redirected", " -> ".join(found.redirects)),
        ("robots.txt", _robots(found)),
        ("response", None if found.status is None else f"{found.status} {found.media_type}, {size}"),
        ("type", found.kind if found.kind != "nothing" else None),
        ("not collected", found.note if found.is_allowed else None),
        ("title", found.title),
        ("feeds, sitemaps", ", ".join(found.lists[:_LINKS_SHOWN])),
    ]


def _robots(found: "UrlPreview") -> str:
    if not found.is_allowed:
        return "disallows it: nothing was fetched"
    return f"allows it, with {found.delay_seconds:g} s between requests" if found.delay_seconds else "allows it"


def _describe_page(data: dict[str, Any], follow: list[str]) -> list[tuple[str, object]]:
    names = ("description", "author", "published", "modified", "language")
    graph = data.get("open_graph") or {}
    return [
        *((name, data.get(name)) for name in names),
        ("OpenGraph", ", ".join(f"{name}: {short(value, 60)}" for name, value in graph.items())),
        ("links", f"{len(data['links'])}, {len(follow)} of them to pages of the same site"),
    ]


def _show_text(cli: CliContext, text: str) -> None:
    cli.out.print()
    cli.out.print(plain(text[:_TEXT_SHOWN]))
    if len(text) > _TEXT_SHOWN:
        cli.note(f"[dim]... {counted(len(text) - _TEXT_SHOWN, 'more character')}[/]")


def _show_matches(cli: CliContext, found: "UrlPreview") -> None:
    names = [name for name in found.items[0] if name not in RESERVED]
    rows = [[short("-" if row[name] is None else str(row[name]), 60) for name in names] for row in found.items]
    cli.out.print()
    cli.out.print(table(*names, rows=rows[:_MATCHES_SHOWN]))
    if len(rows) > _MATCHES_SHOWN:
        cli.note(f"[dim]... {counted(len(rows) - _MATCHES_SHOWN, 'more match', 'more matches')}[/]")
    for remark in found.remarks:
        cli.note(f"[dim]The page {plain(remark)}.[/]")


def _show_entries(cli: CliContext, found: "UrlPreview") -> None:
    now = datetime.now(UTC)
    newest = found.items[::-1][:_ENTRIES_SHOWN]
    rows = [
        [
            relative(datetime.fromisoformat(entry["published"]), now) if entry.get("published") else "-",
            Text(short(entry.get("title", ""), 80), style="bold"),
            short(entry.get("link", ""), 80),
        ]
        for entry in newest
    ]
    cli.out.print()
    cli.out.print(table("published", "title", "link", rows=rows))
    if len(found.items) > len(newest):
        cli.note(f"[dim]... {len(found.items) - len(newest)} more[/]")


def _print_next_step(cli: CliContext, found: "UrlPreview") -> None:
    if found.kind == "feed" and found.items:
        cli.note(f"\n[dim]Collect its entries: floodmark add feed {plain(found.url)} --every 15m[/]")
    elif found.is_selected:
        cli.note(
            f"\n[dim]Collect them: floodmark add web {plain(found.url)} --max-depth 0 --every 1h, and these options[/]"
        )
    elif found.items:
        cli.note(f"\n[dim]Collect the site: floodmark add web {plain(found.url)} --every 1h[/]")
