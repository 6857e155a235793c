"""Loads watches for their evaluation, and follows their changes."""

import asyncio
import time
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

import structlog

from floodmark.errors import FloodmarkError

from .compiled import CompiledWatch
from .index import WatchIndex, WatchSet
from .repository import WatchRepository
from .rows import fields_of

# The automaton is built again after this time, or when so many watches have changed.
_REBUILD_SECONDS, _MOST_RECENT = 1.0, 500


class LoadedWatches:
    """The watches of this process, as of a generation."""

    def __init__(self, repository: WatchRepository, threads: Executor, *, default_max_age: timedelta) -> None:
        self._repository, self._threads, self._default_max_age = repository, threads, default_max_age
        self._set, self._generation = WatchSet(WatchIndex({})), 0
        self._built_at = 0.0

    async def at(self, generation: int) -> WatchSet:
        """Return the watches as of this generation, or of a later one."""
        if generation != self._generation:
            await self._follow(generation)
        if self._set.recent and self._is_time_to_build():
            self._set = await asyncio.get_running_loop().run_in_executor(self._threads, self._set.rebuild)
            self._built_at = time.monotonic()
        return self._set

    async def _follow(self, generation: int) -> None:
        # A lower generation: the database was restored.
        known = self._generation if generation > self._generation else 0
        rows, active = await self._repository.changed_since(known)
        changed = await asyncio.get_running_loop().run_in_executor(self._threads, self._compile, rows)
        gone = {watch.watch_id for watch in self._set.all()} - active
        # A watch that cannot be read is not evaluated as it was before.
        gone |= {row["watch_id"] for row in rows} - changed.keys()
        self._set, self._generation = self._set.change(changed, gone), generation

    def _compile(self, rows: list[dict[str, Any]]) -> dict[str, CompiledWatch]:
        return {row["watch_id"]: watch for row in rows if (watch := self._compile_row(row)) is not None}

    def _compile_row(self, row: dict[str, Any]) -> CompiledWatch | None:
        try:
            return CompiledWatch(
                fields_of(row),
                watch_id=row["watch_id"],
                after_position=row["after_position"],
                active_at=row["active_at"],
                default_max_age=self._default_max_age,
            )
        except FloodmarkError as error:
            # Written by SQL, or by a later version.
            structlog.get_logger().error("watch cannot be evaluated", watch=row["name"], error=str(error))
            return None

    def _is_time_to_build(self) -> bool:
        age = time.monotonic() - self._built_at
        return age >= _REBUILD_SECONDS or len(self._set.recent) > _MOST_RECENT
