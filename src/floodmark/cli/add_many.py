"""`add` with several targets, with a file of targets, or with those that the source can list."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.importers.job_lists.columns import RowColumns
from floodmark.importers.job_lists.reading import FORMATS, LARGEST_FILE, read_list
from floodmark.importers.job_lists.rows import JobList, ListedRow
from floodmark.model.accounts import AccountRow
from floodmark.model.bulk import Action, AddJob, BulkReport
from floodmark.model.job import Policy, When
from floodmark.model.job_fields import spec_from
from floodmark.model.spec import JobSpec
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.handlers.job_columns import when_of_columns
from floodmark.sources.form import FoundTarget, JobForm

from .bulk import Verb, describe, print_report, send_all
from .confirmation import confirm
from .job_options import JobOptions
from .output import counted, plain, table
from .parsing import params_of
from .root import CliContext, DryRun, Yes

if TYPE_CHECKING:
    from floodmark.settings import Settings

PANEL = "Many at once"
_LISTED = 20
ADD = Verb("add", "Added", "there already")


@dataclass(frozen=True, kw_only=True)
class AddManyOptions:
    """The options of `add` for many jobs."""

    file: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Add the targets in a file, or - for standard input: one per line, CSV with columns such as target, "
            "name, tags and every, OPML, JSON or TOML.",
            rich_help_panel=PANEL,
        ),
    ] = None
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"Format of the file: {', '.join(FORMATS)} (default: by its name or content).",
            rich_help_panel=PANEL,
        ),
    ] = None
    match: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only targets or titles that fit, as in '*news*'.", rich_help_panel=PANEL),
    ] = None
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Add all of them, or none if one fails.", rich_help_panel=PANEL)
    ] = False
    dry_run: DryRun = False
    yes: Yes = False


class NewJobs(Struct, frozen=True, kw_only=True):
    """What `add` creates: the source, its form, and the columns that all jobs get."""

    source: str
    form: JobForm
    base: Mapping[str, Any]
    check: Callable[[JobSpec], None] | None
    """Checks a job before it is sent, if this process has its code."""


def base_columns(options: JobOptions, params: Mapping[str, Any], account: str | None) -> dict[str, Any]:
    """Return the columns that options set for every job."""
    when = options.when()
    schedule = {name: value for name in When.__struct_fields__ if (value := getattr(when, name)) is not None}
    given = {**options.columns(), **(schedule if options.has_schedule else {})}
    if options.tz is not None:
        given["timezone"] = options.tz
    merged = params_of(options.param or ()) | dict(params)
    found = {**given, **({"params": merged} if merged else {}), **({"account": account} if account else {})}
    for name in ("name", "stream"):
        if name in found:
            raise InvalidInput(f"--{name} is for one job", hint=f"leave it out, or give each its {name} in a CSV file")
    return found


def read_targets(targets: Sequence[str], options: AddManyOptions, reader: RowColumns) -> JobList:
    """Return the targets that are named, and those of the file."""
    listed = JobList()
    for target in targets:
        listed.add(target, {"target": target})
    if options.file is None:
        return listed
    found = read_list(read_file(options.file), name=options.file, form=options.form)
    # An unknown column refuses the file, not each of its lines.
    reader.require_known(found.header)
    for row in found.rows:
        if _fits(options.match, str(row.values.get("target", ""))):
            listed.add(row.where, {**found.defaults, **row.values}, row.error)
    listed.notes += found.notes
    return listed


def rows_of_found(found: Sequence[FoundTarget], options: AddManyOptions, *, with_extra: bool) -> JobList:
    """Return the targets that a source has listed, without those that were not asked for."""
    listed = JobList()
    for one in found:
        if _fits(options.match, one.target, one.title) and (with_extra or not one.is_extra):
            listed.add(one.target, {"target": one.target, **one.columns})
    return listed


def _fits(pattern: str | None, *texts: str) -> bool:
    return pattern is None or any(fnmatchcase(text, pattern) for text in texts)


def add_many(
    cli: CliContext, new: NewJobs, listed: JobList, options: AddManyOptions, *, as_json: bool, ask: bool
) -> None:
    """Add the jobs and print the result. Exit code 1 if one failed. `ask` shows them first."""
    if not listed.rows:
        raise InvalidInput("there is no target", hint=f"for example: floodmark add {new.source} {new.form.metavar}")
    settings = cli.local_settings()
    advice: list[str] = []

    async def work(operations: AsyncOperations, *, dry_run: bool) -> BulkReport:
        accounts = [row async for row in operations.each_account()] if new.form.uses_account else []
        actions = _build(new, listed.rows, settings, accounts)
        if new.form.find_missing is not None and (spec := _first_spec(new, actions, settings)):
            advice[:] = [words for words in [new.form.find_missing(spec, settings, accounts)] if words]
        return await send_all(cli, operations, actions, atomic=options.atomic, dry_run=dry_run)

    if ask and not options.dry_run:
        tried = cli.work(lambda operations: work(operations, dry_run=True))
        if tried.count("added") and not as_json:
            rows = [[line.name or ""] for line in tried.results[:_LISTED] if line.status == "added"]
            cli.out.print(table("", rows=rows))
        if tried.count("added"):
            confirm(cli, describe(tried, ADD.do), yes=options.yes, dry_run=False)
    with cli.busy(f"adding {counted(len(listed.rows), 'job')}"):
        report = cli.work(lambda operations: work(operations, dry_run=options.dry_run))
    try:
        print_report(cli, report, ADD, as_json=as_json, lines=[_place(row) for row in listed.rows])
    finally:
        if not as_json:
            words = [*(f"{note}." for note in listed.notes), *(advice if report.count("added") else ())]
            for text in words:
                cli.note(f"[yellow]{plain(text)}[/]")


def _build(
    new: NewJobs, rows: Sequence[ListedRow], settings: "Settings", accounts: Sequence[AccountRow]
) -> list[Action | FloodmarkError]:
    """Return the operation for each row, or the error that refuses it."""
    reader, policy = RowColumns(new.form.options), settings.default_policy()
    tenants = {account.name: account.tenant_id for account in accounts}
    found: list[Action | FloodmarkError] = []
    for row in rows:
        try:
            if row.error is not None:
                raise row.error
            columns = _merge(new.base, reader.read(row.values), new.source)
            if columns.get("tenant_id") is None and (tenant := tenants.get(columns.get("account", ""))):
                columns["tenant_id"] = tenant
            found.append(AddJob(job=_complete(new, columns, settings, policy)))
        except FloodmarkError as error:
            found.append(error)
    return found


def _merge(base: Mapping[str, Any], own: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the columns of a job: its own, else those of the command line. Tags and params are joined."""
    if own.get("source", source) != source:
        hint = "use floodmark apply for jobs of several sources"
        raise InvalidInput(f"it is a job of the source {str(own['source'])[:60]}", hint=hint)
    schedule = set(When.__struct_fields__) - {"timezone"}
    kept = {name: value for name, value in base.items() if name not in schedule or schedule.isdisjoint(own)}
    columns = {**kept, **own, "source": source}
    if "tags" in base and "tags" in own:
        columns["tags"] = list(dict.fromkeys([*base["tags"], *own["tags"]]))
    if "params" in base and "params" in own:
        columns["params"] = {**base["params"], **own["params"]}
    return columns


