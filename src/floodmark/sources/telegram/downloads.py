"""Starts downloads when there is a file to download: until then, Telethon is not imported."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .media_files import MediaFiles
from .services import TelegramServices
from .sessions import Sessions

if TYPE_CHECKING:
    from .media_fetching import MediaFetcher


class LazyFetcher:
    """Downloads wanted files, once there is one."""

    def __init__(self, services: TelegramServices, sessions: Sessions, folder: Path, *, per_minute: float) -> None:
        self._services, self._sessions, self._folder, self._per_minute = services, sessions, folder, per_minute
        self._files = MediaFiles(services.database, services.clock)
        self._fetcher: MediaFetcher | None = None

    async def step(self) -> timedelta | None:
        """Download some files."""
        if self._fetcher is None:
            if not await self._files.has_work():
                return None
            from .media_fetching import MediaFetcher  # noqa: PLC0415 - Telethon takes a while to import

            self._fetcher = MediaFetcher(
                self._services, self._sessions, self._files, self._folder, per_minute=self._per_minute
            )
        return await self._fetcher.step()
