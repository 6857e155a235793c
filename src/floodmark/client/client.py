"""Every verb of the API, for asyncio."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from floodmark.errors import InvalidInput
from floodmark.importers.handover import Imports, Moved, NewJob, Which
from floodmark.importers.shadow import ParityReport, Recorded, ShadowStatus
from floodmark.inbound.triggers import Kind as TriggerKind
from floodmark.inbound.triggers import NewTrigger, TriggersStatus, TriggerStatus
from floodmark.model.execution import Execution, State
from floodmark.model.job import Job
from floodmark.model.job_fields import POLICY_COLUMNS, columns_of
from floodmark.operations.doctor import Finding
from floodmark.operations.overview import Overview
from floodmark.operations.port import Asked, JobFilter, Letters, NewAccount, Tested
from floodmark.operations.stored_tokens import Minted, Role, TokenRow
from floodmark.outbound.breakers import BreakerRow
from floodmark.outbound.limits import LimitRow
from floodmark.rules.explain import Explanation
from floodmark.sources.cookies.difference import Difference as CookieDifference
from floodmark.sources.cookies.stored_reports import CookieReport
from floodmark.sources.telegram.accounts import AccountRow, Added, Person
from floodmark.sources.telegram.stored_posts import ChatShown, StreamShown
from floodmark.store.audit import AuditRow
from floodmark.store.dead_letters import Group
from floodmark.store.events import ItemHistory, StoredItem
from floodmark.store.fleet import WorkerInfo
from floodmark.store.port import Event
from floodmark.store.watermarks import StreamState
from floodmark.sync.report import Report, SyncStatus

from .decoding import decoded, event_of, job_of
from .transport import Transport

T = TypeVar("T")

# The most that a server gives at once.
MOST = 200
_ANY = JobFilter()
_SESSION = "the session of an account"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Part of a list; `next` is the `cursor` of the part behind it, None if there is none."""

    items: list[T]
    next: str | None = None


class Fleet(msgspec.Struct, frozen=True):
    """The processes of an installation, who of them schedules, and whether they were told to take no more work."""

    workers: list[WorkerInfo]
    leader: str | None
    draining: bool


class AccountShown(msgspec.Struct, frozen=True):
    """An account without its secrets, and the names of the jobs that ask for it."""

    account: AccountRow
    jobs: tuple[str, ...]


class Visitor(msgspec.Struct, frozen=True):
    """Who the server takes us for."""

    who: str
    role: Literal["read", "operate", "admin"]


Kind = Literal["execution", "item", "limit", "breaker", "worker"]


class News(msgspec.Struct, frozen=True):
    """Something that has just happened: `kind` says what `data` is. Items have a position."""

    kind: str
    data: dict[str, Any]
    position: int | None = None


