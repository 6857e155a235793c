"""Schedules that another program keeps: read them now, and see how that went."""

from typing import Annotated, Any, Literal

from fastapi import Body
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Administering, Reading
from floodmark.api.models import Given, model_of
from floodmark.api.routing import answer, router
from floodmark.operations.sync import sync_of
from floodmark.sync.difference import RowError

sync = router(tag="Installation")


class SyncIn(Given):
    """How to sync."""

    dry_run: bool = Field(default=False, description="Only tell what would change.")
    force: bool = Field(
        default=False, description="Also if it would disable more than SYNC_DISABLE_MAX_SHARE of the jobs at once."
    )


RowErrorOut: Any = model_of(
    "RowErrorOut",
    RowError,
    "A schedule that cannot become a job. The others go on.",
    {"error": "What is wrong with it.", "hint": "What to do about it."},
)


class ChangeOut(BaseModel):
    """A job that was made or changed, or would be."""

    action: Literal["created", "updated", "disabled"]
    name: str = Field(description="The job.")
    domain_config_id: str
    before: dict[str, Any] | None = Field(description="The columns that differ, as they were; null for a new job.")
    after: dict[str, Any] = Field(description="The same columns as they are now.")


class SyncReportOut(BaseModel):
    """What a sync has done, or would do."""

    created: int
    updated: int
    skipped: int = Field(description="Schedules that say the same as at the last sync.")
    disabled: int = Field(description="Jobs whose schedules are gone, with SYNC_DISABLE_MISSING.")
    errors: list[RowErrorOut]
    changes: list[ChangeOut]
    dry_run: bool
    not_modified: bool = Field(description="The API said that its last answer still holds.")
    refused: str | None = Field(description="Only when it is tried: why it would be refused unless forced.")


class LastSyncOut(BaseModel):
    """How the last sync went."""

    at: str = Field(json_schema_extra={"format": "date-time"})
    ok: bool
    who: str
    last_good_at: str | None = Field(description="When one last went well.", json_schema_extra={"format": "date-time"})
    schedules: int | None = Field(description="How many the last good answer held.")
    error: str | None = Field(description="Why nothing was changed.")
    hint: str | None
    created: int
    updated: int
    skipped: int
    disabled: int
    error_count: int
    errors: list[RowErrorOut] = Field(description="The first twenty.")


class SyncStatusOut(BaseModel):
    """From where schedules are read, how often, and how that went."""

    url: str | None = Field(description="API_URL without its secrets; null if there is none.")
    interval_seconds: float
    disable_missing: bool
    jobs: int = Field(description="Jobs that a sync has made.")
    last: LastSyncOut | None


@sync.get("/sync", response_model=SyncStatusOut, summary="Tell how the last sync went")
async def sync_status(office: Reading) -> Response:
    """From where schedules are read, how often, and how that went the last time."""
    return answer(await sync_of(office).status())


@sync.post("/sync", response_model=SyncReportOut, summary="Read schedules from API_URL")
async def run_sync(office: Administering, body: Annotated[SyncIn | None, Body()] = None) -> Response:
    """Bring the jobs that were made from the schedules of API_URL up to date, all or nothing.

    503 if the API does not answer as agreed, 409 if it would disable too many jobs at once; nothing is changed then.
    """
    asked = body or SyncIn()
    return answer(await sync_of(office).run(dry_run=asked.dry_run, force=asked.force))
