"""Executions, their statistics, and dead letters."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.counts import list_counts
from floodmark.model.dead_letters import DeadLetterGroup, fingerprint
from floodmark.model.durations import format_duration
from floodmark.model.execution import Execution, State
from floodmark.model.ids import floor_id
from floodmark.model.notes import notes_of
from floodmark.model.page import take
from floodmark.model.shapes import execution_shape
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.executions import Letters
from floodmark.operations.timeline import is_in_slices

from .confirmation import confirm
from .output import counted, facts, json_line, plain, print_json, short, state, table
from .parsing import duration
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both, relative

_ID_SHOWN = 13
_IDS_AT_ONCE = 1000
_MOST_CHOSEN = 10_000
JobFilter = Annotated[str | None, typer.Argument(metavar="JOB", help="Only executions of this job.")]

dlq = command_group("List, retry and drop dead letters.", default="ls")


def history(
    context: typer.Context,
    *,
    job: JobFilter = None,
    state: Annotated[
        list[State] | None,
        typer.Option(metavar="STATE", help=f"Only {', '.join(State)}; can be repeated."),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only executions of the last 24h, 7d, ...")] = None,
    execution: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Show this execution with all details.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List executions, newest first."""
    cli = CliContext.of(context)
    if execution is not None:
        return _show_one(cli, execution, as_json=as_json)
    oldest = "" if since is None else floor_id(datetime.now(UTC) - (duration(since) or timedelta()))

    async def work(operations: AsyncOperations) -> list[Execution]:
        page = await take(operations.each_execution(job=job, states=state or None, limit=min(limit, 200)), limit)
        if not page and job is not None:
            # Raises NotFound if there is no such job.
            await operations.job(job)
        return page

    found = list(takewhile(lambda e: e.execution_id >= oldest, cli.work(work)))
    if as_json:
        return print_json([execution_shape(execution) for execution in found])
    if not found:
        return cli.out.print("No executions." if since is None else f"No executions within {plain(since)}.")
    # The time after reading: no execution of the list may be in the future.
    return cli.out.print(executions_table(found, datetime.now(UTC)))


def _show_one(cli: CliContext, execution_id: str, *, as_json: bool) -> None:
    found, now = cli.work(lambda operations: operations.execution(execution_id)), datetime.now(UTC)
    if as_json:
        return print_json(execution_shape(found))
    cli.out.print(Text.assemble((found.job_name, "bold"), "  ", state(found.state)))
    cli.out.print(
        facts(
            [
                ("id", found.execution_id),
                ("due", both(found.scheduled_for, now)),
                ("triggered by", found.trigger),
                (
                    "last started" if is_in_slices(found) else "started",
                    both(found.started_at, now) if found.started_at else None,
                ),
                ("ended", both(found.completed_at, now) if found.completed_at else None),
                ("took", time_taken(found)),
                ("attempt", str(found.attempt)),
                ("worker", found.worker),
                ("items", items_words(found)),
                ("waits until", both(found.not_before, now) if found.not_before else None),
                ("reason", found.reason),
                ("error", found.error_message),
                ("result", summary_of(found)),
                *(("note", note) for note in notes_of(found.result)),
                (
                    "details" if summary_of(found) else "result",
                    None if found.result is None else json_line(found.result),
                ),
            ]
        )
    )
    for attempt in found.error_details if isinstance(found.error_details, list) else ():
        cli.out.print()
        cli.out.print(plain(_attempt(attempt)))
    return None


def time_taken(execution: Execution) -> str | None:
    """Return the working time of all slices and attempts, and the total time if it was interrupted."""
    if execution.duration_seconds is None:
        return None
    worked = format_duration(timedelta(seconds=execution.duration_seconds))
    if not is_in_slices(execution) or execution.completed_at is None:
        return worked
    whole = format_duration(execution.completed_at - execution.scheduled_for)
    return f"{worked} of work, {whole} from due to end"


def _attempt(attempt: Any) -> str:
    """Return the text of a failed attempt, with its traceback if there is one."""
    if not isinstance(attempt, dict):
        return str(attempt)
    details = attempt.get("details")
    trace = details.get("traceback", "") if isinstance(details, dict) else ""
    number, worker = attempt.get("attempt", "?"), attempt.get("worker", "?")
    return f"Attempt {number} on {worker}: {attempt.get('error', '')}\n{trace}".rstrip()


