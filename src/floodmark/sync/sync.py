"""One sync from beginning to end, and the loop that does it again and again.

Two at once are harmless: they wait for each other, and the second finds everything as it should be.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy.exc import DBAPIError

from floodmark.coordination.signals.port import Signals, Topic
from floodmark.errors import Conflict, FloodmarkError, InvalidInput
from floodmark.model.audit import Actor
from floodmark.model.clock import Clock
from floodmark.model.job import ScheduleType, When
from floodmark.model.job_fields import columns_of
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events, SchedulesSynced, StepFailed, SyncFieldsIgnored
from floodmark.outbound.client import Http
from floodmark.security.masking import mask_text
from floodmark.settings import Settings
from floodmark.sources.validation import Validation
from floodmark.store.job_checks import check_columns
from floodmark.wiring.resources import Resources

from .difference import SOURCE, SyncedJob, SyncPlan, difference, differing, long_name, short_name, too_much
from .format import ScheduleRow, plain, rows_from, rows_of, unknown_fields
from .report import LastSync, Report, SyncStatus
from .request import Fetcher
from .synced_jobs import SyncedJobs, Syncing

_ATTEMPTS = 3
# Of the errors of a sync so many are remembered.
_REMEMBERED = 20


class _Kept(Struct, frozen=True, kw_only=True):
    """The last good answer. `of` is the address it came from, which may hold a secret: a digest."""

    of: str = ""
    etag: str | None = None
    rows: tuple[ScheduleRow, ...] = ()


class _SupersededError(Exception):
    """Another sync has read another answer meanwhile, perhaps a newer one."""


class Sync:
    """Reads the schedules of API_URL and brings the jobs made from them up to date."""

    def __init__(
        self,
        settings: Settings,
        jobs: SyncedJobs,
        http: Http,
        actor: Actor,
        *,
        events: Events,
        signals: Signals,
        clock: Clock,
        validation: Validation,
    ) -> None:
        self._settings, self._jobs, self._http = settings, jobs, http
        self._events, self._signals, self._clock, self._validation = events, signals, clock, validation
        # Whoever asked for it: these changes come by this way.
        self._actor = msgspec.structs.replace(actor, via="sync")

    async def run(self, *, dry_run: bool = False, force: bool = False) -> Report:
        """Read and compare, and change what differs unless it is only tried.

        Raises `Unavailable` for an answer that cannot be had or used, `Conflict` for one that would disable too
        much, unless that is forced. Then nothing was changed.
        """
        url = self._settings.api_url
        if url is None:
            raise InvalidInput(
                "there is no API to read schedules from",
                hint="set API_URL where Floodmark runs, for example --set API_URL=https://...",
            )
        try:
            return await self._run(url, dry_run=dry_run, force=force)
        except FloodmarkError as error:
            if not dry_run:
                await self._remember_failure(error)
            raise

    async def status(self) -> SyncStatus:
        """How the last one went."""
        async with self._jobs.reading() as store:
            count, last = len(await store.known()), _last(await store.last())
        settings = self._settings
        return SyncStatus(
            url=None if settings.api_url is None else mask_text(settings.api_url),
            interval_seconds=settings.sync_interval.total_seconds(),
            disable_missing=settings.sync_disable_missing,
            jobs=count,
            last=last,
        )

    async def _run(self, url: str, *, dry_run: bool, force: bool) -> Report:
        fetcher = Fetcher(self._http, url, timeout=self._settings.request_timeout)
        of = hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
        for left in range(_ATTEMPTS - 1, -1, -1):
            async with self._jobs.reading() as store:
                known = _kept(await store.answer())
            fetched = await fetcher.fetch(known.etag if known.of == of else None)
            is_new = fetched.body is not None
            rows = known.rows if fetched.body is None else await asyncio.to_thread(self._read, fetched.body)
            answer = _Kept(of=of, etag=fetched.etag, rows=rows)
            if dry_run:
                return await self._try(answer, is_new=is_new, force=force)
            with suppress(_SupersededError):
                return await self._apply(answer, known if left else None, is_new=is_new, force=force)
        raise AssertionError("unreachable")

    def _read(self, body: bytes) -> tuple[ScheduleRow, ...]:
        rows = rows_of(body)
        if ignored := unknown_fields(body):
            self._events.emit(SyncFieldsIgnored(ignored))
        return rows

    async def _try(self, answer: _Kept, *, is_new: bool, force: bool) -> Report:
        async with self._jobs.reading() as store:
            found, refused = await self._compare(store, answer.rows, _kept(await store.answer()))
        return _report(found, dry_run=True, not_modified=not is_new, refused=None if force else refused)

    async def _apply(self, answer: _Kept, seen: _Kept | None, *, is_new: bool, force: bool) -> Report:
        """Do it. A transaction that met another one is done again."""
        for left in range(_ATTEMPTS - 1, -1, -1):
            try:
                report = await self._transact(answer, seen, is_new=is_new, force=force)
            except DBAPIError:
                # Somebody has just taken a name, or a lock in another order: all of it is rolled back.
                if not left:
                    raise
                continue
            if report.changes:
                await self._signals.notify(Topic.JOBS)
            synced = SchedulesSynced(who=self._actor.who, **_counts(report), errors=len(report.errors))
            self._events.emit(synced)
            return report
        raise AssertionError("unreachable")

    async def _transact(self, answer: _Kept, seen: _Kept | None, *, is_new: bool, force: bool) -> Report:
        async with self._jobs.writing() as store:
            kept = _kept(await store.answer())
            if seen is not None and kept not in (seen, answer):
                raise _SupersededError
            found, refused = await self._compare(store, answer.rows, kept)
            if found.steps:
                # Once more, now that nobody else can change them.
                await store.lock_jobs(step.job_id for step in found.steps if step.job_id is not None)
                found, refused = await self._compare(store, answer.rows, kept)
            if refused is not None and not force:
                raise Conflict(
                    f"the sync was refused: {refused}",
                    hint="nothing was changed; look with: floodmark sync --dry-run; "
                    "if it is right, do it with: floodmark sync --force",
                )
            await store.apply(found.steps, _usual(self._settings), self._actor)
            report = _report(found, not_modified=not is_new)
            if report.changes:
                await store.note(self._actor, "sync.forced" if force and refused else "sync.done", _counts(report))
            if answer != kept:
                await store.keep_answer(msgspec.to_builtins({**_fields(answer), "rows": plain(answer.rows)}))
            await store.keep_last(msgspec.to_builtins(self._went_well(report, len(answer.rows))))
            return report

    async def _compare(self, store: Syncing, rows: Sequence[ScheduleRow], kept: _Kept) -> tuple[SyncPlan, str | None]:
        known = await self._known(store, rows)
        made = {job.domain_config_id for job in known}
        new = [row for row in rows if row.domain_config_id not in made]
        taken = await store.taken(name for row in new for name in (short_name(row), long_name(row)))
        settings = self._settings

        def compare() -> tuple[SyncPlan, str | None]:
            found = difference(
                rows,
                known,
                before=kept.rows,
                taken=taken,
                disable_missing=settings.sync_disable_missing,
                validate=self._validation.complete,
            )
            return found, too_much(found, rows, known, settings.sync_disable_max_share)

        return await asyncio.to_thread(compare)

    async def _known(self, store: Syncing, rows: Sequence[ScheduleRow]) -> list[SyncedJob]:
        """The jobs there are; in full only those that will change, for most of them never do."""
        known = await store.known()
        changing = set(await asyncio.to_thread(differing, rows, known))
        columns = await store.columns(changing)
        return [
            msgspec.structs.replace(job, columns=columns[job.job_id]) if job.job_id in columns else job
            for job in known
            # One that has no columns was removed a moment ago.
            if job.job_id in columns or job.job_id not in changing
        ]

    def _went_well(self, report: Report, schedules: int) -> LastSync:
        now = self._clock.now()
        return LastSync(
            at=now,
            ok=True,
            who=self._actor.who,
            last_good_at=now,
            schedules=schedules,
            created=report.created,
            updated=report.updated,
            skipped=report.skipped,
            disabled=report.disabled,
            error_count=len(report.errors),
            errors=report.errors[:_REMEMBERED],
        )

    async def _remember_failure(self, error: FloodmarkError) -> None:
        async with self._jobs.writing() as store:
            last = _last(await store.last())
            failed = LastSync(
                at=self._clock.now(),
                ok=False,
                who=self._actor.who,
                last_good_at=None if last is None else last.last_good_at,
                schedules=None if last is None else last.schedules,
                error=str(error),
                hint=error.hint or None,
            )
            await store.keep_last(msgspec.to_builtins(failed))


class Syncer:
    """The leader's sync, every SYNC_INTERVAL. One that fails is reported, and tried again when it is due."""

    def __init__(self, sync: Sync, events: Events) -> None:
        self._sync, self._events = sync, events
        self._stopping = asyncio.Event()

    async def step(self) -> timedelta | None:
        """Sync once."""
        work, stop = asyncio.create_task(self._sync.run()), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Whoever leaves does not wait for an API that takes its time; what is not committed is rolled back.
            for task in (work, stop):
                task.cancel()
            await asyncio.wait([work, stop])
        error = None if work.cancelled() else work.exception()
        if isinstance(error, FloodmarkError):
            self._events.emit(StepFailed(step="sync", error=f"{error} ({error.hint})"))
        elif error is not None:
            raise error
        return None

    def stop(self) -> None:
        """Give up what is under way."""
        self._stopping.set()


