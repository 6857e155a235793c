"""What a sync tells about itself."""

from datetime import datetime

from msgspec import Struct

from .difference import Change, RowError


class Report(Struct, frozen=True, kw_only=True):
    """What a sync has done, or would do. Rows with errors are in `errors` alone, and change nothing.

    `refused`: why a person would have to confirm it, when it is only tried.
    """

    created: int
    updated: int
    skipped: int
    disabled: int
    errors: tuple[RowError, ...]
    changes: tuple[Change, ...]
    dry_run: bool = False
    not_modified: bool = False
    refused: str | None = None


class LastSync(Struct, frozen=True, kw_only=True):
    """How the last sync went. `last_good_at` is when one last went well."""

    at: datetime
    ok: bool
    who: str
    last_good_at: datetime | None = None
    schedules: int | None = None
    error: str | None = None
    hint: str | None = None
    created: int = 0
    updated: int = 0
    skipped: int = 0
    disabled: int = 0
    error_count: int = 0
    errors: tuple[RowError, ...] = ()


class SyncStatus(Struct, frozen=True, kw_only=True):
    """From where schedules are read, how often, and how that went. `jobs`: how many were made so."""

    url: str | None
    interval_seconds: float
    disable_missing: bool
    jobs: int
    last: LastSync | None
