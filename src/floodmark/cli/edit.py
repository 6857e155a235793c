"""Change a job, and enable or disable its schedule."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from floodmark.errors import InvalidInput
from floodmark.model.job import Job, When
from floodmark.model.job_fields import FIELDS
from floodmark.model.shapes import job_shape
from floodmark.operations.declared import AsyncOperations
from floodmark.triggers.parsing import words_of

from .job_options import OPTION_FIELDS, JobOptions
from .option_groups import expand_options
from .output import facts, json_line, plain, print_json
from .parsing import params_of
from .root import AsJson, CliContext, DryRun, JobName

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
    job: JobName,
    target: Annotated[str | None, typer.Option(help="New target.")] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Account to collect with.")] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help=f"Clear a field: {', '.join(_CLEARABLE)}; can be repeated."),
    ] = None,
    dry_run: DryRun = False,
    options: JobOptions,
) -> None:
    """Change a job. Fields that are not named stay unchanged; `--param NAME=null` removes a parameter.

    floodmark edit news --every 2m --priority high
    """
    cli = CliContext.of(context)
    cli.set("FLOODMARK_APP", options.app)

    async def work(operations: AsyncOperations) -> tuple[Job, Job | None, dict[str, Any]]:
        before = await operations.job(job)
        changes = _changes(before, options, target=target, account=account, clear=clear or ())
        if not changes:
            raise InvalidInput(
                "no change is given", hint=f"give one, for example: floodmark edit {before.name} --every 2m"
            )
        if dry_run:
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


def enable(context: typer.Context, job: JobName, as_json: AsJson = False) -> None:
    """Enable the schedule of a job."""
    _switch(CliContext.of(context), job, is_on=True, as_json=as_json)


def disable(context: typer.Context, job: JobName, as_json: AsJson = False) -> None:
    """Disable the schedule of a job. It can still be run manually; `pause` prevents that too."""
    _switch(CliContext.of(context), job, is_on=False, as_json=as_json)


def _switch(cli: CliContext, job: str, *, is_on: bool, as_json: bool) -> None:
    async def work(operations: AsyncOperations) -> tuple[Job, str]:
        changed = await operations.change_job(job, {"schedule_enabled": is_on})
        return changed, (await operations.explain(changed.job_id)).sentence

    changed, sentence = cli.work(work)
    if as_json:
        return print_json(job_shape(changed))
    word = "[green]Enabled[/]" if is_on else "[yellow]Disabled[/]"
    cli.out.print(f"{word} [bold]{plain(changed.name)}[/]: {plain(sentence)}")
    if not is_on:
        cli.note(f"[dim]Enable it again: floodmark enable {plain(changed.name)}[/]")
    return None


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
