"""The results of syncs."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from .difference import JobChange, RowError


class Report(Struct, frozen=True, kw_only=True):
    """The result of a sync, or of a dry run."""

    created: int
    updated: int
    skipped: Annotated[int, Meta(description="Schedules that have not changed since the last sync.")]
    disabled: Annotated[int, Meta(description="Jobs whose schedules are gone, with SYNC_DISABLE_MISSING.")]
    errors: tuple[RowError, ...]
    changes: tuple[JobChange, ...]
    dry_run: bool = False
    not_modified: Annotated[bool, Meta(description="The API answered that nothing has changed.")] = False
    refused: Annotated[
        str | None, Meta(description="In a dry run: why the sync would be refused unless it is forced.")
    ] = None


class LastSync(Struct, frozen=True, kw_only=True):
    """The result of the last sync."""

    at: datetime
    ok: bool
    who: str
    last_good_at: Annotated[datetime | None, Meta(description="The time of the last successful sync.")] = None
    schedules: Annotated[int | None, Meta(description="The schedules in the last valid response.")] = None
    error: Annotated[str | None, Meta(description="Why nothing was changed.")] = None
    hint: str | None = None
    created: int = 0
    updated: int = 0
    skipped: int = 0
    disabled: int = 0
    error_count: int = 0
    errors: Annotated[tuple[RowError, ...], Meta(description="The first twenty.")] = ()


class SyncStatus(Struct, frozen=True, kw_only=True):
    """The source of schedules, the interval of syncs, and the result of the last one."""

    url: Annotated[str | None, Meta(description="API_URL without its secrets; null if it is not set.")]
    interval_seconds: float
    disable_missing: bool
    jobs: Annotated[int, Meta(description="Jobs that a sync has created.")]
    last: LastSync | None