def executions_table(executions: Sequence[Execution], now: datetime, *, with_job: bool = True) -> Table:
    """Return a table with one line per execution."""
    digits = digits_shown([e.execution_id for e in executions])
    rows = [[*([e.job_name] if with_job else []), *_cells(e, now, digits)] for e in executions]
    return table(*(["job"] if with_job else []), "state", "due", "took", "items", "id", "what", rows=rows)


def digits_shown(ids: Sequence[str]) -> int:
    """Return the length of id prefixes that are unique; ids of the same moment start alike."""
    alike = (
        sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(*pair, strict=False)))
        for pair in pairwise(sorted(ids))
    )
    return max(_ID_SHOWN, 1 + max(alike, default=0))


def _cells(execution: Execution, now: datetime, digits: int) -> list[object]:
    took = execution.duration_seconds
    trigger = "" if execution.trigger == "schedule" else execution.trigger
    what = execution.error_message or execution.reason or summary_of(execution) or trigger
    if notes := notes_of(execution.result):
        what = f"{short(what, 45)} ({counted(len(notes), 'note')})".strip()
    return [
        state(execution.state),
        both(execution.scheduled_for, now),
        "-" if took is None else format_duration(timedelta(seconds=took)),
        items_words(execution),
        Text(execution.execution_id[:digits], style="dim"),
        short(what, 60),
    ]


def summary_of(execution: Execution) -> str | None:
    """Return the source's summary of the run, if any: `visited 40, unchanged 38, changed 2`."""
    result = execution.result
    return str(result["summary"]) if isinstance(result, dict) and "summary" in result else None


def items_words(execution: Execution) -> str:
    """ "3 new, 12 known"; a dash for none."""
    return list_counts(new=execution.items_new, changed=execution.items_changed, known=execution.items_known) or "-"


