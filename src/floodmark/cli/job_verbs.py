"""Pause, resume, enable, disable, tag and delete jobs: one, or many by filter."""

from typing import Annotated

import typer

from floodmark.errors import InvalidInput
from floodmark.model.bulk import ChangeJob, PauseJob, RemoveJob, ResumeJob, TagJob
from floodmark.model.job import Job
from floodmark.model.shapes import job_shape
from floodmark.operations.declared import AsyncOperations
from floodmark.triggers.parsing import words_of

from .bulk import BulkOptions, Verb, change_many
from .confirmation import confirm
from .job_selection import JobSelection
from .option_groups import expand_options
from .output import plain, print_json
from .root import CliContext

_PAUSE = Verb("pause", "Paused", "paused already")
_RESUME = Verb("resume", "Resumed", "not paused")
_ENABLE = Verb("enable the schedule of", "Enabled the schedule of", "enabled already")
_DISABLE = Verb("disable the schedule of", "Disabled the schedule of", "disabled already")
_TAG = Verb("change the tags of", "Changed the tags of", is_detailed=True)
_REMOVE = Verb("delete", "Deleted", is_asked=True)


@expand_options
def pause(
    context: typer.Context,
    *,
    selection: JobSelection,
    reason: Annotated[str | None, typer.Option(help="Reason, shown by other commands.")] = None,
    options: BulkOptions,
) -> None:
    """Pause jobs: none of their executions start until they are resumed.

    floodmark pause --tag news --reason "the site is being rebuilt"
    """
    cli = CliContext.of(context)
    if selection.single is None or options.dry_run:
        return change_many(
            cli, selection, options, _PAUSE, lambda job: PauseJob(name=job.job_id, reason=_reason(job, reason))
        )
    found = cli.work(lambda operations: operations.pause_job(str(selection.single), reason))
    if options.as_json:
        return print_json(job_shape(found))
    cli.out.print(f"[yellow]Paused[/] [bold]{plain(found.name)}[/]")
    return cli.note(f"[dim]Resume it: floodmark resume {plain(found.name)}[/]")


def _reason(job: Job, reason: str | None) -> str | None:
    """Return the reason of a pause; a job that is paused already keeps its own."""
    return job.pause_reason if reason is None and job.paused else reason


@expand_options
def resume(context: typer.Context, *, selection: JobSelection, options: BulkOptions) -> None:
    """Resume paused jobs."""
    cli = CliContext.of(context)
    if selection.single is None or options.dry_run:
        return change_many(cli, selection, options, _RESUME, lambda job: ResumeJob(name=job.job_id))

    async def work(operations: AsyncOperations) -> tuple[Job, str]:
        found = await operations.resume_job(str(selection.single))
        return found, (await operations.explain(found.job_id)).sentence

    found, sentence = cli.work(work)
    if options.as_json:
        return print_json(job_shape(found))
    return cli.out.print(f"[green]Resumed[/] [bold]{plain(found.name)}[/]: {plain(sentence)}")


@expand_options
def enable(context: typer.Context, *, selection: JobSelection, options: BulkOptions) -> None:
    """Enable the schedule of jobs."""
    _switch(CliContext.of(context), selection, options, is_on=True)


@expand_options
def disable(context: typer.Context, *, selection: JobSelection, options: BulkOptions) -> None:
    """Disable the schedule of jobs. They can still be run manually; `pause` prevents that too."""
    _switch(CliContext.of(context), selection, options, is_on=False)


def _switch(cli: CliContext, selection: JobSelection, options: BulkOptions, *, is_on: bool) -> None:
    columns = {"schedule_enabled": is_on}
    if selection.single is None or options.dry_run:
        verb = _ENABLE if is_on else _DISABLE
        return change_many(cli, selection, options, verb, lambda job: ChangeJob(name=job.job_id, columns=columns))

    async def work(operations: AsyncOperations) -> tuple[Job, str]:
        changed = await operations.change_job(str(selection.single), columns)
        return changed, (await operations.explain(changed.job_id)).sentence

    changed, sentence = cli.work(work)
    if options.as_json:
        return print_json(job_shape(changed))
    word = "[green]Enabled[/]" if is_on else "[yellow]Disabled[/]"
    cli.out.print(f"{word} [bold]{plain(changed.name)}[/]: {plain(sentence)}")
    if not is_on:
        cli.note(f"[dim]Enable it again: floodmark enable {plain(changed.name)}[/]")
    return None


@expand_options
def tag(
    context: typer.Context,
    *,
    selection: JobSelection,
    add: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Add this tag; can be repeated.")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Remove this tag; can be repeated.")] = None,
    options: BulkOptions,
) -> None:
    """Add tags to jobs, and remove others.

    floodmark tag --source telegram --add news --remove old
    """
    cli = CliContext.of(context)
    if not add and not remove:
        raise InvalidInput("no tag is given", hint="for example: floodmark tag news --add daily")
    change_many(cli, selection, options, _TAG, lambda job: TagJob(name=job.job_id, add=add or [], remove=remove or []))


@expand_options
def rm(context: typer.Context, *, selection: JobSelection, options: BulkOptions) -> None:
    """Delete jobs. Their history and their items stay.

    floodmark rm --tag old --dry-run
    """
    cli = CliContext.of(context)
    if selection.single is None:
        return change_many(cli, selection, options, _REMOVE, lambda job: RemoveJob(name=job.job_id))
    found = cli.work(lambda operations: operations.job(str(selection.single)))
    action = f"delete the job {found.name} ({words_of(found.when)})"
    if not confirm(cli, action, dry_run=options.dry_run, yes=options.yes):
        return None
    cli.work(lambda operations: operations.remove_job(found.job_id))
    if options.as_json:
        return print_json(job_shape(found))
    return cli.out.print(f"Deleted {plain(found.name)}. Its history and items are kept.")
