"""Executions and dead letters."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput
from floodmark.model.dead_letters import DeadLetterGroup
from floodmark.model.execution import Execution, ExecutionMark, State, Statistics
from floodmark.model.page import Page

from .declaration import WHOLE_LIST, Body, Each, Envelope, Fields, Path, Query, get, post
from .words import Cursor, Label, Limit, Name, Text

_EXECUTIONS, _LETTERS = "Executions", "Dead letters"
_COUNT = Envelope("CountOut", "A number of executions.", "count")

# The largest number of jobs whose latest executions are listed at once.
MOST_JOBS = 100

ExecutionId = Annotated[Label, Path("The id of an execution, or the beginning of one.")]
OfJob = Annotated[Name | None, Query("Only of this job, by name or id; it may have been deleted.")]


class LogEntry(Struct, frozen=True):
    """An event in the life of an execution."""

    at: datetime
    event: Annotated[
        str, Meta(description="created, started, ended, or an action of the audit log.", examples=["started"])
    ]
    text: Annotated[str | None, Meta(description="More about it.")]


class Logs(Struct, frozen=True, kw_only=True):
    """The history of an execution."""

    execution_id: str
    job_name: str
    state: State
    error_message: str | None
    attempts: Annotated[list[Any], Meta(description="Every failed attempt, the first one first.")]
    events: list[LogEntry]


class Letters(Struct, frozen=True, kw_only=True):
    """A choice of dead letters. At least one field is needed; all given ones have to match."""

    ids: Annotated[
        tuple[str, ...] | None,
        Body(
            "These executions.",
            type=list[Annotated[str, Meta(min_length=1, max_length=36)]] | None,
            read=tuple,
            min_length=1,
            max_length=1000,
        ),
    ] = None
    group: Annotated[
        str | None,
        Body(
            "Dead letters of one error, by its fingerprint.",
            min_length=1,
            max_length=2000,
            examples=["user … not found after # s"],
        ),
    ] = None
    job: Annotated[Name | None, Body("Dead letters of one job, by name or id.")] = None

    def require_choice(self) -> None:
        """Refuse an empty choice: it must not mean all dead letters."""
        if self.ids is None and self.group is None and self.job is None:
            raise InvalidInput("no dead letters were named", hint="name ids, a group or a job")


_LETTERS_IN = ("LettersIn", "A choice of dead letters. At least one field is needed; all given ones have to match.")


class ExecutionOperations:
    """List, show, cancel and retry executions."""

    @get("/executions", tag=_EXECUTIONS, operation_id="list_executions")
    async def executions(
        self,
        *,
        job: OfJob = None,
        states: Annotated[
            Sequence[State] | None,
            Query("Only in these states; can be repeated.", name="state", type=list[State] | None, send=list),
        ] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[Execution]:
        """List executions. The newest come first; those of deleted jobs are included."""

    each_execution = Each(executions)

    @get("/executions/recent", tag=_EXECUTIONS, envelope=WHOLE_LIST)
    async def recent_executions(
        self,
        hours: Annotated[float, Query("How many hours to look back.", gt=0, le=8760)] = 24,
        limit: Annotated[int, Query("The maximum number; there is no next page.", ge=1, le=1000)] = 100,
    ) -> list[Execution]:
        """List recent executions. Created or dead within the last hours, or still unfinished; newest first."""

    @get("/executions/latest", tag=_EXECUTIONS, envelope=WHOLE_LIST)
    async def latest_executions(
        self,
        jobs: Annotated[
            Sequence[str],
            Query(
                "The ids of jobs; can be repeated.",
                name="job",
                type=list[Annotated[str, Meta(min_length=1, max_length=36)]],
                send=list,
                min_length=1,
                max_length=MOST_JOBS,
            ),
        ],
        count: Annotated[int, Query("How many of each job.", ge=1, le=200)] = 10,
    ) -> list[ExecutionMark]:
        """List the latest executions of several jobs, in short. Up to `count` of each job, latest first."""

    @post(
        "/executions/cleanup",
        role="admin",
        tag=_EXECUTIONS,
        operation_id="cleanup_executions",
        body=("CleanupIn", "The age of old executions."),
        envelope=Envelope("CleanedOut", "What was deleted.", "deleted"),
    )
    async def cleanup_old_executions(
        self,
        days: Annotated[float, Body("Older than this many days.", required=True, ge=0, le=3650, examples=[90])] = 90,
    ) -> int:
        """Delete old executions. Those that ended and were created longer ago are deleted; unfinished ones stay."""

    @get("/executions/{execution_id}", tag=_EXECUTIONS, operation_id="show_execution")
    async def execution(self, execution_id: ExecutionId) -> Execution:
        """Show an execution. The answer has its start, end, duration, state, error and result."""

    @get("/executions/{execution_id}/logs", tag=_EXECUTIONS, operation_id="show_logs")
    async def execution_logs(self, execution_id: ExecutionId) -> Logs:
        """Show the history of an execution. It has every failed attempt with its error, and a list of dated events."""

    @post("/executions/{execution_id}/cancel", tag=_EXECUTIONS)
    async def cancel_execution(self, execution_id: ExecutionId) -> Execution:
        """Cancel an execution. It ends at once if it has not started, else when its worker notices."""

    @post("/executions/{execution_id}/retry", tag=_EXECUTIONS, status=202)
    async def retry_execution(self, execution_id: ExecutionId) -> Execution:
        """Retry an execution. It has to be dead (failed permanently), and gets all its attempts again."""

    @get("/statistics", tag=_EXECUTIONS, operation_id="show_statistics", model=Statistics)
    async def statistics(
        self, days: Annotated[float, Query("How many days to look back.", gt=0, le=3650)] = 7, job: OfJob = None
    ) -> dict[str, Any]:
        """Show statistics of executions. They are counted over the last days, for all jobs or for one."""


class DeadLetterOperations:
    """List, retry and drop executions that failed permanently."""

    @get("/dead-letters", tag=_LETTERS, operation_id="list_letters")
    async def letters(
        self,
        *,
        job: Annotated[Name | None, Query("Only of this job, by name or id.")] = None,
        group: Annotated[
            Text | None, Query("Only of one error, by its fingerprint; among the newest 10,000 of the list.")
        ] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[Execution]:
        """List dead letters. These are executions that failed permanently, the most recent first."""

    each_letter = Each(letters)

    @get("/dead-letters/groups", tag=_LETTERS, envelope=WHOLE_LIST)
    async def letter_groups(
        self, job: Annotated[Name | None, Query("Only of this job, by name or id.")] = None
    ) -> list[DeadLetterGroup]:
        """List dead letters by error. The newest 10,000 are grouped, most frequent first; there is no next page."""

    @post("/dead-letters/retry", tag=_LETTERS, status=202, body=_LETTERS_IN, is_body_required=True, envelope=_COUNT)
    async def retry_letters(self, which: Annotated[Letters, Fields()]) -> int:
        """Retry dead letters. They get all their attempts again; those of deleted jobs stay. Return their number."""

    @post("/dead-letters/drop", tag=_LETTERS, body=_LETTERS_IN, is_body_required=True, envelope=_COUNT)
    async def drop_letters(self, which: Annotated[Letters, Fields()]) -> int:
        """Drop dead letters. They leave the list. Return their number."""
