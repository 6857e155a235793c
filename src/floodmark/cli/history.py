"""What ran, how it went, and what failed for good."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.dead_letters import fingerprint
from floodmark.model.durations import format_duration
from floodmark.model.execution import Execution, State
from floodmark.model.ids import floor_id
from floodmark.model.notes import notes_of
from floodmark.model.page import take
from floodmark.model.shapes import execution_shape

from .asking import go_ahead
from .parsing import duration
from .root import AsJson, Desk, DryRun, Yes
from .showing import counted, facts, json_line, plain, print_json, short, state, table
from .times import both, relative

if TYPE_CHECKING:
    from floodmark.model.dead_letters import DeadLetterGroup
    from floodmark.operations.declared import AsyncOperations
    from floodmark.operations.executions import Letters

_ID_SHOWN = 13
_IDS_AT_ONCE = 1000
_MOST_CHOSEN = 10_000
# Start and length of an attempt are read from two clocks.
_ROUNDING_SECONDS = 0.5
JobFilter = Annotated[str | None, typer.Argument(metavar="JOB", help="Only executions of this job.")]

dlq = typer.Typer(help="List, retry and drop dead letters.")


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
    desk = Desk.of(context)
    if execution is not None:
        return _one(desk, execution, as_json=as_json)
    oldest = "" if since is None else floor_id(datetime.now(UTC) - (duration(since) or timedelta()))

    async def work(operations: "AsyncOperations") -> list[Execution]:
        page = await take(operations.each_execution(job=job, states=state or None, limit=min(limit, 200)), limit)
        if not page and job is not None:
            # Nothing ran, or nothing of that name: the second deserves to be said.
            await operations.job(job)
        return page

    found = list(takewhile(lambda e: e.execution_id >= oldest, desk.work(work)))
    if as_json:
        return print_json([execution_shape(execution) for execution in found])
    if not found:
        return desk.out.print(
            "Nothing ran." if since is None else f"Nothing ran within {plain(since)}.", highlight=False
        )
    # Not before it was read: nothing that ran is still to come.
    return desk.out.print(executions_table(found, datetime.now(UTC)))


def _one(desk: Desk, execution_id: str, *, as_json: bool) -> None:
    found, now = desk.work(lambda operations: operations.execution(execution_id)), datetime.now(UTC)
    if as_json:
        return print_json(execution_shape(found))
    desk.out.print(Text.assemble((found.job_name, "bold"), "  ", state(found.state)))
    desk.out.print(
        facts(
            [
                ("id", found.execution_id),
                ("due", both(found.scheduled_for, now)),
                ("triggered by", found.trigger),
                (_started_word(found), both(found.started_at, now) if found.started_at else None),
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
                ("in full" if summary_of(found) else "result", _in_full(found.result)),
            ]
        )
    )
    for attempt in found.error_details if isinstance(found.error_details, list) else ():
        desk.out.print()
        desk.out.print(plain(_attempt(attempt)), highlight=False)
    return None


def _started_word(execution: Execution) -> str:
    return "last started" if _is_in_slices(execution) else "started"


def time_taken(execution: Execution) -> str | None:
    """The time it worked, over all slices and attempts; and how long it took with the waits between them."""
    if execution.duration_seconds is None:
        return None
    worked = format_duration(timedelta(seconds=execution.duration_seconds))
    if not _is_in_slices(execution) or execution.completed_at is None:
        return worked
    whole = format_duration(execution.completed_at - execution.scheduled_for)
    return f"{worked} of work, {whole} from due to end"


def _is_in_slices(execution: Execution) -> bool:
    """Whether it worked longer than since its last start: it was put off or tried again in between."""
    started, ended, worked = execution.started_at, execution.completed_at, execution.duration_seconds
    if started is None or worked is None:
        return False
    return ended is None or worked > (ended - started).total_seconds() + _ROUNDING_SECONDS


def _in_full(result: Any) -> str | None:
    return None if result is None else json_line(result)


def _attempt(told: Any) -> str:
    """One failed attempt, with its traceback if it left one."""
    if not isinstance(told, dict):
        return str(told)
    details = told.get("details")
    trace = details.get("traceback", "") if isinstance(details, dict) else ""
    return f"Attempt {told.get('attempt', '?')} on {told.get('worker', '?')}: {told.get('error', '')}\n{trace}".rstrip()


def executions_table(executions: Sequence[Execution], now: datetime, *, with_job: bool = True) -> Table:
    """Executions, one a line."""
    digits = digits_shown([e.execution_id for e in executions])
    rows = [[*([e.job_name] if with_job else []), *_cells(e, now, digits)] for e in executions]
    return table(*(["job"] if with_job else []), "state", "due", "took", "items", "id", "what", rows=rows)


def digits_shown(ids: Sequence[str]) -> int:
    """How much of each id is shown: what fired in the same moment begins alike, and has to be told apart."""
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
    """What the source says of the run in a few words, if it does: `visited 40, unchanged 38, changed 2`."""
    result = execution.result
    return str(result["summary"]) if isinstance(result, dict) and "summary" in result else None


def items_words(execution: Execution) -> str:
    """ "3 new, 12 known"; a dash for none."""
    counts = {"new": execution.items_new, "changed": execution.items_changed, "known": execution.items_known}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "-"


def stats(
    context: typer.Context,
    *,
    job: JobFilter = None,
    days: Annotated[float, typer.Option(min=0, help="Number of days to look back.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Show statistics of executions: number, success rate and duration."""
    desk = Desk.of(context)

    told = desk.work(lambda operations: operations.statistics(days, job))
    if as_json:
        return print_json(told)
    lengths = {
        name: "-" if told[name] is None else format_duration(timedelta(seconds=told[name]))
        for name in ("avg_duration", "min_duration", "max_duration")
    }
    desk.out.print(f"[bold]{plain(job or 'All jobs')}[/], last {days:g} days", highlight=False)
    return desk.out.print(
        facts(
            [
                ("executions", f"{told['total_executions']:,}"),
                ("successful", f"{told['successful']:,}"),
                ("failed", f"{told['failed']:,}"),
                ("cancelled", f"{told['cancelled']:,}"),
                ("success rate", f"{told['success_rate']:.1f} %" if told["successful"] + told["failed"] else "-"),
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
    desk = Desk.of(context)
    if go_ahead(desk, f"delete executions that ended more than {days:g} days ago", dry_run=dry_run, yes=yes):
        deleted = desk.work(lambda operations: operations.cleanup_old_executions(days))
        if as_json:
            return print_json({"deleted": deleted})
        desk.out.print(f"Deleted {counted(deleted, 'execution')}.", highlight=False)
    return None


GroupOption = Annotated[str | None, typer.Option(metavar="MARK", help="Only this group, as shown by `floodmark dlq`.")]
LetterIds = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This execution; can be repeated.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


def mark(fingerprint: str) -> str:
    """A short name for a group of errors, the same for as long as the error is."""
    return hashlib.blake2b(fingerprint.encode(), digest_size=3).hexdigest()


@dlq.callback(invoke_without_command=True)
def letters(context: typer.Context) -> None:
    """List, retry and drop dead letters."""
    if context.invoked_subcommand is None:
        list_letters(context)


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
    desk = Desk.of(context)

    async def look(operations: "AsyncOperations") -> "tuple[list[DeadLetterGroup], list[Execution]]":
        if each:
            return [], await take(operations.each_letter(job=job), limit)
        return await operations.letter_groups(job), []

    groups, found = desk.work(look)
    now = datetime.now(UTC)
    if as_json:
        shapes = [msgspec.structs.asdict(group) | {"mark": mark(group.fingerprint)} for group in groups]
        return print_json([execution_shape(letter) for letter in found] if each else shapes)
    if not groups and not found:
        return desk.out.print("No dead letters.", highlight=False)
    if each:
        return desk.out.print(executions_table(found, now))
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
    desk.out.print(table("mark", "count", "newest", "jobs", "error", rows=rows, right=("count",)))
    return desk.note(f"[dim]Try them again: floodmark dlq retry --group {mark(groups[0].fingerprint)}[/]")


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
    desk = Desk.of(context)
    found = desk.work(lambda operations: _chosen(operations, job, group, ids, everything=everything))
    if go_ahead(desk, f"retry {_described(found)}", dry_run=dry_run, yes=True):
        count = desk.work(lambda operations: _in_portions(operations.retry_letters, found))
        desk.out.print(f"[green]Queued[/] {counted(count, 'execution')} again.", highlight=False)


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
    desk = Desk.of(context)
    found = desk.work(lambda operations: _chosen(operations, job, group, ids, everything=everything))
    if go_ahead(desk, f"drop {_described(found)}", dry_run=dry_run, yes=yes):
        count = desk.work(lambda operations: _in_portions(operations.drop_letters, found))
        desk.out.print(f"Dropped {counted(count, 'dead letter')}.", highlight=False)


async def _chosen(
    operations: "AsyncOperations", job: str | None, group: str | None, ids: Sequence[str] | None, *, everything: bool
) -> list[Execution]:
    """The letters that were named, all of them newest first."""
    if everything == bool(job or group or ids):
        raise InvalidInput(
            "say which dead letters: a job, --group, --id, or --all", hint="see what there is with: floodmark dlq"
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
        raise NotFound("there are no such dead letters", hint="see what there is with: floodmark dlq")
    return chosen


async def _in_portions(change: "Callable[[Letters], Awaitable[int]]", letters: Sequence[Execution]) -> int:
    """Change these letters, as many at once as a request may name; return how many were changed."""
    from floodmark.operations.executions import Letters  # noqa: PLC0415 - loaded with the operations

    ids, count, unknown = [letter.execution_id for letter in letters], 0, None
    for start in range(0, len(ids), _IDS_AT_ONCE):
        try:
            count += await change(Letters(ids=tuple(ids[start : start + _IDS_AT_ONCE])))
        except NotFound as error:
            # Another person was quicker. That is an error only if it is true of all of them.
            unknown = error
    if not count and unknown is not None:
        raise unknown
    return count


def _described(letters: Sequence[Execution]) -> str:
    names = list(dict.fromkeys(letter.job_name for letter in letters))
    more = f" and {len(names) - 3} more jobs" if len(names) > 3 else ""
    return f"{counted(len(letters), 'dead letter')} of {', '.join(names[:3])}{more}"


__all__ = ["dlq", "executions_table", "history", "stats"]
