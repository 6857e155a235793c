"""Bulk requests: changes of many jobs in one request, and what became of each."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from .field import NAME, TEXT
from .problems import LineProblem

MOST_OPERATIONS = 10_000
MOST_TAGS = 100

JobReference = Annotated[str, Meta(min_length=1, max_length=200, description="Name or id of a job.")]
BulkVersion = Annotated[
    Annotated[int, Meta(ge=1, le=2**31)] | None,
    Meta(description="Refused if the job is no longer at this version."),
]
_Tags = Annotated[list[Annotated[str, NAME]], Meta(max_length=MOST_TAGS)]
LineStatus = Literal["added", "existing", "changed", "unchanged", "removed", "skipped", "failed"]


class Action(Struct, frozen=True, kw_only=True, tag_field="op", forbid_unknown_fields=True):
    """The base of all operations of a bulk request; `op` says which it is."""


class AddJob(Action, frozen=True, kw_only=True, tag="add"):
    """Create a job. If a job without other values exists for the target, it is left as it is."""

    job: Annotated[Mapping[str, Any], Meta(description="Its columns, as in `POST /jobs`.")]


class PutJob(Action, frozen=True, kw_only=True, tag="put"):
    """Create the job of this name, or replace it as `PUT /jobs` does. A job that code declares is left as it is."""

    job: Annotated[Mapping[str, Any], Meta(description="Its columns, as in `POST /jobs`; `name` is required.")]


class ChangeJob(Action, frozen=True, kw_only=True, tag="change"):
    """Change columns of a job."""

    name: JobReference
    columns: Annotated[Mapping[str, Any], Meta(description="The new columns, as in `PATCH /jobs`.")]
    version: BulkVersion = None


class TagJob(Action, frozen=True, kw_only=True, tag="tag"):
    """Add and remove tags of a job."""

    name: JobReference
    add: Annotated[_Tags, Meta(description="Tags to add.")] = []
    remove: Annotated[_Tags, Meta(description="Tags to remove.")] = []


class PauseJob(Action, frozen=True, kw_only=True, tag="pause"):
    """Pause a job."""

    name: JobReference
    reason: Annotated[Annotated[str, TEXT] | None, Meta(description="Shown where the job does not run.")] = None


class ResumeJob(Action, frozen=True, kw_only=True, tag="resume"):
    """Resume a job."""

    name: JobReference


class RemoveJob(Action, frozen=True, kw_only=True, tag="remove"):
    """Remove a job. Its unfinished executions are cancelled, its history and items stay."""

    name: JobReference
    version: BulkVersion = None


JobAction = AddJob | PutJob | ChangeJob | TagJob | PauseJob | ResumeJob | RemoveJob


class BulkLine(Struct, frozen=True, kw_only=True):
    """What became of one operation of a bulk request."""

    status: Annotated[
        LineStatus,
        Meta(
            description="`existing`: a job for this target is there already; `skipped`: left as it is, see `note`; "
            "`failed`: see `error`."
        ),
    ]
    name: Annotated[str | None, Meta(description="Name of the job; null if it could not be determined.")] = None
    job_id: Annotated[str | None, Meta(description="Id of the job; null if there is none.")] = None
    before: Annotated[
        Mapping[str, Any] | None, Meta(description="The columns that differ, as they were; null for a new job.")
    ] = None
    after: Annotated[Mapping[str, Any] | None, Meta(description="The same columns after the change.")] = None
    note: Annotated[str | None, Meta(description="Why it was left as it is.")] = None
    error: Annotated[LineProblem | None, Meta(description="Why it failed.")] = None


class BulkReport(Struct, frozen=True, kw_only=True):
    """The result of a bulk request: one line for each operation, in the same order."""

    applied: Annotated[
        bool, Meta(description="False for a dry run, and for an atomic request in which an operation failed.")
    ]
    dry_run: bool
    failed: Annotated[int, Meta(description="The number of failed operations.")]
    results: tuple[BulkLine, ...]

    def count(self, *statuses: LineStatus) -> int:
        """Return the number of lines with one of these statuses."""
        return sum(line.status in statuses for line in self.results)