class Client:
    """A server of Floodmark, for as long as the `async with` block runs.

    Jobs are named by name or id, or the beginning of one; streams also by a job's name. What is refused raises the
    same `FloodmarkError` as it does where the server is, with a hint; `Unavailable` if the server is away, `Denied`
    if the token is not enough. What only asks is tried again when the connection fails.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._transport = Transport(url, token, timeout=timeout)
        self.url = self._transport.url

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

    async def executions(
        self,
        *,
        job: str | None = None,
        states: Sequence[State] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Execution]:
        """Newest first, also of jobs that are gone."""
        query = {"job": job, "state": None if states is None else [state.value for state in states]}
        return await self._page("/executions", _as(Execution), query, cursor, limit)

    def each_execution(
        self, *, job: str | None = None, states: Sequence[State] | None = None
    ) -> AsyncIterator[Execution]:
        """All of them, page by page."""
        return each(lambda cursor: self.executions(job=job, states=states, cursor=cursor, limit=MOST))

    async def execution(self, execution_id: str) -> Execution:
        """One execution; the beginning of its id is enough."""
        return decoded(await self._get(path("executions", execution_id)), Execution)

    async def cancel_execution(self, execution_id: str) -> Execution:
        """End one execution: at once if it has not started, else as soon as its worker hears of it."""
        return decoded(await self._post(path("executions", execution_id, "cancel")), Execution)

    async def retry_execution(self, execution_id: str) -> Execution:
        """Run one that failed for good again, with all attempts ahead of it."""
        return decoded(await self._post(path("executions", execution_id, "retry")), Execution)

    async def statistics(self, days: float = 7, job: str | None = None) -> dict[str, Any]:
        """How the executions of the last days went."""
        return decoded(await self._get("/statistics", {"days": days, "job": job}), dict[str, Any])

    async def cleanup_old_executions(self, days: float = 90) -> int:
        """Delete executions that ended and were written down more than `days` ago; how many."""
        return decoded(await self._post("/executions/cleanup", {"days": days}), dict[str, int])["deleted"]

    # Dead letters

    async def letters(self, *, job: str | None = None, cursor: str | None = None, limit: int = 50) -> Page[Execution]:
        """Executions that failed for good, newest first."""
        return await self._page("/dead-letters", _as(Execution), {"job": job}, cursor, limit)

    def each_letter(self, *, job: str | None = None) -> AsyncIterator[Execution]:
        """All of them, page by page."""
        return each(lambda cursor: self.letters(job=job, cursor=cursor, limit=MOST))

    async def letter_groups(self, job: str | None = None) -> list[Group]:
        """The same by error, most frequent first."""
        return (await self._page("/dead-letters/groups", _as(Group), {"job": job})).items

    async def retry_letters(self, which: Letters) -> int:
        """Run dead letters again; how many."""
        return decoded(await self._post("/dead-letters/retry", _these(which)), dict[str, int])["count"]

    async def drop_letters(self, which: Letters) -> int:
        """Take dead letters off the list; how many."""
        return decoded(await self._post("/dead-letters/drop", _these(which)), dict[str, int])["count"]

    # What was collected

    async def watermarks(self, *, cursor: str | None = None, limit: int = 50) -> Page[StreamState]:
        """How far each stream is collected, in order of name."""
        return await self._page("/watermarks", _as(StreamState), {}, cursor, limit)

    def each_watermark(self) -> AsyncIterator[StreamState]:
        """All of them, page by page."""
        return each(lambda cursor: self.watermarks(cursor=cursor, limit=MOST))

    async def watermark(self, stream: str) -> StreamState:
        """How far one stream is collected."""
        return decoded(await self._get(path("watermarks", stream)), StreamState)

    async def set_watermark(self, stream: str, value: Mapping[str, Any]) -> StreamState:
        """Go on from there."""
        body = {"value": value}
        return decoded(await self._transport.request("PUT", path("watermarks", stream), body=body), _Moved).watermark

    async def reset_watermark(self, stream: str) -> StreamState:
        """Begin again."""
        return decoded(await self._transport.request("DELETE", path("watermarks", stream)), _Moved).watermark

    async def stream(self, name: str) -> tuple[str, int]:
        """The stream that holds the items of a stream or job, and how many there are."""
        told = decoded(await self._get(path("streams", name)), dict[str, Any])
        return str(told["stream"]), int(told["items"])

    async def streams(self, *, chats: bool = False, cursor: str | None = None, limit: int = 50) -> Page[StreamShown]:
        """The streams that hold items, in order of name; with `chats` only those of posts."""
        return await self._page("/streams", _as(StreamShown), {"chats": chats or None}, cursor, limit)

    def each_stream(self, *, chats: bool = False) -> AsyncIterator[StreamShown]:
        """All of them, page by page."""
        return each(lambda cursor: self.streams(chats=chats, cursor=cursor, limit=MOST))

    async def chat(self, stream: str) -> ChatShown | None:
        """Whose posts a stream holds, and what that chat is called; None if it holds something else."""
        return decoded(await self._get(path("streams", stream)), _OfChat).chat

    async def items(
        self,
        stream: str,
        *,
        since: date | None = None,
        until: date | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[StoredItem]:
        """Items of a stream in order of key; with `since` or `until` those of these UTC days, in order of time."""
        query = {"since": since, "until": until}
        return await self._page(path("streams", stream, "items"), _as(StoredItem), query, cursor, limit)

    async def newest_items(
        self, stream: str, *, since: datetime | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[StoredItem]:
        """Items of a stream, newest first; with `since` only those from that moment on."""
        return await self._page(path("streams", stream, "newest"), _as(StoredItem), {"since": since}, cursor, limit)

    def each_item(
        self, stream: str, *, since: date | None = None, until: date | None = None
    ) -> AsyncIterator[StoredItem]:
        """All of them, page by page."""
        return each(lambda cursor: self.items(stream, since=since, until=until, cursor=cursor, limit=MOST))

    async def item(self, stream: str, key: str) -> ItemHistory:
        """One item with its revisions."""
        return decoded(await self._get(path("streams", stream, "items", key)), ItemHistory)

    async def events(
        self, *, after: int = 0, stream: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[Event]:
        """Events behind a position, in order."""
        query = {"after": None if cursor else after, "stream": stream}
        return await self._page("/events", event_of, query, cursor, limit)

    def each_event(self, *, after: int = 0, stream: str | None = None) -> AsyncIterator[Event]:
        """All that there are behind a position. To follow them, keep the last position and ask again."""
        return each(lambda cursor: self.events(after=after, stream=stream, cursor=cursor, limit=MOST))

    async def last_position(self) -> int:
        """The position of the newest event."""
        return decoded(await self._get("/events", {"limit": 1}), _Last).last_position

    # Reports

    async def cookie_report(self, domain: str, scan: str | None = None) -> CookieReport:
        """What the last scan of a domain found, or the one of that key."""
        return decoded(await self._get(path("reports", "cookies", domain), {"scan": scan}), CookieReport)

    async def cookie_file(self, domain: str, name: str, scan: str | None = None) -> bytes:
        """A file that the manifest of a report names: report.html, report.json, before.png, ..."""
        return await self._get(path("reports", "cookies", domain, "files", name), {"scan": scan})

    async def cookie_difference(
        self, domain: str, scan: str | None = None, against: str | None = None
    ) -> CookieDifference:
        """What is new, gone or changed since the scan before, or since the one of the key `against`."""
        query = {"scan": scan, "against": against}
        return decoded(await self._get(path("reports", "cookies", domain, "difference"), query), CookieDifference)

    # What has to wait

    async def limits(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """What has to wait, the longest first."""
        return (await self._page("/limits", _as(LimitRow), {"past": with_past or None}, None, limit)).items

    async def set_limit(self, key: str, seconds: float, reason: str) -> LimitRow:
        """Let everything under a key wait."""
        body = {"seconds": seconds, "reason": reason}
        return decoded(await self._transport.request("PUT", path("limits", key), body=body), LimitRow)

    async def clear_limit(self, key: str) -> LimitRow:
        """Lift a limit; what it was."""
        return decoded(await self._transport.request("DELETE", path("limits", key)), LimitRow)

    async def breakers(self, *, limit: int = 100) -> list[BreakerRow]:
        """The breakers that have ever had something to do."""
        return (await self._page("/breakers", _as(BreakerRow), {}, None, limit)).items

    async def reset_breaker(self, key: str) -> BreakerRow:
        """Close a breaker; what it was."""
        return decoded(await self._post(path("breakers", key, "reset")), BreakerRow)

    # The installation

    async def fleet(self) -> Fleet:
        """The processes of the installation."""
        return decoded(await self._get("/scheduler/workers"), Fleet)

    async def overview(self) -> Overview:
        """Everything at a glance; cheap enough to be asked every second."""
        return decoded(await self._get("/overview"), Overview)

    async def drain(self) -> None:
        """Let workers take no more work."""
        await self._post("/scheduler/drain")

    async def undrain(self) -> None:
        """Let them work again."""
        await self._post("/scheduler/resume")

    async def health(self) -> dict[str, Any]:
        """Is everything well?"""
        return decoded(await self._get("/scheduler/health"), dict[str, Any])

    async def doctor(self) -> list[Finding]:
        """Let the server examine itself: does everything answer, does everything hold?"""
        return decoded(await self._get("/doctor"), _Findings).findings

    async def accounts(self, *, cursor: str | None = None, limit: int = 50) -> Page[AccountRow]:
        """The accounts that sources log in with, without their secrets."""
        return await self._page("/accounts", _as(AccountRow), {}, cursor, limit)

    async def account(self, name: str) -> AccountShown:
        """One account, and the jobs that ask for it."""
        return decoded(await self._get(path("accounts", name)), AccountShown)

    async def expect_account(self, name: str, *, replace: bool = False) -> AccountRow | None:
        """What is there under the name of an account that is about to be added; refuses now what would be refused."""
        self._transport.require_private(_SESSION)
        body = {"name": name, "replace": replace, "dry_run": True}
        return decoded(await self._post("/accounts", body), _Expected).account

    async def add_account(self, new: NewAccount) -> tuple[Added, Person | None]:
        """Store an account, and who it is, if that was to be checked. Its session goes by https, or stays here."""
        self._transport.require_private(_SESSION)
        given = {name: value for name, value in msgspec.structs.asdict(new).items() if value is not None}
        given["check"] = given.pop("is_checked")
        body = await self._post("/accounts", given)
        return decoded(body, Added), decoded(body, _Who).person

    async def test_account(self, name: str, *, activate: bool = False) -> Tested:
        """Let the server ask Telegram who it is; with `activate` it is used again, should it be parked."""
        return decoded(await self._post(path("accounts", name, "test"), {"activate": activate}), Tested)

    async def remove_account(self, name: str, *, force: bool = False) -> AccountRow:
        """Forget an account; what it was."""
        query = {"force": force or None}
        return decoded(await self._transport.request("DELETE", path("accounts", name), query=query), AccountRow)

    async def audit(self, *, what: str | None = None, cursor: str | None = None, limit: int = 50) -> Page[AuditRow]:
        """Who changed what, newest first."""
        return await self._page("/audit", _as(AuditRow), {"what": what}, cursor, limit)

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

    async def whoami(self) -> Visitor:
        """Who the server takes us for, and what that may do."""
        return decoded(await self._get("/whoami"), Visitor)

    async def tokens(self, *, cursor: str | None = None, limit: int = 50) -> Page[TokenRow]:
        """Tokens in order of name, without their secrets; revoked ones too."""
        return await self._page("/tokens", _as(TokenRow), {}, cursor, limit)

    async def token(self, name: str) -> TokenRow:
        """One token."""
        return decoded(await self._get(path("tokens", name)), TokenRow)

    async def add_token(self, name: str, role: Role, expires_in: timedelta | None = None) -> Minted:
        """Make a token. Its text cannot be had again."""
        good_for = None if expires_in is None else f"{expires_in.days}d{expires_in.seconds}s"
        body = await self._post("/tokens", {"name": name, "role": role, "expires_in": good_for})
        return Minted(decoded(body, TokenRow), decoded(body, _Text).token)

    async def revoke_token(self, name: str) -> TokenRow:
        """Let nobody in with it any more; what it is now."""
        return decoded(await self._transport.request("DELETE", path("tokens", name)), TokenRow)

    # Triggers

    async def triggers(self, kind: TriggerKind, *, cursor: str | None = None, limit: int = 50) -> Page[TriggerStatus]:
        """Triggers of one kind, in the order they were made; secrets are not shown."""
        return await self._page(f"/triggers/{kind}s", _as(TriggerStatus), {}, cursor, limit)

    async def triggers_status(self) -> TriggersStatus:
        """How triggers from outside fare."""
        return decoded(await self._get("/triggers/status"), TriggersStatus)

    async def add_trigger(self, new: NewTrigger, *, replace: bool = False) -> TriggerStatus:
        """Let something from outside fire jobs."""
        body: dict[str, Any] = {
            "pattern": new.pattern,
            "jobs": list(new.jobs),
            "params": dict(new.params),
            "debounce_seconds": new.debounce.total_seconds(),
            "enabled": new.enabled,
            "replace": replace,
        }
        if new.secret is not None:
            body["secret"] = new.secret
        return decoded(await self._post(f"/triggers/{new.kind}s", body), TriggerStatus)

    async def remove_trigger(self, kind: TriggerKind, trigger: str) -> TriggerStatus:
        """Forget a trigger, by its id or pattern; what it was."""
        where = path("triggers", f"{kind}s", trigger)
        return decoded(await self._transport.request("DELETE", where), TriggerStatus)

    async def sync(self, *, dry_run: bool = False, force: bool = False) -> Report:
        """Let the server read the schedules of its API_URL; or only tell what that would change."""
        return decoded(await self._post("/sync", {"dry_run": dry_run, "force": force}), Report)

    async def sync_status(self) -> SyncStatus:
        """How its last sync went."""
        return decoded(await self._get("/sync"), SyncStatus)

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


class _Expected(msgspec.Struct):
    account: AccountRow | None


class _Who(msgspec.Struct):
    person: Person | None


class _Findings(msgspec.Struct):
    findings: list[Finding]


class _OfChat(msgspec.Struct):
    chat: ChatShown | None


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw]
    next: str | None = None


class _Run(msgspec.Struct):
    at: datetime


class _Runs(msgspec.Struct):
    runs: list[_Run]


class _Moved(msgspec.Struct):
    watermark: StreamState


class _Text(msgspec.Struct):
    token: str


class _Last(msgspec.Struct):
    last_position: int


def _times(body: bytes) -> list[datetime]:
    return [run.at for run in decoded(body, _Runs).runs]


def _as(kind: type[T]) -> Callable[[bytes], T]:
    return lambda body: decoded(body, kind)


def _job(body: bytes) -> Job:
    return job_of(decoded(body, dict[str, Any]))


def _these(which: Letters) -> dict[str, Any]:
    named = {"ids": which.ids, "group": which.group, "job": which.job}
    return {name: value for name, value in named.items() if value is not None}


def _imported(new: NewJob, *, usual: bool) -> dict[str, Any]:
    left_out = {"scheduler_version", *(POLICY_COLUMNS if usual else ())}
    columns = {name: value for name, value in columns_of(new.spec).items() if name not in left_out}
    said = {"anchor": new.anchor, "pause_reason": new.pause_reason}
    return {"job": plain(columns), **{name: value for name, value in said.items() if value is not None}}


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
