"""Views, forwards and reactions of posts over time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from floodmark.model.durations import format_duration
from floodmark.model.engagement import EngagementSample, PostEngagement
from floodmark.model.page import cursor_of, take
from floodmark.operations.declared import AsyncOperations

from .output import plain, print_json, safe, short, table
from .root import AsJson, CliContext
from .times import relative

_COUNTS = ("views", "forwards", "replies")


def engagement(
    context: typer.Context,
    *,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream, or a job that collects it.")],
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Only the post with this key.")] = None,
    before: Annotated[str | None, typer.Option(metavar="KEY", help="Start before this post.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of posts.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show views, forwards and reactions of posts over time, newest posts first.

    floodmark engagement telegram-harbour
    """
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> list[PostEngagement]:
        if key is not None:
            return list((await operations.engagement(stream, key=key)).items)
        return await take(operations.each_engagement(stream, cursor=cursor_of("engagement", before)), limit)

    found = cli.work(work)
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print("No posts.")
    if key is not None:
        return cli.out.print(_one_post(found[0]))
    cli.out.print(_many_posts(found))
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark engagement {plain(stream)} --before {plain(found[-1].key)}[/]")
    return None


def _one_post(post: PostEngagement) -> object:
    rows = [
        [
            _occasion(sample),
            _age(post, sample),
            *(_number(getattr(sample, name)) for name in _COUNTS),
            _reactions(sample),
        ]
        for sample in post.samples
    ]
    return table("sample", "age", *_COUNTS, "reactions", rows=rows, right=_COUNTS)


def _many_posts(posts: Sequence[PostEngagement]) -> object:
    """Return a table of views: one column for each age that any of the posts was sampled at."""
    now = datetime.now(UTC)
    ages = sorted({sample.after_seconds for post in posts for sample in post.samples if sample.after_seconds})
    names = ("collected", *(format_duration(timedelta(seconds=age)) for age in ages), "newest")
    rows = []
    for post in posts:
        by_name = {_occasion(sample): sample for sample in post.samples}
        newest = post.samples[-1] if post.samples else None
        rows.append(
            [
                Text(safe(post.key), style="bold"),
                "-" if post.occurred_at is None else relative(post.occurred_at, now),
                *(_number(by_name[name].views) if name in by_name else "-" for name in names),
                "-" if newest is None else _number(newest.forwards),
                "-" if newest is None else _reactions(newest),
            ]
        )
    columns = [f"views, {name}" for name in names]
    return table("key", "posted", *columns, "forwards", "reactions", rows=rows, right=(*columns, "forwards"))


def _occasion(sample: EngagementSample) -> str:
    if sample.after_seconds is None:
        return sample.occasion
    return format_duration(timedelta(seconds=sample.after_seconds))


def _age(post: PostEngagement, sample: EngagementSample) -> str:
    return "-" if post.occurred_at is None else format_duration(sample.seen_at - post.occurred_at)


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _reactions(sample: EngagementSample) -> str:
    found = sample.reactions or ()
    shown = (f"{one.get('emoji') or one.get('type') or 'custom'} {one.get('count', 0):,}" for one in found)
    return short("  ".join(shown), 60) or "-"