def build_sync(resources: Resources, actor: Actor) -> Sync:
    """Return the sync of a process, for `actor`."""
    return Sync(
        resources.settings,
        SyncedJobs(resources.database, resources.clock, resources.repositories.audit),
        resources.http,
        actor,
        events=resources.events,
        signals=resources.signals,
        clock=resources.clock,
        validation=resources.validation,
    )


def build_syncer(resources: Resources) -> Syncer:
    """Return the sync that the leader runs."""
    return Syncer(build_sync(resources, Actor(who="scheduler", via="sync")), resources.events)


def _usual(settings: Settings) -> dict[str, Any]:
    """The columns of a new job: as for every other, what the settings say."""
    spec = JobSpec(
        name=SOURCE,
        source=SOURCE,
        target=SOURCE,
        when=When(schedule_type=ScheduleType.CALENDAR),
        policy=settings.default_policy(),
        timeout=settings.scheduler_job_timeout,
        retry_max=settings.parser_retry_max,
    )
    return check_columns(columns_of(spec))


def _report(found: SyncPlan, **more: Any) -> Report:
    return Report(
        created=found.count("created"),
        updated=found.count("updated"),
        skipped=found.skipped,
        disabled=found.count("disabled"),
        errors=found.errors,
        changes=tuple(step.change for step in found.steps),
        **more,
    )


def _counts(report: Report) -> dict[str, int]:
    return {name: getattr(report, name) for name in ("created", "updated", "skipped", "disabled")}


def _fields(answer: _Kept) -> dict[str, Any]:
    return {"of": answer.of, "etag": answer.etag}


def _kept(value: Any) -> _Kept:
    """What was kept; nothing, if a version that understood another format has kept it."""
    try:
        return _Kept(of=value["of"], etag=value["etag"], rows=rows_from(value["rows"]))
    except (msgspec.ValidationError, KeyError, TypeError):
        return _Kept()


def _last(value: Any) -> LastSync | None:
    try:
        return None if value is None else msgspec.convert(value, LastSync)
    except msgspec.ValidationError:
        return None
