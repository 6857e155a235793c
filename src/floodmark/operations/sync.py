"""Schedules that another program keeps: read them now, and see how that went."""

from typing import Annotated

from floodmark.sync.report import Report, SyncStatus

from .declaration import Body, get, post

_TAG = "Installation"


class SyncOperations:
    """Sync jobs with the schedules of API_URL."""

    @get("/sync", tag=_TAG)
    async def sync_status(self) -> SyncStatus:
        """Tell how the last sync went.

        From where schedules are read, how often, and how that went the last time.
        """

    @post("/sync", role="admin", tag=_TAG, operation_id="run_sync", body=("SyncIn", "How to sync."))
    async def sync(
        self,
        *,
        dry_run: Annotated[bool, Body(description="Only tell what would change.")] = False,
        force: Annotated[
            bool, Body(description="Also if it would disable more than SYNC_DISABLE_MAX_SHARE of the jobs at once.")
        ] = False,
    ) -> Report:
        """Read schedules from API_URL.

        Bring the jobs that were made from the schedules of API_URL up to date, all or nothing.

        503 if the API does not answer as agreed, 409 if it would disable too many jobs at once; nothing is changed
        then.
        """
