"""Sync of jobs with the schedules of another program."""

from typing import Annotated

from floodmark.sync.report import Report, SyncStatus

from .declaration import Body, get, post

_TAG = "Installation"


class SyncOperations:
    """Sync jobs with the schedules of API_URL."""

    @get("/sync", tag=_TAG)
    async def sync_status(self) -> SyncStatus:
        """Show the last sync. The answer has the address of the schedules, the interval and the result."""

    @post("/sync", role="admin", tag=_TAG, operation_id="run_sync", body=("SyncIn", "Options of a sync."))
    async def sync(
        self,
        *,
        dry_run: Annotated[bool, Body("Report what would change, and change nothing.")] = False,
        force: Annotated[bool, Body("Disable even more than SYNC_DISABLE_MAX_SHARE of the jobs at once.")] = False,
    ) -> Report:
        """Read schedules from API_URL. Update the jobs that were created from them, all or none.

        503 if the API does not answer as agreed, 409 if it would disable too many jobs at once; then nothing changes.
        """
