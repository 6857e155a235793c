"""Completeness of targets: list gaps, and fill them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.completeness import TargetCompleteness
from floodmark.model.page import cursor_of, take
from floodmark.rules.completeness import ACTIONS, describe_place

from .output import counted, plain, print_json, safe, short, table
from .root import AsJson, CliContext
from .times import relative


def gaps(
    context: typer.Context,
    *,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only the target of this job or stream.")] = None,
    fill: Annotated[bool, typer.Option("--fill", help="Queue a run of the job that reads its gaps.")] = False,
    after: Annotated[str | None, typer.Option(metavar="STREAM", help="Start after this stream.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of targets.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List gaps in what was collected, with the reason and what to do; or fill those of a job.

    floodmark gaps telegram-harbour --fill
    """
    cli = CliContext.of(context)
    if fill:
        if job is None:
            raise InvalidInput("--fill needs a job", hint="name one that has gaps: floodmark gaps JOB --fill")
        return _fill(cli, job, as_json=as_json)
    cursor = cursor_of("completeness", after)
    found = cli.work(
        lambda operations: take(operations.each_completeness(job=job, with_gaps=job is None, cursor=cursor), limit)
    )
    if as_json:
        return print_json(found)
    if job is not None:
        return _show(cli, found)
    if not found:
        return cli.out.print("No gaps are known.")
    _print_gaps(cli, found)
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark gaps --after {plain(found[-1].stream)}[/]")
    return None


def _show(cli: CliContext, found: Sequence[TargetCompleteness]) -> None:
    if not found:
        cli.out.print("Nothing is known about its completeness.")
        return cli.note("It was not collected yet, or its source has no order.")
    for one in found:
        cli.out.print(f"{plain(one.stream)}: {plain(one.summary)}.")
        if one.deleted:
            cli.out.print(f"{one.deleted:,} ids do not exist at the source any more.")
    if any(one.gaps for one in found):
        _print_gaps(cli, found)
    return None


def _print_gaps(cli: CliContext, found: Sequence[TargetCompleteness]) -> None:
    now = datetime.now(UTC)
    rows = [
        [
            Text(safe(one.job or one.stream), style="bold"),
            gap.kind,
            safe(describe_place(one.axis, gap)),
            f"{gap.count:,}",
            relative(gap.since, now),
            short(gap.reason, 100),
        ]
        for one in found
        for gap in one.gaps
    ]
    cli.out.print(table("job", "gap", "place", "up to", "since", "why", rows=rows, right=("up to",)))
    for kind in dict.fromkeys(gap.kind for one in found for gap in one.gaps):
        name = next(one.job or one.stream for one in found if any(gap.kind == kind for gap in one.gaps))
        cli.note(f"[dim]{kind}: {plain(ACTIONS[kind].format(job=name))}[/]")


def _fill(cli: CliContext, job: str, *, as_json: bool) -> None:
    done = cli.work(lambda operations: operations.fill_gaps(job))
    if as_json:
        return print_json(done)
    if done.run is None:
        cli.out.print("There are no gaps that a run can fill.")
        return cli.note(f"See the others: floodmark gaps {plain(job)}") if done.left else None
    waits = f" It waits: {done.run.reason}." if done.run.reason else ""
    cli.out.print(f"A run will read {counted(done.gaps, 'gap')}: {plain(done.run.execution_id)}.{plain(waits)}")
    return cli.note(f"See the result: floodmark gaps {plain(job)}")
