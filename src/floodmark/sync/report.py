"""What a sync tells about itself."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from .difference import JobChange, RowError


class Report(Struct, frozen=True, kw_only=True):
    """What a sync has done, or would do."""

    created: int
    updated: int
    skipped: Annotated[int, Meta(description="Schedules that say the same as at the last sync.")]
    disabled: Annotated[int, Meta(description="Jobs whose schedules are gone, with SYNC_DISABLE_MISSING.")]
    errors: tuple[RowError, ...]
    changes: tuple[JobChange, ...]
    dry_run: bool = False
    not_modified: Annotated[bool, Meta(description="The API said that its last answer still holds.")] = False
    refused: Annotated[
        str | None, Meta(description="Only when it is tried: why it would be refused unless forced.")
    ] = None


class LastSync(Struct, frozen=True, kw_only=True):
    """How the last sync went."""

    at: datetime
    ok: bool
    who: str
    last_good_at: Annotated[datetime | None, Meta(description="When one last went well.")] = None
    schedules: Annotated[int | None, Meta(description="How many the last good answer held.")] = None
    error: Annotated[str | None, Meta(description="Why nothing was changed.")] = None
    hint: str | None = None
    created: int = 0
    updated: int = 0
    skipped: int = 0
    disabled: int = 0
    error_count: int = 0
    errors: Annotated[tuple[RowError, ...], Meta(description="The first twenty.")] = ()


class SyncStatus(Struct, frozen=True, kw_only=True):
    """From where schedules are read, how often, and how that went."""

    url: Annotated[str | None, Meta(description="API_URL without its secrets; null if there is none.")]
    interval_seconds: float
    disable_missing: bool
    jobs: Annotated[int, Meta(description="Jobs that a sync has made.")]
    last: LastSync | None
