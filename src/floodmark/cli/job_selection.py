"""Choose jobs: by name, or by the filters that `ls` has. Each filter is declared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, NamedTuple

import typer

from floodmark.errors import InvalidInput
from floodmark.model.job import Job
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.jobs import ANY_JOB, JobFilter
from floodmark.triggers.parsing import priority_of

from .option_groups import Options

_PANEL = "Filters"


class _Filter(NamedTuple):
    """An option that sets a field of `JobFilter`; `other` is the flag for the opposite of a yes-or-no filter."""

    field: str
    help: str
    metavar: str | None = None
    other: str | None = None


_FILTERS = (
    _Filter("source", "Only jobs of this source."),
    _Filter("tag", "Only jobs with this tag."),
    _Filter("match", "Only jobs whose name or stream fits, as in 'telegram:*'.", "PATTERN"),
    _Filter("domain", "Only jobs of this domain."),
    _Filter("priority", "Only jobs of this priority: high, normal or low."),
    _Filter("paused", "Only paused jobs, or only others.", other="not-paused"),
    _Filter("enabled", "Only jobs with an enabled schedule, or a disabled one.", other="disabled"),
    _Filter("stale", "Only jobs not read completely for much longer than usual, or only others.", other="fresh"),
)


def filter_parameters(prefix: str = "") -> dict[str, Parameter]:
    """Return an option for each filter; all names begin with `prefix`."""
    return {one.field: _parameter(one, prefix) for one in _FILTERS}


def _parameter(one: _Filter, prefix: str) -> Parameter:
    flags = f"--{prefix}{one.field}" if one.other is None else f"--{prefix}{one.field}/--{prefix}{one.other}"
    info = typer.Option(flags, metavar=one.metavar, help=one.help, show_default=False, rich_help_panel=_PANEL)
    kind: Any = str if one.other is None else bool
    name = f"{prefix}{one.field}".replace("-", "_")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info])


def filter_of(values: Mapping[str, Any], **more: Any) -> JobFilter:
    """Return the filter that these options and `more` fields describe."""
    # In the order of `_FILTERS`, whatever their prefix is.
    given = dict(zip((one.field for one in _FILTERS), values.values(), strict=True)) | more
    if given["priority"] is not None:
        given["priority"] = priority_of(given["priority"])
    return JobFilter(**given)


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """The filters of `ls`."""

    values: Annotated[Mapping[str, Any], Options(filter_parameters())]


@dataclass(frozen=True, kw_only=True)
class JobSelection:
    """Jobs to change: named ones, or those that match filters."""

    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="JOB", help="Names or ids of jobs, or unique prefixes.")
    ] = None
    filters: Annotated[Mapping[str, Any], Options(filter_parameters())]
    everything: Annotated[bool, typer.Option("--all", help="All jobs.", rich_help_panel=_PANEL)] = False

    @property
    def single(self) -> str | None:
        """The job, if exactly one is named."""
        return self.jobs[0] if self.jobs and len(self.jobs) == 1 and not self.is_filtered else None

    @property
    def is_filtered(self) -> bool:
        """Whether filters choose the jobs."""
        return self.everything or filter_of(self.filters) != ANY_JOB

    async def choose(self, operations: AsyncOperations) -> list[Job]:
        """Return the chosen jobs, each once, in order of name."""
        which = filter_of(self.filters)
        if self.jobs and self.is_filtered:
            raise InvalidInput("jobs are named, and a filter is given", hint="use only one of them")
        if not self.jobs and not self.is_filtered:
            raise InvalidInput("no job is named", hint="name one or more, or use a filter (see --help) or --all")
        if not self.jobs:
            return [job async for job in operations.each_job(which)]
        found = {job.job_id: job for job in [await operations.job(name) for name in self.jobs]}
        return sorted(found.values(), key=lambda job: job.name)


@dataclass(frozen=True, kw_only=True)
class EditedSelection(JobSelection):
    """The same for `edit`, whose own options have the names of some filters."""

    filters: Annotated[Mapping[str, Any], Options(filter_parameters("where-"))]
    everything: Annotated[bool, typer.Option("--all", help="All jobs.", rich_help_panel=_PANEL)] = False
