"""Change jobs: one, or many by filter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from floodmark.errors import InvalidInput
from floodmark.model.bulk import ChangeJob
from floodmark.model.job import Job, When
from floodmark.model.job_fields import FIELDS
from floodmark.model.shapes import job_shape
from floodmark.operations.declared import AsyncOperations
from floodmark.triggers.parsing import words_of

from .bulk import BulkOptions, ManyOptions, Verb, change_many
from .job_options import OPTION_FIELDS, JobOptions
from .job_selection import EditedSelection, JobSelection
from .option_groups import expand_options
from .output import facts, json_line, plain, print_json
from .parsing import params_of
from .root import CliContext

_CHANGE, _BULK = Verb("change", "Changed", is_detailed=True), BulkOptions()
# Columns that are derived, or that every change updates.
_DERIVED = ("version", "updated_at", "next_run", "planned_until", "invalid_reason")
# The fields that `--clear` accepts.
_CLEARABLE: Mapping[str, Any] = {
    field.attribute.replace("_", "-"): field
    for field in (*OPTION_FIELDS, FIELDS["params"], FIELDS["account"])
    if field.is_optional or field.kind in (tuple, Mapping)
}


@expand_options
def edit(
    context: typer.Context,
    *,
    selection: EditedSelection,
    target: Annotated[str | None, typer.Option(help="New target.")] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Account to collect with.")] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help=f"Clear a field: {', '.join(_CLEARABLE)}; can be repeated."),
    ] = None,
    many: ManyOptions,
    options: JobOptions,
) -> None:
    """Change jobs. Fields that are not named stay unchanged; `--param NAME=null` removes a parameter.

    floodmark edit news --every 2m --priority high

    floodmark edit --where-tag news --every 10m
    """
    cli = CliContext.of(context)
    cli.set("FLOODMARK_APP", options.app)

    def changes_for(job: Job) -> dict[str, Any]:
        changes = _changes(job, options, target=target, account=account, clear=clear or ())
        if not changes:
            raise InvalidInput(
                "no change is given", hint=f"give one, for example: floodmark edit {job.name} --every 2m"
            )
        return changes

    if selection.single is None:
        return _edit_many(cli, selection, replace(_BULK, **asdict(many), as_json=options.as_json), changes_for)

    async def work(operations: AsyncOperations) -> tuple[Job, Job | None, dict[str, Any]]:
        before = await operations.job(str(selection.single))
        changes = changes_for(before)
        if many.dry_run:
            return before, None, changes
        return before, await operations.change_job(before.job_id, changes, version=before.version), changes

    before, after, changes = cli.work(work)
    if after is None:
        cli.out.print(f"Would change {plain(before.name)}. Nothing was changed.")
        cli.out.print(facts((name, json_line(value)) for name, value in changes.items()))
    elif options.as_json:
        print_json(job_shape(after))
    else:
        _print_changes(cli, before, after)
    return None


def _edit_many(
    cli: CliContext, selection: JobSelection, options: BulkOptions, changes_for: Callable[[Job], dict[str, Any]]
) -> None:
    def change(job: Job) -> ChangeJob:
        # With its version: params are merged with those that were read.
        return ChangeJob(name=job.job_id, columns=changes_for(job), version=job.version)

    change_many(cli, selection, options, _CHANGE, change)


def _changes(
    before: Job, options: JobOptions, *, target: str | None, account: str | None, clear: Sequence[str]
) -> dict[str, Any]:
    named = {"target": target, "account": account, "params": _params(before, options), **options.columns()}
    changes = {name: value for name, value in named.items() if value is not None}
    return changes | _when(before, options) | _clear(clear, changes)


def _when(before: Job, options: JobOptions) -> dict[str, Any]:
    """Return all columns of the schedule, so that none of the old kind of schedule is left."""
    if options.has_schedule:
        when = options.when(timezone=before.when.timezone)
        return {name: getattr(when, name) for name in When.__struct_fields__}
    return {} if options.tz is None else {"timezone": options.tz}


def _params(before: Job, options: JobOptions) -> dict[str, Any] | None:
    if not options.param:
        return None
    merged = dict(before.params) | params_of(options.param)
    return {name: value for name, value in merged.items() if value is not None}


def _clear(fields: Sequence[str], changes: Mapping[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {}
    for word in fields:
        field = _CLEARABLE.get(word)
        if field is None:
            raise InvalidInput(f"--clear {word[:60]!r} is not a field that can be cleared", hint=", ".join(_CLEARABLE))
        if field.name in changes:
            raise InvalidInput(f"--clear {word} contradicts the new value", hint="use only one of them")
        empty[field.name] = None if field.is_optional else field.default
    return empty


def _print_changes(cli: CliContext, before: Job, after: Job) -> None:
    old, new = job_shape(before), job_shape(after)
    rows = [(f"  {name}", f"{json_line(old.get(name))} -> {json_line(new[name])}") for name in _changed_names(old, new)]
    if before.when != after.when:
        rows.insert(0, ("  when", f"{words_of(before.when)} -> {words_of(after.when)}"))
    if not rows:
        return cli.out.print(f"{plain(after.name)} already has these values.")
    cli.out.print(f"[green]Changed[/] [bold]{plain(after.name)}[/]")
    return cli.out.print(facts(rows))


def _changed_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    hidden = (*_DERIVED, *When.__struct_fields__)
    return [name for name in new if name not in hidden and old.get(name) != new[name]]
