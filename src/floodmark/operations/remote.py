"""The verbs over HTTP, on a server that may be far away. What it answers becomes the same values as on the store."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from floodmark.client import Client, Page
from floodmark.errors import NotFound
from floodmark.model.execution import Execution, State
from floodmark.model.job import Job
from floodmark.model.job_fields import columns_of
from floodmark.model.spec import JobSpec
from floodmark.outbound.breakers import BreakerRow
from floodmark.outbound.limits import LimitRow
from floodmark.rules.explain import Explanation
from floodmark.sources.telegram.accounts import AccountRow
from floodmark.store.audit import AuditRow
from floodmark.store.dead_letters import Group
from floodmark.store.events import ItemHistory, StoredItem
from floodmark.store.fleet import WorkerInfo
from floodmark.store.port import Event
from floodmark.store.watermarks import StreamState

from .doctor import Finding
from .overview import Overview
from .port import Asked, JobFilter, Letters

T = TypeVar("T")

_ANY = JobFilter()
_AT_ONCE = 200
# As many ids as a request may name.
_IDS_AT_ONCE = 1000


class RemoteOffice:
    """The office behind a server. Who acts is who the token belongs to."""

    def __init__(self, client: Client) -> None:
        self.client = client

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

    async def executions(
        self,
        *,
        job: str | None = None,
        states: Sequence[State] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Newest first, also of jobs that are gone. The next page is `before` the id of the last one."""

        async def page(cursor: str | None, at_most: int) -> Page[Execution]:
            return await self.client.executions(job=job, states=states, cursor=cursor, limit=at_most)

        return await _some(page, _behind("executions", before), limit)

    async def execution(self, execution_id: str) -> Execution:
        """One execution; the beginning of its id is enough."""
        return await self.client.execution(execution_id)

    async def statistics(self, days: float, job: str | None = None) -> dict[str, Any]:
        """How the executions of the last days went."""
        return await self.client.statistics(days, job)

    async def letters(
        self, *, job: str | None = None, before: Execution | None = None, limit: int = 50
    ) -> list[Execution]:
        """Executions that failed for good, newest first."""
        key = None if before is None else _behind("letters", before.completed_at, before.execution_id)
        return await _some(
            lambda cursor, at_most: self.client.letters(job=job, cursor=cursor, limit=at_most), key, limit
        )

    async def letter_groups(self, job: str | None = None) -> list[Group]:
        """The same by error, most frequent first."""
        return await self.client.letter_groups(job)

    async def watermarks(self, *, after: str | None = None, limit: int = 100) -> list[StreamState]:
        """How far each stream is collected, in order of name."""
        return await _some(
            lambda cursor, at_most: self.client.watermarks(cursor=cursor, limit=at_most),
            _behind("watermarks", after),
            limit,
        )

    async def watermark(self, text: str) -> StreamState:
        """How far one stream is collected."""
        return await self.client.watermark(text)

    async def items_stream(self, text: str) -> str:
        """The stream that holds the items of a stream or job."""
        return (await self.client.stream(text))[0]

    async def items(self, stream: str, *, after: str | None = None, limit: int = 100) -> list[StoredItem]:
        """Items of a stream in order of key. The next page is `after` the key of the last one."""
        return await _some(
            lambda cursor, at_most: self.client.items(stream, cursor=cursor, limit=at_most),
            _behind("items", after),
            limit,
        )

    async def newest_items(
        self, stream: str, *, since: datetime | None = None, before: str | None = None, limit: int = 100
    ) -> list[StoredItem]:
        """Items of a stream, newest first. The next page is `before` the key of the last one."""
        return await _some(
            lambda cursor, at_most: self.client.newest_items(stream, since=since, cursor=cursor, limit=at_most),
            _behind("newest-items", before),
            limit,
        )

    async def item(self, stream: str, key: str) -> ItemHistory:
        """One item with its revisions."""
        return await self.client.item(stream, key)

    async def count_items(self, stream: str) -> int:
        """How many items a stream holds."""
        return (await self.client.stream(stream))[1]

    async def events(self, *, after: int = 0, limit: int = 100, stream: str | None = None) -> list[Event]:
        """Events behind a position, in order."""

        async def page(cursor: str | None, at_most: int) -> Page[Event]:
            return await self.client.events(after=after, stream=stream, cursor=cursor, limit=at_most)

        return await _some(page, None, limit)

    async def last_position(self) -> int:
        """The position of the newest event."""
        return await self.client.last_position()

    async def limits(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """What has to wait, the longest first."""
        return await self.client.limits(with_past=with_past, limit=limit)

    async def breakers(self, *, limit: int = 100) -> list[BreakerRow]:
        """The breakers that have ever had something to do."""
        return await self.client.breakers(limit=limit)

    async def accounts(self, *, after: str | None = None, limit: int = 100) -> list[AccountRow]:
        """The accounts that sources log in with, in order of name, without their secrets."""
        return await _some(
            lambda cursor, at_most: self.client.accounts(cursor=cursor, limit=at_most),
            _behind("accounts", after),
            limit,
        )

    async def workers(self) -> list[WorkerInfo]:
        """The processes of the fleet."""
        return (await self.client.fleet()).workers

    async def leader(self) -> str | None:
        """Who schedules."""
        return (await self.client.fleet()).leader

    async def is_draining(self) -> bool:
        """Whether the workers were told to take no more work."""
        return (await self.client.fleet()).draining

    async def overview(self) -> Overview:
        """Everything at a glance; cheap enough to be asked every second."""
        return await self.client.overview()

    async def health(self) -> dict[str, Any]:
        """Is everything well? A server tells more than the store does."""
        return await self.client.health()

    async def examine(self) -> list[Finding]:
        """Does everything answer, does everything hold, there? In the order in which one would mend it."""
        return await self.client.doctor()

    async def audit(self, *, what: str | None = None, before: int | None = None, limit: int = 50) -> list[AuditRow]:
        """Who changed what, newest first."""
        return await _some(
            lambda cursor, at_most: self.client.audit(what=what, cursor=cursor, limit=at_most),
            _behind("audit", before),
            limit,
        )

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

    async def cancel_execution(self, execution_id: str) -> Execution:
        """End one execution: at once if it has not started, else as soon as its worker hears of it."""
        return await self.client.cancel_execution(execution_id)

    async def cleanup_old_executions(self, days: float) -> int:
        """Delete executions that ended more than `days` ago; how many."""
        return await self.client.cleanup_old_executions(days)

    async def retry_letters(self, which: Letters) -> int:
        """Run dead letters again; how many."""
        return await _by_parts(self.client.retry_letters, which)

    async def drop_letters(self, which: Letters) -> int:
        """Take dead letters off the list; how many."""
        return await _by_parts(self.client.drop_letters, which)

    async def set_watermark(self, text: str, value: Mapping[str, Any]) -> StreamState:
        """Go on from there."""
        return await self.client.set_watermark(text, value)

    async def reset_watermark(self, text: str) -> StreamState:
        """Begin again."""
        return await self.client.reset_watermark(text)

    async def clear_limit(self, key: str) -> LimitRow:
        """Lift a limit; what it was."""
        return await self.client.clear_limit(key)

    async def set_limit(self, key: str, seconds: float, reason: str) -> LimitRow:
        """Let everything under a key wait."""
        return await self.client.set_limit(key, seconds, reason)

    async def reset_breaker(self, key: str) -> BreakerRow:
        """Close a breaker; what it was."""
        return await self.client.reset_breaker(key)

    async def drain(self) -> None:
        """Let workers take no more work."""
        await self.client.drain()

    async def undrain(self) -> None:
        """Let them work again."""
        await self.client.undrain()


def _behind(listing: str, *key: Any) -> str | None:
    """The cursor behind a row that we know; None without one."""
    if key[0] is None:
        return None
    from floodmark.api.paging import cursor_of  # noqa: PLC0415 - loads a web framework, and is seldom needed

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


async def _by_parts(tell: Callable[[Letters], Awaitable[int]], which: Letters) -> int:
    """More ids than fit into one request are told in several."""
    if which.ids is None or len(which.ids) <= _IDS_AT_ONCE:
        return await tell(which)
    count, unknown = 0, None
    for start in range(0, len(which.ids), _IDS_AT_ONCE):
        try:
            count += await tell(Letters(ids=which.ids[start : start + _IDS_AT_ONCE], group=which.group, job=which.job))
        except NotFound as error:
            # Only if it is so for all of them is it worth telling.
            unknown = error
    if not count and unknown is not None:
        raise unknown
    return count
