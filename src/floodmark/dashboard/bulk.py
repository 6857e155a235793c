"""Actions on several jobs at once, with a result for each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.operations.declared import AsyncOperations
from floodmark.security.masking import mask_text

# As many as a list shows, and some more.
MOST_JOBS = 200
# Few, so that the work of others goes on.
_AT_ONCE = 4

Act = Callable[[AsyncOperations, str, str], Awaitable[object]]


class BulkAction(Struct, frozen=True, kw_only=True):
    """An action. `operation` decides who may use it; `{count}` in the question is the number of jobs."""

    name: str
    label: str
    done: str
    operation: str
    question: str
    act: Act
    needs_tag: bool = False
    kind: str = "quiet"


class ShownLine(Struct, frozen=True, kw_only=True):
    """The result for one job."""

    job: str
    error: str | None = None
    hint: str = ""


async def _tag(operations: AsyncOperations, job_id: str, tag: str) -> None:
    job = await operations.job(job_id)
    if tag not in job.tags:
        await operations.change_job(job_id, {"tags": [*job.tags, tag]}, version=job.version)


async def _untag(operations: AsyncOperations, job_id: str, tag: str) -> None:
    job = await operations.job(job_id)
    if tag in job.tags:
        left = [one for one in job.tags if one != tag]
        await operations.change_job(job_id, {"tags": left}, version=job.version)


ACTIONS = (
    BulkAction(
        name="run",
        label="Run",
        done="Asked for {count}",
        operation="run_job",
        question="Run {count} now?",
        act=lambda operations, job_id, _: operations.run_job(job_id),
    ),
    BulkAction(
        name="pause",
        label="Pause",
        done="Paused {count}",
        operation="pause_job",
        question="Pause {count}? Nothing of them starts until they are resumed.",
        act=lambda operations, job_id, _: operations.pause_job(job_id),
    ),
    BulkAction(
        name="resume",
        label="Resume",
        done="Resumed {count}",
        operation="resume_job",
        question="Resume {count}?",
        act=lambda operations, job_id, _: operations.resume_job(job_id),
    ),
    BulkAction(
        name="tag",
        label="Add tag",
        done="Tagged {count}",
        operation="change_job",
        question="Add this tag to {count}?",
        act=_tag,
        needs_tag=True,
    ),
    BulkAction(
        name="untag",
        label="Remove tag",
        done="Removed the tag from {count}",
        operation="change_job",
        question="Remove this tag from {count}?",
        act=_untag,
        needs_tag=True,
    ),
    BulkAction(
        name="remove",
        label="Remove jobs",
        done="Removed {count}",
        operation="remove_job",
        question="Remove {count} for good? Unfinished runs are cancelled; history and items stay.",
        act=lambda operations, job_id, _: operations.remove_job(job_id),
        kind="danger",
    ),
)


def question_of(action: BulkAction, count: int) -> str:
    """Return the question before an action."""
    return action.question.format(count=_jobs(count))


def words_for(action: BulkAction, lines: Sequence[ShownLine]) -> str:
    """Return what was done: "Paused 3 jobs."."""
    return f"{action.done.format(count=_jobs(sum(line.error is None for line in lines)))}."


async def carry_out(operations: AsyncOperations, action: BulkAction, jobs: Sequence[str], tag: str) -> list[ShownLine]:
    """Carry out an action on each job; one that fails does not stop the others."""
    if len(jobs) > MOST_JOBS:
        raise InvalidInput(f"{len(jobs)} jobs are chosen", hint=f"choose at most {MOST_JOBS} at once")
    if action.needs_tag and not tag:
        raise InvalidInput("the tag is missing", hint="type it next to the button, and try again")
    gate = asyncio.Semaphore(_AT_ONCE)

    async def act(job: str) -> ShownLine:
        async with gate:
            try:
                await action.act(operations, job, tag)
            except FloodmarkError as error:
                return ShownLine(job=job, error=mask_text(str(error)), hint=mask_text(error.hint))
        return ShownLine(job=job)

    return list(await asyncio.gather(*map(act, jobs)))


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
