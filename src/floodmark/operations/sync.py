"""The verbs for the sync of schedules: on this installation, or on a server."""

from typing import TYPE_CHECKING, Protocol

from floodmark.sync.report import Report, SyncStatus
from floodmark.sync.sync import build_sync

from .local import LocalOffice
from .port import Office

if TYPE_CHECKING:
    from floodmark.client import Client


class SyncVerbs(Protocol):
    """What can be done about schedules that another program keeps."""

    async def run(self, *, dry_run: bool = False, force: bool = False) -> Report:
        """Read them and bring the jobs up to date; or only tell what that would change."""
        ...

    async def status(self) -> SyncStatus:
        """How the last sync went."""
        ...


def sync_of(office: Office) -> SyncVerbs:
    """The sync of the installation that an office is for."""
    if isinstance(office, LocalOffice):
        return build_sync(office.parts, office.actor)
    from .remote import RemoteOffice  # noqa: PLC0415 - needs an HTTP client, which a server does not

    assert isinstance(office, RemoteOffice)
    return RemoteSync(office.client)


class RemoteSync:
    """The same behind a server, which has its own API_URL."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def run(self, *, dry_run: bool = False, force: bool = False) -> Report:
        """Read them and bring the jobs up to date; or only tell what that would change."""
        return await self._client.sync(dry_run=dry_run, force=force)

    async def status(self) -> SyncStatus:
        """How the last sync went."""
        return await self._client.sync_status()
