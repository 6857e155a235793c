"""Keep jobs in a file: export them, and apply the file to an installation."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.importers.job_lists.columns import RowColumns
from floodmark.importers.job_lists.exporting import defaults_of, export_jobs, write_json, write_toml
from floodmark.importers.job_lists.opml import write_opml
from floodmark.importers.job_lists.reading import read_list
from floodmark.importers.job_lists.references import References
from floodmark.importers.job_lists.rows import JobList, ListedRow
from floodmark.model.bulk import Action, BulkReport, LineStatus, PutJob, RemoveJob
from floodmark.model.counts import list_counts
from floodmark.model.job import SCHEDULER_VERSION, Job
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.jobs import JobFilter
from floodmark.sources.form import find_form

from .add_many import read_file
from .bulk import BulkOptions, print_failures, send_all, show_value
from .confirmation import confirm
from .job_selection import FilterOptions, filter_of
from .option_groups import expand_options
from .output import counted, plain, print_json, safe, short
from .root import CliContext, command_group

_WRITERS = {"toml": write_toml, "json": write_json, "opml": write_opml}
_LISTED, _VALUE_WIDTH = 50, 60
# The status of a line, the sign in front of its job, and its colour.
_SIGNS: Mapping[LineStatus, tuple[str, str]] = {
    "added": ("+", "green"),
    "changed": ("~", "yellow"),
    "removed": ("-", "red"),
}

jobs = command_group("Keep jobs in a file.")


@jobs.command("export")
@expand_options
def export(
    context: typer.Context,
    *,
    filters: FilterOptions,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="toml, json, or opml for feeds.")] = "toml",
) -> None:
    """Print jobs as a file for Git. Jobs that code declares are left out, and secrets are not exported.

    floodmark jobs export --tag news > news.toml
    """
    cli = CliContext.of(context)
    if form not in _WRITERS:
        raise InvalidInput(f"{form[:40]!r} is not a format", hint="use toml, json or opml")
    which = filter_of(filters.values, declared=False)

    async def work(operations: AsyncOperations) -> list[Job]:
        return [job async for job in operations.each_job(which) if job.scheduler_version == SCHEDULER_VERSION]

    settings = cli.local_settings()
    defaults = defaults_of(settings.default_policy(), settings.scheduler_job_timeout, settings.parser_retry_max)
    given = msgspec.to_builtins(msgspec.structs.replace(which, declared=None))
    selection = {name: value for name, value in given.items() if value is not None}
    sys.stdout.write(_WRITERS[form](export_jobs(cli.work(work), defaults, selection)))


@expand_options
def apply(
    context: typer.Context,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File of `floodmark jobs export`; - is standard input.")],
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="toml, json or csv (default: by its name or content)."),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Delete jobs that are not in the file.")] = False,
    options: BulkOptions,
) -> None:
    """Make the jobs of an installation like those in a file: show the difference, ask, and change only what differs.

    floodmark apply jobs.toml --dry-run
    """
    cli, references = CliContext.of(context), References(os.environ)
    listed = read_list(read_file(file), name=file, form=form)
    rows = list(_sort_by_dependency(listed.rows))
    puts = [_put(row, listed.defaults, references) for row in rows]
    if prune and any(isinstance(put, FloodmarkError) for put in puts):
        # A row that cannot be read may be about a job that would be deleted.
        raise InvalidInput(
            "nothing is deleted while jobs of the file are invalid", hint="see them: repeat it without --prune"
        )
    removed: list[RemoveJob] = cli.work(lambda operations: _find_others(operations, listed)) if prune else []
    actions = [*puts, *removed]
    places = [*(_place(row) for row in rows), *(action.name for action in removed)]

    def send(*, dry_run: bool) -> BulkReport:
        return cli.work(lambda operations: send_all(cli, operations, actions, atomic=options.atomic, dry_run=dry_run))

    with cli.busy("comparing"):
        report = send(dry_run=True)
    is_asked = not options.dry_run and report.count(*_SIGNS) and not (options.atomic and report.failed)
    if not options.as_json:
        _print_differences(cli, report, actions, references, is_whole=options.dry_run)
    if is_asked:
        confirm(cli, f"{_summarise(report)} jobs", yes=options.yes, dry_run=False)
        with cli.busy("applying"):
            report = send(dry_run=False)
    if options.as_json:
        print_json(report)
    else:
        print_failures(cli, report, places)
        cli.out.print(_describe_result(report))
    if report.failed:
        raise typer.Exit(1)


def _put(row: ListedRow, defaults: Mapping[str, Any], references: References) -> Action | FloodmarkError:
    if row.error is not None:
        return row.error
    values = {**defaults, **row.values}
    try:
        for name in ("name", "source", "target"):
            if not isinstance(values.get(name), str):
                raise InvalidInput(f"its {name} is missing", hint="each job needs a name, a source and a target")
        reader = RowColumns(find_form(values["source"]).options)
        return PutJob(job=references.resolve(reader.read(values)))
    except FloodmarkError as error:
        return error


async def _find_others(operations: AsyncOperations, listed: JobList) -> list[RemoveJob]:
    """Return the removal of jobs that the file does not name, among those that it was exported from."""
    try:
        which = msgspec.convert({**(listed.selection or {}), "declared": False}, JobFilter)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the selection of the file is invalid: {error}", hint="export it again") from None
    named = {row.values.get("name") for row in listed.rows}
    return [
        RemoveJob(name=job.name, version=job.version)
        async for job in operations.each_job(which)
        if job.name not in named and job.scheduler_version == SCHEDULER_VERSION
    ]


def _sort_by_dependency(rows: Sequence[ListedRow]) -> Iterator[ListedRow]:
    """Yield jobs after those they depend on: a server gets a large file in several requests."""
    numbers = {row.values.get("name"): number for number, row in enumerate(rows)}
    graph: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        needs = row.values.get("depends_on") or []
        graph[number] = [numbers[name] for name in needs if isinstance(name, str) and name in numbers]
    try:
        order = list(TopologicalSorter(graph).static_order()) if any(graph.values()) else range(len(rows))
    except CycleError:
        # The server refuses the jobs of the cycle.
        order = range(len(rows))
    return (rows[number] for number in order)


def _place(row: ListedRow) -> str:
    name = row.values.get("name")
    return f"{row.where}: {name}" if isinstance(name, str) else row.where


def _print_differences(
    cli: CliContext,
    report: BulkReport,
    actions: Sequence[Action | FloodmarkError],
    references: References,
    *,
    is_whole: bool,
) -> None:
    lines = list(zip(report.results, actions, strict=True))
    changing = [(line, action) for line, action in lines if line.status in _SIGNS]
    for line, action in changing if is_whole else changing[:_LISTED]:
        sign, colour = _SIGNS[line.status]
        words = [safe(line.name or "?"), *([_describe_new(action, references)] if line.status == "added" else [])]
        cli.out.print(Text(f"{sign} {'  '.join(words)}", style=colour))
        for name, before in (line.before or {}).items():
            old, new = (references.hide(show_value(name, value)) for value in (before, (line.after or {}).get(name)))
            cli.out.print(Text(f"    {name}: {short(old, _VALUE_WIDTH)} -> {short(new, _VALUE_WIDTH)}"))
    if not is_whole and len(changing) > _LISTED:
        cli.out.print(f"... and {counted(len(changing) - _LISTED, 'more job')}; --dry-run shows all")
    for line, _ in lines:
        if line.status == "skipped" and report.failed == 0:
            cli.note(f"[dim]{plain(line.name)} is left alone: {plain(line.note)}.[/]")


def _describe_new(action: Action | FloodmarkError, references: References) -> str:
    assert isinstance(action, PutJob)
    return references.hide(show_value("target", action.job.get("target"))).strip('"')


def _summarise(report: BulkReport) -> str:
    verbs = {"add": report.count("added"), "change": report.count("changed"), "delete": report.count("removed")}
    return ", ".join(f"{verb} {number:,}" for verb, number in verbs.items() if number)


def _describe_result(report: BulkReport) -> str:
    counts = list_counts(
        added=report.count("added"),
        changed=report.count("changed"),
        deleted=report.count("removed"),
        unchanged=report.count("unchanged", "existing"),
        failed=report.failed,
        **{"left alone": report.count("skipped")},
    )
    is_done = report.applied and report.count(*_SIGNS)
    would = "Would be: " if report.dry_run and report.count(*_SIGNS) else ""
    return f"{would}{counts or 'no jobs'}.{'' if is_done else ' Nothing was changed.'}"
