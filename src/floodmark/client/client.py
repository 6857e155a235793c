"""Every verb of the API, for asyncio."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from floodmark.errors import InvalidInput
from floodmark.importers.handover import Imports, Moved, NewJob, Which
from floodmark.importers.shadow import ParityReport, Recorded, ShadowStatus
from floodmark.model.job import Job
from floodmark.model.job_fields import POLICY_COLUMNS, columns_of
from floodmark.model.page import Page
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.port import Asked, JobFilter
from floodmark.rules.explain import Explanation

from .caller import HttpCaller
from .decoding import decoded, job_of

T = TypeVar("T")

# The most that a server gives at once.
MOST = 200
_ANY = JobFilter()
_SESSION = "the session of an account"


Kind = Literal["execution", "item", "limit", "breaker", "worker"]


class News(msgspec.Struct, frozen=True):
    """Something that has just happened: `kind` says what `data` is. Items have a position."""

    kind: str
    data: dict[str, Any]
    position: int | None = None


class Client(AsyncOperations, HttpCaller):
    """A server of Floodmark, for as long as the `async with` block runs.

    Jobs are named by name or id, or the beginning of one; streams also by a job's name. What is refused raises the
    same `FloodmarkError` as it does where the server is, with a hint; `Unavailable` if the server is away, `Denied`
    if the token is not enough. What only asks is tried again when the connection fails.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._transport.close()

    # Jobs

    async def jobs(self, which: JobFilter = _ANY, *, cursor: str | None = None, limit: int = 50) -> Page[Job]:
        """Jobs in order of name."""
        query = {
            "kind": which.source,
            "domain": which.domain,
            "domain_config_id": which.domain_config_id,
            "tag": which.tag,
            "priority": None if which.priority is None else int(which.priority),
            "enabled": which.enabled,
            "paused": which.paused,
            "stale": which.stale,
            "text": which.text,
        }
        return await self._page("/jobs", _job, query, cursor, limit)

    def each_job(self, which: JobFilter = _ANY) -> AsyncIterator[Job]:
        """All of them, page by page."""
        return each(lambda cursor: self.jobs(which, cursor=cursor, limit=MOST))

    async def job(self, name: str) -> Job:
        """One job."""
        return _job(await self._get(path("jobs", name)))

    async def explain(self, name: str) -> Explanation:
        """Why it is not running, or what it is doing."""
        return decoded(await self._get(path("jobs", name, "explain")), Explanation)

    async def next_runs(self, name: str, count: int = 5) -> list[datetime]:
        """When a job will run, as if it were neither paused nor disabled."""
        return _times(await self._get(path("jobs", name, "next"), {"count": count}))

    async def next_of(self, cron: str, timezone: str = "UTC", count: int = 5) -> list[datetime]:
        """When a cron expression would run."""
        return _times(await self._get("/next", {"cron": cron, "timezone": timezone, "count": count}))

    async def add_job(self, columns: Mapping[str, Any]) -> Job:
        """Make a job; what is left out is as the settings of the server have it.

        `{"source": "telegram", "target": "@example_news", "interval_seconds": 300}`
        """
        # With a key it can be sent again without harm, should the answer get lost.
        headers = {"Idempotency-Key": uuid4().hex}
        return _job(await self._transport.request("POST", "/jobs", body=plain(columns), headers=headers))

    async def change_job(self, name: str, columns: Mapping[str, Any], *, version: int | None = None) -> Job:
        """Set some columns of a job, if it is still at `version`; else `Conflict`."""
        return _job(
            await self._transport.request("PATCH", path("jobs", name), body=plain(columns), headers=_if_match(version))
        )

    async def replace_job(self, name: str, columns: Mapping[str, Any], *, version: int | None = None) -> Job:
        """Make a job exactly this; what is left out gets its default."""
        return _job(
            await self._transport.request("PUT", path("jobs", name), body=plain(columns), headers=_if_match(version))
        )

    async def remove_job(self, name: str, *, version: int | None = None) -> Job:
        """Delete a job; what it was. Its history and its items stay."""
        return _job(await self._transport.request("DELETE", path("jobs", name), headers=_if_match(version)))

    async def pause_job(self, name: str, reason: str | None = None) -> Job:
        """Let nothing of it start."""
        return _job(await self._post(path("jobs", name, "pause"), None if reason is None else {"reason": reason}))

    async def resume_job(self, name: str) -> Job:
        """Undo a pause."""
        return _job(await self._post(path("jobs", name, "resume")))

    async def cancel_job(self, name: str) -> int:
        """End what is unfinished of it; how many."""
        return decoded(await self._post(path("jobs", name, "cancel")), dict[str, int])["cancelled"]

    async def run_job(self, name: str, params: Mapping[str, Any] | None = None) -> Asked:
        """Run it now, whatever its schedule says."""
        body = {"params": params} if params else None
        return decoded(await self._post(path("jobs", name, "force-run"), body), Asked)

    # Executions

    # Dead letters

    # What was collected

    # Reports

    # The installation

    async def live(self, *only: Kind, after: int | None = None) -> AsyncIterator[News]:
        """What happens in the whole fleet, as it happens, until the server leaves or the connection breaks.

        With `after`, items behind that position come first: keep the last `position` to go on from it.
        """
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self._transport.events("/live", {"only": only}, headers) as events:
            async for event in events:
                if not event.data:
                    # Only how soon to come back, should the connection break.
                    continue
                position = int(event.id) if event.event == "item" and event.id else None
                yield News(kind=event.event, data=decoded(event.data.encode(), dict[str, Any]), position=position)

    # Triggers

    # Moving over

    async def shadow(self) -> ShadowStatus:
        """Whether it is recorded what would be fired for the jobs of an older scheduler."""
        return decoded(await self._get("/shadow"), ShadowStatus)

    async def start_shadow(self, back: timedelta = timedelta()) -> ShadowStatus:
        """Record that, from now or from `back` ago. A shadow that is on goes on as it is."""
        return decoded(await self._post("/shadow", {"back_seconds": back.total_seconds()}), ShadowStatus)

    async def stop_shadow(self) -> ShadowStatus:
        """Record no more, and forget what was recorded."""
        return decoded(await self._transport.request("DELETE", "/shadow"), ShadowStatus)

    async def step_shadow(self) -> Recorded:
        """Record up to now, without waiting for the scheduler to do it."""
        return decoded(await self._post("/shadow/step"), Recorded)

    async def shadow_report(
        self,
        *,
        hours: float = 24,
        tolerance: timedelta | None = None,
        time_column: str = "scheduled_for",
        jobs: Sequence[str] = (),
    ) -> ParityReport:
        """Compare with what the old scheduler recorded, of these jobs or of all."""
        query = {
            "hours": hours,
            "tolerance_seconds": None if tolerance is None else tolerance.total_seconds(),
            "time_column": time_column,
            "job": list(jobs) or None,
        }
        return decoded(await self._get("/shadow/report", query), ParityReport)

    async def migrate_jobs(self, which: Which, *, back: bool = False, dry_run: bool = False) -> Moved:
        """Give jobs of an older scheduler to this one, or back; all of them or none."""
        body = {
            "jobs": which.jobs,
            "tag": which.tag,
            "domain": which.domain,
            "all": which.everything,
            "back": back,
            "dry_run": dry_run,
        }
        return decoded(await self._post("/migrate-jobs", body), Moved)

    async def import_jobs(
        self, new: Sequence[NewJob], *, take_over: bool = False, dry_run: bool = False, usual: bool = False
    ) -> Imports:
        """Make up to 500 jobs of another scheduler, all of them or none; those that are there already stay as they are.

        With `usual` they get the policy that the settings of the server have for new jobs.
        """
        body = {"jobs": [_imported(one, usual=usual) for one in new], "take_over": take_over, "dry_run": dry_run}
        return decoded(await self._post("/import-jobs", body), Imports)

    async def _get(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        return await self._transport.request("GET", path, query=query)

    async def _post(self, path: str, body: Any = None) -> bytes:
        return await self._transport.request("POST", path, body=body)

    async def _page(
        self,
        path: str,
        read: Callable[[bytes], T],
        query: Mapping[str, Any],
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Page[T]:
        body = await self._get(path, {**query, "cursor": cursor, "limit": limit})
        page = decoded(body, _RawPage)
        return Page([read(bytes(item)) for item in page.items], page.next)


async def each(page_at: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Everything in a list, page by page."""
    page = await page_at(None)
    while True:
        for item in page.items:
            yield item
        if page.next is None:
            return
        page = await page_at(page.next)


def path(*parts: str) -> str:
    """A path made of these; a slash inside of one does not cut it."""
    if not all(parts):
        raise InvalidInput("a name is missing", hint="names have at least one character")
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def plain(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a job as JSON has them: durations are seconds."""
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else msgspec.to_builtins(value)
        for name, value in columns.items()
    }


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw]
    next: str | None = None


class _Run(msgspec.Struct):
    at: datetime


class _Runs(msgspec.Struct):
    runs: list[_Run]


def _times(body: bytes) -> list[datetime]:
    return [run.at for run in decoded(body, _Runs).runs]


def _as(kind: type[T]) -> Callable[[bytes], T]:
    return lambda body: decoded(body, kind)


def _job(body: bytes) -> Job:
    return job_of(decoded(body, dict[str, Any]))


def _imported(new: NewJob, *, usual: bool) -> dict[str, Any]:
    left_out = {"scheduler_version", *(POLICY_COLUMNS if usual else ())}
    columns = {name: value for name, value in columns_of(new.spec).items() if name not in left_out}
    said = {"anchor": new.anchor, "pause_reason": new.pause_reason}
    return {"job": plain(columns), **{name: value for name, value in said.items() if value is not None}}


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
