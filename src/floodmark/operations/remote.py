"""The verbs over HTTP, on a server that may be far away. What it answers becomes the same values as on the store."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from floodmark.client import Client
from floodmark.model.job import Job
from floodmark.model.job_fields import columns_of
from floodmark.model.page import Page, cursor_of
from floodmark.model.spec import JobSpec
from floodmark.rules.explain import Explanation

from .declaration import Operation
from .port import Asked, JobFilter, Office

T = TypeVar("T")

_ANY = JobFilter()
_AT_ONCE = 200
# As many ids as a request may name.
_IDS_AT_ONCE = 1000


class RemoteOffice(Office):
    """The office behind a server. Who acts is who the token belongs to."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, operation: Operation[Any, Any], arguments: dict[str, Any]) -> Any:
        """Send an operation and return its result."""
        return await self.client.call(operation, arguments)

    # Asking

    async def jobs(self, which: JobFilter = _ANY, *, after: str | None = None, limit: int = 100) -> list[Job]:
        """In order of name. The next page is `after` the name of the last one."""
        return await _some(
            lambda cursor, at_most: self.client.jobs(which, cursor=cursor, limit=at_most), _behind("jobs", after), limit
        )

    async def job(self, text: str) -> Job:
        """One job."""
        return await self.client.job(text)

    async def explain(self, text: str) -> Explanation:
        """Why it is not running, or what it is doing."""
        return await self.client.explain(text)

    # Telling

    async def add_job(self, spec: JobSpec, *, unsaid: Collection[str] = ()) -> Job:
        """Make a job. The columns in `unsaid` are left to the settings of the server."""
        columns = {**columns_of(spec), "depends_on": spec.depends_on}
        left_out = {"scheduler_version", *unsaid, *([] if spec.name is not None else ["name"])}
        return await self.client.add_job({name: value for name, value in columns.items() if name not in left_out})

    async def update_job(self, text: str, changes: Mapping[str, Any], *, version: int | None = None) -> Job:
        """Set columns of a job, if it is still at `version`."""
        return await self.client.change_job(text, changes, version=version)

    async def remove_job(self, text: str, *, version: int | None = None) -> Job:
        """Delete a job; what it was. Its history and its items stay."""
        return await self.client.remove_job(text, version=version)

    async def pause_job(self, text: str, reason: str | None = None) -> Job:
        """Let nothing of it start."""
        return await self.client.pause_job(text, reason)

    async def resume_job(self, text: str) -> Job:
        """Undo a pause."""
        return await self.client.resume_job(text)

    async def cancel_job(self, text: str) -> int:
        """End what is unfinished of it; how many."""
        return await self.client.cancel_job(text)

    async def run_job(self, text: str, params: Mapping[str, Any] | None = None) -> Asked:
        """Run it now, whatever its schedule says."""
        return await self.client.run_job(text, params)


def _behind(listing: str, *key: Any) -> str | None:
    """The cursor behind a row that we know; None without one."""
    if key[0] is None:
        return None
    return cursor_of(listing, *key)


async def _some(page: Callable[[str | None, int], Awaitable[Page[T]]], cursor: str | None, limit: int) -> list[T]:
    """As many as were asked for, which may be more than a server gives at once."""
    found: list[T] = []
    while len(found) < limit:
        part = await page(cursor, min(limit - len(found), _AT_ONCE))
        found += part.items
        cursor = part.next
        if cursor is None:
            break
    return found
