"""Everything at a glance: what `floodmark top` shows."""

from datetime import datetime
from typing import Any, Literal

from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Reading
from floodmark.api.models import model_of
from floodmark.api.routing import answer, router
from floodmark.operations.health import worker_shape
from floodmark.operations.overview import Failed, Running, Waiting
from floodmark.store.staleness import SourceFreshness

from .limits import BreakerOut, LimitOut
from .scheduler import DepthOut, WorkerOut

overview = router("/overview", tag="Scheduler")

RunningOut: Any = model_of(
    "RunningOut",
    Running,
    "An execution that runs.",
    {
        "kept": "New and changed items so far, of all attempts.",
        "is_least": "Whether there may be more than `kept`: it began long ago.",
        "kept_at": "When its last batch was kept.",
    },
)
WaitingOut: Any = model_of(
    "WaitingOut", Waiting, "An execution that waits.", {"until": "Until when.", "hold": "For what, if not for a time."}
)
FailedOut: Any = model_of(
    "FailedOut", Failed, "An attempt that failed.", {"state": "dead: for good; waiting: it is tried again."}
)
SourceFreshnessOut: Any = model_of(
    "SourceFreshnessOut",
    SourceFreshness,
    "How fresh the jobs of a source are.",
    {
        "jobs": "Jobs that are due by themselves.",
        "stale": "Those not read to their end for much longer than usual.",
        "checked_at": "When one of them was last read to its end.",
        "longest_at": "The same of the one that was not for longest.",
        "parsed_at": "When something new was last found.",
    },
)


class OverviewOut(BaseModel):
    """Everything at a glance. Lists are cut to what is of interest; counts end at 10,000."""

    at: datetime = Field(description="By the clock of the database.")
    leader: str | None = Field(description="Who schedules.")
    scheduler: Literal["ok", "stale", "down"] = Field(description="By its last tick.")
    draining: bool = Field(description="Whether workers were told to take no more work.")
    workers: list[WorkerOut]
    queue: DepthOut
    running_count: int
    running: list[RunningOut] = Field(description="Those that have run for longest first.")
    waiting_count: int
    waiting: list[WaitingOut] = Field(description="The soonest first.")
    limits: list[LimitOut] = Field(description="What has to wait, the longest first.")
    breakers: list[BreakerOut] = Field(description="Those that are not closed.")
    freshness: list[SourceFreshnessOut]
    measured_at: datetime | None = Field(description="When the leader last counted `freshness`.")
    dead_letters: int
    failed: list[FailedOut] = Field(description="The last failures, newest first.")
    kept_last_minute: int = Field(description="New and changed items within the last minute; ends at 5,000.")


@overview.get("", response_model=OverviewOut, summary="Show everything at a glance")
async def show_overview(office: Reading) -> Response:
    """Leader, workers, queue, what runs, waits and failed, limits, freshness. Cheap enough to be asked every second."""
    found = await office.overview()
    return answer({**asdict(found), "workers": [worker_shape(info, found.leader) for info in found.workers]})