def stats(
    context: typer.Context,
    *,
    job: JobFilter = None,
    days: Annotated[float, typer.Option(min=0, help="Number of days to look back.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Show statistics of executions: number, success rate and duration."""
    cli = CliContext.of(context)

    statistics = cli.work(lambda operations: operations.statistics(days, job))
    if as_json:
        return print_json(statistics)
    lengths = {
        name: "-" if statistics[name] is None else format_duration(timedelta(seconds=statistics[name]))
        for name in ("avg_duration", "min_duration", "max_duration")
    }
    cli.out.print(f"[bold]{plain(job or 'All jobs')}[/], last {days:g} days")
    return cli.out.print(
        facts(
            [
                ("executions", f"{statistics['total_executions']:,}"),
                ("successful", f"{statistics['successful']:,}"),
                ("failed", f"{statistics['failed']:,}"),
                ("cancelled", f"{statistics['cancelled']:,}"),
                (
                    "success rate",
                    f"{statistics['success_rate']:.1f} %" if statistics["successful"] + statistics["failed"] else "-",
                ),
                ("average", lengths["avg_duration"]),
                ("shortest", lengths["min_duration"]),
                ("longest", lengths["max_duration"]),
            ]
        )
    )


def cleanup(
    context: typer.Context,
    *,
    days: Annotated[float, typer.Option(min=0, max=3650, help="Delete executions older than this many days.")] = 90,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old executions from the history. HISTORY_KEEP_DAYS does this automatically.

    floodmark cleanup --days 30 --yes
    """
    cli = CliContext.of(context)
    if confirm(cli, f"delete executions that ended more than {days:g} days ago", dry_run=dry_run, yes=yes):
        deleted = cli.work(lambda operations: operations.cleanup_old_executions(days))
        if as_json:
            return print_json({"deleted": deleted})
        cli.out.print(f"Deleted {counted(deleted, 'execution')}.")
    return None


GroupOption = Annotated[str | None, typer.Option(metavar="MARK", help="Only this group, as shown by `floodmark dlq`.")]
LetterIds = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This execution; can be repeated.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


def mark(fingerprint: str) -> str:
    """Return a short, stable name of a group of errors."""
    return hashlib.blake2b(fingerprint.encode(), digest_size=3).hexdigest()


@dlq.command("ls")
def list_letters(
    context: typer.Context,
    *,
    job: JobFilter = None,
    each: Annotated[bool, typer.Option("--each", help="List each execution instead of groups by error.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries, with --each.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters by error, the most frequent first."""
    cli = CliContext.of(context)

    async def look(operations: AsyncOperations) -> tuple[list[DeadLetterGroup], list[Execution]]:
        if each:
            return [], await take(operations.each_letter(job=job), limit)
        return await operations.letter_groups(job), []

    groups, found = cli.work(look)
    now = datetime.now(UTC)
    if as_json:
        shapes = [msgspec.structs.asdict(group) | {"mark": mark(group.fingerprint)} for group in groups]
        return print_json([execution_shape(letter) for letter in found] if each else shapes)
    if not groups and not found:
        return cli.out.print("No dead letters.")
    if each:
        return cli.out.print(executions_table(found, now))
    rows = [
        [
            Text(mark(group.fingerprint), style="bold"),
            f"{group.count:,}",
            relative(group.newest, now),
            short(", ".join(group.jobs), 40),
            short(group.example, 90),
        ]
        for group in groups
    ]
    cli.out.print(table("mark", "count", "newest", "jobs", "error", rows=rows, right=("count",)))
    return cli.note(f"[dim]Retry them: floodmark dlq retry --group {mark(groups[0].fingerprint)}[/]")


@dlq.command("retry")
def retry_letters(
    context: typer.Context,
    *,
    job: JobFilter = None,
    group: GroupOption = None,
    ids: LetterIds = None,
    everything: All = False,
    dry_run: DryRun = False,
) -> None:
    """Run dead letters again, with all attempts."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: _select_letters(operations, job, group, ids, everything=everything))
    if confirm(cli, f"retry {_describe(found)}", dry_run=dry_run, yes=True):
        count = cli.work(lambda operations: _change_in_portions(operations.retry_letters, found))
        cli.out.print(f"[green]Queued[/] {counted(count, 'execution')} again.")


@dlq.command("drop")
def drop_letters(
    context: typer.Context,
    *,
    job: JobFilter = None,
    group: GroupOption = None,
    ids: LetterIds = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Drop dead letters; they stay in the history as cancelled."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: _select_letters(operations, job, group, ids, everything=everything))
    if confirm(cli, f"drop {_describe(found)}", dry_run=dry_run, yes=yes):
        count = cli.work(lambda operations: _change_in_portions(operations.drop_letters, found))
        cli.out.print(f"Dropped {counted(count, 'dead letter')}.")


async def _select_letters(
    operations: AsyncOperations, job: str | None, group: str | None, ids: Sequence[str] | None, *, everything: bool
) -> list[Execution]:
    """Return the selected dead letters, newest first."""
    if everything == bool(job or group or ids):
        raise InvalidInput(
            "no dead letters are selected: name a job, --group, --id, or --all", hint="list them with: floodmark dlq"
        )
    if ids:
        found = [await operations.execution(text) for text in ids]
        alive = [execution for execution in found if execution.state is not State.DEAD]
        if alive:
            raise InvalidInput(
                f"execution {alive[0].execution_id} is {alive[0].state}, not dead", hint="floodmark dlq ls --each"
            )
        return found
    found = await take(operations.each_letter(job=job), _MOST_CHOSEN)
    chosen = [letter for letter in found if group is None or mark(fingerprint(letter.error_message)) == group]
    if not chosen:
        raise NotFound("no dead letters match", hint="list them with: floodmark dlq")
    return chosen


async def _change_in_portions(change: Callable[[Letters], Awaitable[int]], letters: Sequence[Execution]) -> int:
    """Change the letters in requests of limited size, and return the number of changed ones."""
    ids, count, unknown = [letter.execution_id for letter in letters], 0, None
    for start in range(0, len(ids), _IDS_AT_ONCE):
        try:
            count += await change(Letters(ids=tuple(ids[start : start + _IDS_AT_ONCE])))
        except NotFound as error:
            # Someone else changed them first. That is an error only if it is true of all.
            unknown = error
    if not count and unknown is not None:
        raise unknown
    return count


def _describe(letters: Sequence[Execution]) -> str:
    names = list(dict.fromkeys(letter.job_name for letter in letters))
    more = f" and {len(names) - 3} more jobs" if len(names) > 3 else ""
    return f"{counted(len(letters), 'dead letter')} of {', '.join(names[:3])}{more}"
