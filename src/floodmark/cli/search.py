"""Search what was collected; show, update and rebuild the search index."""

import asyncio
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from floodmark.model.page import take
from floodmark.model.search import IndexStatus, SearchHit, SearchPage, SnippetPart
from floodmark.operations.declaration import MOST_ROWS
from floodmark.operations.declared import AsyncOperations

from .confirmation import confirm
from .output import console, counted, facts, plain, print_json, safe
from .parsing import parse_moment
from .root import AsJson, CliContext, Yes, command_group
from .times import both, relative

# Without a scheduler, a search first indexes what is new, for at most this long.
_BRIEFLY, _AT_ONCE, _POLL_SECONDS = timedelta(seconds=2), timedelta(seconds=5), 0.5
_MATCH = "bold yellow"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def search(
    context: typer.Context,
    *,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="What to search for; all items if left out.")
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(help="Only in this stream, in that of this job, or in those of a pattern; can be repeated."),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only what jobs with this tag collect.")] = None,
    source: Annotated[str | None, typer.Option(help="Only what this kind of source collects, such as feed.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only items since: 2h, 3d, a day or a time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only items until: 2h, 3d, a day (included) or a time.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of items.")] = 20,
    rank: Annotated[bool, typer.Option("--rank/--newest", help="Best matches first, or newest items first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search collected items by their words, newest first. In a shell, put the query in single quotes.

    'fire smoke'       both words, in any order

    '"big fire"'       these words next to each other

    'fire OR smoke'    one of them; parentheses group

    'fire -drill'      without drill

    'flood*'           words that begin with flood

    'title:fire'       in a field: title, author, channel, url, tag, ...; is:deleted

    floodmark search 'fire OR smoke' --stream 'telegram:*' --since 7d
    """
    cli, now = CliContext.of(context), datetime.now(UTC)
    first = None if since is None else parse_moment(since, now)
    end = None if until is None else _end_of(until, now)

    async def work(operations: AsyncOperations) -> SearchPage:
        if cli.url() is None:
            await _update_briefly(operations)
        hits: list[SearchHit] = []
        cursor: str | None = None
        while True:
            page = await operations.search(
                " ".join(words or ()) or None,
                stream=stream or None,
                tag=tag,
                source=source,
                since=first,
                until=end,
                order="rank" if rank else "newest",
                cursor=cursor,
                limit=min(limit - len(hits), MOST_ROWS),
            )
            hits += page.items
            cursor = page.next
            if cursor is None or len(hits) >= limit:
                return SearchPage(items=hits, next=cursor, index=page.index)

    found = cli.work(work)
    if as_json:
        print_json(found.items)
    else:
        _print_hits(cli, found.items, now)
        if found.next is not None:
            cli.note(f"[dim]The first {counted(len(found.items), 'item')}. Show more: --limit {2 * limit}[/]")
    _warn(found.index)


def latest(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of items.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the items that were stored last, of all streams: new and changed ones."""
    cli = CliContext.of(context)
    hits = cli.work(lambda operations: take(operations.each_latest_item(), limit))
    if as_json:
        return print_json(hits)
    return _print_hits(cli, hits, datetime.now(UTC))


def _end_of(text: str, now: datetime) -> datetime:
    """Return the time, or the end of a day."""
    is_day = _DAY.fullmatch(text) is not None
    return parse_moment(text, now) + (timedelta(days=1) if is_day else timedelta())


async def _update_briefly(operations: AsyncOperations) -> None:
    """Index what is new, if no scheduler does it."""
    status = await operations.search_index()
    if status.condition not in {"ready", "off"} and not status.is_followed and status.most_items:
        await operations.update_search_index(patience=_BRIEFLY)


def _warn(status: IndexStatus) -> None:
    """Print to stderr what a search may have missed."""
    if status.condition == "building":
        text = f"The search index is being built: {_describe_progress(status)}. Some items are not found yet."
    elif status.condition == "missing" and status.most_items:
        text = "There is no search index yet, so nothing is found."
    elif status.condition == "behind":
        lag = relative(datetime.now(UTC) - timedelta(seconds=status.lag_seconds), datetime.now(UTC))
        text = f"{counted(status.pending, 'newer item')} cannot be found yet, the oldest was collected {lag}."
    else:
        return
    hint = "" if status.is_followed else " Start `floodmark up`, or: floodmark index update"
    console(stderr=True).print(f"[yellow]{plain(text)}[/]{plain(hint)}", soft_wrap=True)


def _print_hits(cli: CliContext, hits: Iterable[SearchHit], now: datetime) -> None:
    shown = 0
    for shown, hit in enumerate(hits, start=1):
        if shown > 1:
            cli.out.print()
        when = relative(hit.occurred_at or hit.collected_at, now)
        head = Text.assemble((safe(hit.stream), "bold"), f"  {safe(hit.key)}  ", (when, "dim"))
        cli.out.print(head + Text("  deleted", style="red") if hit.deleted else head, soft_wrap=True)
        for parts in (hit.title, hit.snippet):
            if parts and cli.out.is_terminal:
                cli.out.print(Padding(_mark(parts), (0, 0, 0, 2)))
            elif parts:
                cli.out.print(Text("  ") + _mark(parts), soft_wrap=True)
        if hit.url is not None and hit.url != hit.key:
            cli.out.print(Text(f"  {safe(hit.url)}", style="dim"), soft_wrap=True)
    if not shown:
        cli.out.print("Nothing found.")


def _mark(parts: Iterable[SnippetPart]) -> Text:
    return Text.assemble(*((safe(part.text), _MATCH if part.is_match else "") for part in parts))


index = command_group("Show, update and rebuild the search index.", default="show")


@index.command("show")
def show_index(context: typer.Context, as_json: AsJson = False) -> None:
    """Show how complete the search index is."""
    cli = CliContext.of(context)
    status = cli.work(lambda operations: operations.search_index())
    if as_json:
        return print_json(status)
    now = datetime.now(UTC)
    words = {
        "ready": "ready",
        "behind": "behind: newer items are missing",
        "building": f"being built: {_describe_progress(status)}",
        "missing": "none yet" if status.most_items else "none yet: nothing was collected",
        "off": "off: SEARCH_ENABLED is false",
    }
    cli.out.print(
        facts(
            [
                ("state", words[status.condition]),
                ("items", f"{status.items:,}"),
                ("to be indexed", f"{status.pending:,}" if status.pending else None),
                ("lag", f"{status.lag_seconds:g} s" if status.pending else None),
                ("updated", both(status.updated_at, now) if status.updated_at else None),
                ("followed by", "the scheduler" if status.is_followed else "no scheduler is running"),
            ]
        )
    )
    if status.condition in {"behind", "building", "missing"} and status.most_items and not status.is_followed:
        cli.note("[dim]Update it now: floodmark index update[/]")
    return None


@index.command("update")
def update_index(context: typer.Context, as_json: AsJson = False) -> None:
    """Index everything that is new. A running scheduler does this by itself."""
    _complete(CliContext.of(context), as_json=as_json)


@index.command("rebuild")
def rebuild_index(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> None:
    """Build the search index again from all items. Collecting goes on; searches find less until it is complete."""
    cli = CliContext.of(context)
    if confirm(cli, "empty the search index and build it again", yes=yes):
        cli.work(lambda operations: operations.rebuild_search_index())
        _complete(cli, as_json=as_json)


def _complete(cli: CliContext, *, as_json: bool) -> None:
    """Update the index until it is complete, or wait until a scheduler has done so, and show the progress."""

    async def work(operations: AsyncOperations) -> IndexStatus:
        with _progress() as progress:
            task = progress.add_task("indexing", total=None)
            while True:
                status = await operations.search_index()
                progress.update(task, completed=status.items, total=status.most_items or None)
                if status.condition in {"ready", "off"} or not status.most_items:
                    return status
                if not status.is_followed:
                    status = await operations.update_search_index(patience=_AT_ONCE)
                    if status.condition == "behind":
                        # Events without a number: only a scheduler gives them one.
                        return status
                else:
                    await asyncio.sleep(_POLL_SECONDS)

    status = cli.work(work)
    if as_json:
        return print_json(status)
    cli.out.print(f"{counted(status.items, 'item')} can be searched.")
    return _warn(status)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(stderr=True),
        transient=True,
    )


def _describe_progress(status: IndexStatus) -> str:
    return f"{status.items:,} of at most {status.most_items:,} items"