def _complete(new: NewJobs, columns: dict[str, Any], settings: "Settings", policy: Policy) -> dict[str, Any]:
    """Return the columns with the target as the form of the source writes it."""
    if new.form.complete is None and new.check is None:
        return columns
    spec = _spec(columns, policy)
    if new.check is not None:
        new.check(spec)
    if new.form.complete is None:
        return columns
    completed = new.form.complete(spec, settings)
    # The schedule that a source has by default is left to the server.
    stream = {} if completed.stream is None else {"stream": completed.stream}
    return {**columns, "target": completed.target, **stream}


def _spec(columns: Mapping[str, Any], policy: Policy) -> JobSpec:
    target = columns.get("target", columns.get("url"))
    if not isinstance(target, str):
        raise InvalidInput("the target is missing", hint="name the column `target`")
    return spec_from({**columns, "target": target}, when=when_of_columns(columns), policy=policy)


def _first_spec(new: NewJobs, actions: Sequence[Action | FloodmarkError], settings: "Settings") -> JobSpec | None:
    first = next((action for action in actions if isinstance(action, AddJob)), None)
    return None if first is None else _spec(first.job, settings.default_policy())


def _place(row: ListedRow) -> str:
    target = row.values.get("target")
    return row.where if target is None or target == row.where else f"{row.where}: {str(target)[:80]}"


def read_file(name: str) -> bytes:
    """Return the content of a file, or of standard input for `-`; of a large one only the beginning."""
    hint = "name a readable file, or - for standard input"
    try:
        if name == "-":
            return sys.stdin.buffer.read(LARGEST_FILE + 1)
        with Path(name).expanduser().open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror or error}", hint=hint) from None
