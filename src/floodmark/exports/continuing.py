"""The stored position of an export that is continued. Table: `consumers`, the row `export:<name>`.

Files and position cannot be written in one transaction, so the position is moved in two steps:

1. The files are complete in a staging folder. The row gets the name of that folder and the position after it.
2. The files are moved to their places. The row gets the new position, and the folder is removed.

A process that was killed before 1 leaves a staging folder that nobody knows: it is removed, and the rows are written
again. After 1 the next run completes step 2 first. So no row is lost, and none is in two files.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from floodmark.errors import Conflict, NotFound
from floodmark.model.consumers import ConsumerState
from floodmark.operations.declared import AsyncOperations
from floodmark.process.failpoints import failpoint
from floodmark.sinks.staging import Staging


class StagedFiles(Struct, frozen=True):
    """Complete files that are to be moved to their places."""

    folder: str
    position: int


class ExportPosition:
    """How far an export has got; `position` is None before its first run.

    `has_recorded`: complete files are recorded with the position, and must not be removed.
    """

    def __init__(self, operations: AsyncOperations, name: str, place: str | None, options: Mapping[str, Any]) -> None:
        self._operations, self._name, self._place, self._options = operations, f"export:{name}", place, dict(options)
        self.position: int | None = None
        self.has_all_events = True
        self.has_recorded = False
        self._staged: StagedFiles | None = None

    async def open(self) -> None:
        """Read the stored position. `Conflict` if it belongs to an export with another destination or other rows."""
        try:
            found = await self._operations.find_consumer(self._name)
        except NotFound:
            return
        self._require_same(found)
        staged = found.state.get("staged")
        self.position, self._staged = found.position, None if staged is None else StagedFiles(**staged)
        self.has_all_events = found.log.has_all_after(found.position)

    async def recover(self, folder: Path) -> bool:
        """Complete the last run, if it was interrupted. Return False if its files have disappeared."""
        staged, self._staged = self._staged, None
        if staged is None:
            return True
        staging = await asyncio.to_thread(Staging.reopen, folder, staged.folder)
        if staging is None:
            await self._store(self.position, self.position or 0, None)
            return False
        await self._place_files(staging, staged.position)
        return True

    async def commit(self, position: int, staging: Staging | None = None) -> None:
        """Move the files to their places and the position with them."""
        if staging is None or not staging.files():
            await self._store(self.position, position, None)
            return
        failpoint("export.staged")
        before = 0 if self.position is None else self.position
        self.has_recorded = True
        await self._store(self.position, before, StagedFiles(staging.name, position))
        failpoint("export.recorded")
        self.position = before
        await self._place_files(staging, position)

    async def _place_files(self, staging: Staging, position: int) -> None:
        await asyncio.to_thread(staging.move_into_place)
        failpoint("export.placed")
        await self._store(self.position, position, None)
        self.has_recorded = False
        failpoint("export.committed")
        await asyncio.to_thread(staging.remove)

    async def _store(self, before: int | None, position: int, staged: StagedFiles | None) -> None:
        state = {"options": self._options, "staged": staged}
        moved = await self._operations.commit_position(
            self._name, position, before=before, place=self._place if before is None else None, state=state
        )
        self.position = moved.position

    def _require_same(self, found: ConsumerState) -> None:
        again = f"use another --name, or start again: floodmark readers rm '{self._name}'"
        if found.place != self._place:
            raise Conflict(f"{self._name} is written to {found.place}, not to {self._place}", hint=again)
        stored = found.state["options"]
        changed = [name for name in {**stored, **self._options} if stored.get(name) != self._options.get(name)]
        if changed:
            was = ", ".join(f"{name} {stored.get(name)!r}" for name in sorted(changed))
            raise Conflict(
                f"{self._name} was started with other options: {was}", hint=f"use the same options; or {again}"
            )
