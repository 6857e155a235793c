"""Dead letters: executions that failed for good, until someone retries or drops them."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Operating, Reading
from floodmark.api.models import ExecutionOut, Given, Name, model_of
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.errors import InvalidInput
from floodmark.model.execution import Execution, State
from floodmark.model.job import Priority
from floodmark.model.shapes import execution_shape
from floodmark.operations.port import Letters
from floodmark.store.dead_letters import Group

letters = router("/dead-letters", tag="Dead letters")

OfJob = Annotated[Name | None, Query(description="Only of this job: its name or id.")]
GroupOut: Any = model_of(
    "GroupOut",
    Group,
    "Dead letters that died of the same error.",
    {
        "fingerprint": "The error without what differs each time; names the group.",
        "example": "The newest error in full.",
        "newest": "When the newest of them died.",
        "jobs": "At most ten of the jobs concerned.",
    },
)


class LettersIn(Given):
    """Which dead letters: at least one of these; all that are given have to fit."""

    ids: list[Annotated[str, Field(min_length=1, max_length=36)]] | None = Field(
        default=None, description="These executions.", min_length=1, max_length=1000
    )
    group: str | None = Field(
        default=None,
        description="Those of one error, by its fingerprint.",
        min_length=1,
        max_length=2000,
        examples=["user … not found after # s"],
    )
    job: Name | None = Field(default=None, description="Those of one job, by name or id.")

    def which(self) -> Letters:
        """The same for the office."""
        if self.ids is None and self.group is None and self.job is None:
            raise InvalidInput("no dead letters were named", hint="name ids, a group or a job")
        return Letters(ids=None if self.ids is None else tuple(self.ids), group=self.group, job=self.job)


class CountOut(BaseModel):
    """How many."""

    count: int


@letters.get("", response_model=Page[ExecutionOut], summary="List dead letters")
async def list_letters(office: Reading, job: OfJob = None, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Executions that failed for good, the newest death first."""
    key = key_of("letters", cursor, datetime, str)
    found = await office.letters(job=job, before=None if key is None else _last(*key), limit=limit + 1)
    return answer(page(found, limit, "letters", lambda row: [row.completed_at, row.execution_id], execution_shape))


@letters.get("/groups", response_model=Page[GroupOut], summary="List dead letters by error")
async def letter_groups(office: Reading, job: OfJob = None) -> Response:
    """The newest 10,000 by error, most frequent first. There is no next page."""
    return answer({"items": [asdict(group) for group in await office.letter_groups(job)], "next": None})


@letters.post("/retry", status_code=202, response_model=CountOut, summary="Retry dead letters")
async def retry_letters(office: Operating, body: LettersIn) -> Response:
    """Run them again with all attempts ahead; how many. Those of jobs that are gone are left."""
    return answer({"count": await office.retry_letters(body.which())}, 202)


@letters.post("/drop", response_model=CountOut, summary="Drop dead letters")
async def drop_letters(office: Operating, body: LettersIn) -> Response:
    """Take them off the list: nobody needs to look at them again. How many."""
    return answer({"count": await office.drop_letters(body.which())})


def _last(completed_at: datetime, execution_id: str) -> Execution:
    """As much of the last letter of a page as finds the next one."""
    return Execution(
        execution_id=execution_id,
        completed_at=completed_at,
        job_id="",
        job_name="",
        scheduled_for=completed_at,
        state=State.DEAD,
        priority=Priority.NORMAL,
        attempt=0,
    )
