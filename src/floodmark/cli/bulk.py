"""Change many jobs: show what would be done, ask, send it in portions, and list what failed."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.text import Text

from floodmark.errors import FloodmarkError
from floodmark.model.bulk import Action, BulkLine, BulkReport, LineStatus
from floodmark.model.job import Job
from floodmark.model.problems import problem_of
from floodmark.operations.bulk import action_to_send
from floodmark.operations.declared import AsyncOperations
from floodmark.security.masking import mask_answer

from .confirmation import confirm
from .job_selection import JobSelection
from .output import counted, json_line, plain, print_json, short, table
from .root import AsJson, CliContext, DryRun, Yes

_NAMED, _LISTED = 5, 20
_DONE: tuple[LineStatus, ...] = ("added", "changed", "removed")
_VALUE_WIDTH = 60
# Half of what a request may contain (API_BODY_MAX), and few enough for a quick response.
_BYTES_AT_ONCE, _OPERATIONS_AT_ONCE = 500_000, 1000


@dataclass(frozen=True, kw_only=True)
class ManyOptions:
    """How many jobs are changed."""

    dry_run: DryRun = False
    yes: Yes = False
    atomic: Annotated[bool, typer.Option("--atomic", help="Change all of them, or none if one fails.")] = False


@dataclass(frozen=True, kw_only=True)
class BulkOptions(ManyOptions):
    """The same for commands without other options of jobs."""

    as_json: AsJson = False


class Verb(NamedTuple):
    """What happens to jobs: "pause", "Paused", and how the others were before: "paused already"."""

    do: str
    done: str
    already: str = "unchanged"
    is_asked: bool = False  # also if the jobs are named
    is_detailed: bool = False  # show which columns change


def change_many(
    cli: CliContext, selection: JobSelection, options: BulkOptions, verb: Verb, make: Callable[[Job], Action]
) -> None:
    """Do something to all chosen jobs: show it, ask, do it, and print the result. Exit code 1 if a job failed."""

    async def look(operations: AsyncOperations) -> tuple[list[Action], BulkReport]:
        actions: list[Action] = [make(job) for job in await selection.choose(operations)]
        return actions, await send_bulk(cli, operations, actions, atomic=options.atomic, dry_run=True)

    with cli.busy("looking at the jobs"):
        actions, tried = cli.work(look)
    if not actions:
        return print_json(tried) if options.as_json else cli.out.print("No job matches.")
    is_asked = verb.is_asked or selection.is_filtered
    if options.dry_run or (options.atomic and tried.failed) or not tried.count("changed", "removed"):
        # Nothing will be changed: there is nothing to confirm.
        return print_report(cli, tried, verb, as_json=options.as_json)
    if verb.is_detailed and not options.as_json:
        print_differences(cli, tried)
    if is_asked:
        confirm(cli, describe(tried, verb.do), yes=options.yes, dry_run=False)
    with cli.busy(f"{counted(len(actions), 'job')}"):
        report = cli.work(lambda operations: send_bulk(cli, operations, actions, atomic=options.atomic))
    return print_report(cli, report, verb, as_json=options.as_json)


async def send_bulk(
    cli: CliContext, operations: AsyncOperations, actions: Sequence[Action], *, atomic: bool, dry_run: bool = False
) -> BulkReport:
    """Send operations in as many requests as they need; an atomic request is one request."""
    portions = [actions] if atomic or cli.url() is None else _portions(actions)
    parts = [await operations.bulk_jobs(some, atomic=atomic, dry_run=dry_run) for some in (portions if actions else [])]
    return BulkReport(
        applied=not dry_run and all(part.applied for part in parts),
        dry_run=dry_run,
        failed=sum(part.failed for part in parts),
        results=tuple(line for part in parts for line in part.results),
    )


async def send_all(
    cli: CliContext,
    operations: AsyncOperations,
    actions: Sequence[Action | FloodmarkError],
    *,
    atomic: bool,
    dry_run: bool,
) -> BulkReport:
    """Send the operations, and return a report with the rows that were refused before in their places."""
    good = [action for action in actions if isinstance(action, Action)]
    is_refused = atomic and len(good) < len(actions)
    sent = await send_bulk(cli, operations, good, atomic=atomic, dry_run=dry_run or is_refused)
    results = iter(sent.results)
    lines = [
        next(results) if isinstance(action, Action) else BulkLine(status="failed", error=problem_of(action))
        for action in actions
    ]
    failed = sum(line.status == "failed" for line in lines)
    return BulkReport(applied=sent.applied and not is_refused, dry_run=dry_run, failed=failed, results=tuple(lines))


def _portions(actions: Sequence[Action]) -> Iterator[list[Action]]:
    some, size = list[Action](), 0
    for action in actions:
        bytes_of = len(msgspec.json.encode(action_to_send(action), enc_hook=str))
        if some and (len(some) == _OPERATIONS_AT_ONCE or size + bytes_of > _BYTES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(action)
        size += bytes_of
    if some:
        yield some


def print_report(
    cli: CliContext, report: BulkReport, verb: Verb, *, as_json: bool = False, lines: Sequence[str] = ()
) -> None:
    """Print the result of a bulk request. `lines` say where in a file each operation is. Exit code 1 if one failed."""
    if as_json:
        print_json(report)
    else:
        if verb.is_detailed and report.dry_run:
            print_differences(cli, report)
        print_failures(cli, report, lines)
        cli.out.print(summarise(report, verb))
    if report.failed:
        raise typer.Exit(1)


def summarise(report: BulkReport, verb: Verb) -> str:
    """Return what was done, in words: "Paused 3 jobs, 1 paused already, 1 failed"."""
    counts = {
        verb.already: report.count("unchanged", "existing"),
        "left alone": report.count("skipped"),
        "failed": report.failed,
    }
    parts = [f"{number:,} {words}" for words, number in counts.items() if number]
    if done := report.count(*_DONE):
        words = describe(report, verb.done) if report.applied else f"Would {describe(report, verb.do)}"
        parts.insert(0, plain(words))
    return f"{'; '.join(parts)}.{'' if report.applied and done else ' Nothing was changed.'}"


def print_failures(cli: CliContext, report: BulkReport, lines: Sequence[str] = ()) -> None:
    """List the operations that failed, with the reasons."""
    alike = defaultdict[tuple[str, str | None], list[str]](list)
    for place, line in enumerate(report.results):
        if line.error is not None:
            alike[line.error.detail, line.error.hint].append(lines[place] if lines else line.name or "?")
    rows = [
        [Text(first_names(places), style="red"), f"{detail} ({hint})" if hint else detail]
        for (detail, hint), places in list(alike.items())[:_LISTED]
    ]
    if rows:
        cli.out.print(table("failed", "", rows=rows))
    if len(alike) > _LISTED:
        cli.out.print(f"... and {counted(len(alike) - _LISTED, 'more failure')}; --json lists all")


def print_differences(cli: CliContext, report: BulkReport) -> None:
    """Print which columns change, each kind of change once with the number of jobs."""
    seen = Counter(
        (name, show_value(name, before), show_value(name, (line.after or {}).get(name)))
        for line in report.results
        for name, before in (line.before or {}).items()
    )
    rows = [
        [Text(name, style="dim"), f"{short(old, _VALUE_WIDTH)} -> {short(new, _VALUE_WIDTH)}", counted(count, "job")]
        for (name, old, new), count in seen.most_common(_LISTED)
    ]
    if rows:
        cli.out.print(table("", "", "", rows=rows))
    if len(seen) > _LISTED:
        cli.out.print(f"... and {counted(len(seen) - _LISTED, 'more change')}")


def first_names(names: Sequence[str]) -> str:
    """Return the first few names of a list, and the number of others."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def describe(report: BulkReport, verb: str) -> str:
    """Return what a bulk request does, in words: "pause 3 jobs: a, b, c"."""
    names = [line.name or "?" for line in report.results if line.status in _DONE]
    return f"{verb} {counted(len(names), 'job')}: {first_names(names)}"


def show_value(name: str, value: Any) -> str:
    """Return the value of a column without secrets; 300.0 seconds are 300."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return json_line(mask_answer({name: whole})[name])
