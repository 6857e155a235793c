"""Handlers of the sync of schedules."""

from floodmark.operations.sync import SyncOperations
from floodmark.sync.report import Report, SyncStatus
from floodmark.sync.sync import build_sync

from .base import Handlers


class SyncHandlers(SyncOperations, Handlers):
    """Sync the jobs in the store with API_URL."""

    async def sync_status(self) -> SyncStatus:
        return await build_sync(self.resources, self.actor).status()

    async def sync(self, *, dry_run: bool = False, force: bool = False) -> Report:
        return await build_sync(self.resources, self.actor).run(dry_run=dry_run, force=force)
