"""One sync, and the service that repeats it.

Two syncs at once are harmless: the second waits for the first and finds nothing to change.
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
from floodmark.repositories.job_checks import check_columns
from floodmark.security.masking import mask_text
from floodmark.settings import Settings
from floodmark.sources.validation import Validation
from floodmark.wiring.resources import Resources

from .difference import SOURCE, SyncedJob, SyncPlan, difference, find_differing, long_name, short_name, too_much
from .format import ScheduleRow, rows_of, unknown_fields
from .report import LastSync, Report, SyncStatus
from .request import Fetcher
from .synced_jobs import SyncedJobs, Syncing

_ATTEMPTS = 3
_STORED_ERRORS = 20


class _Kept(Struct, frozen=True, kw_only=True):
    """The last valid response. `of` is a digest of its URL, which may contain a secret."""

    of: str = ""
    etag: str | None = None
    rows: tuple[ScheduleRow, ...] = ()


class _SupersededError(Exception):
    """Another sync has stored another response meanwhile, which may be newer."""


class Sync:
    """Reads the schedules of API_URL and brings their jobs up to date."""

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
        # The audit log shows who asked for the sync, and that it has made the changes.
        self._actor = msgspec.structs.replace(actor, via="sync")

    async def run(self, *, dry_run: bool = False, force: bool = False) -> Report:
        """Read the schedules, compare them with the jobs and, except in a dry run, change the jobs.

        `Unavailable` if the response cannot be read or is invalid, `Conflict` if it would disable too many jobs and is
        not forced. In both cases nothing was changed.
        """
        url = self._settings.api_url
        if url is None:
            raise InvalidInput(
                "API_URL is not set: there are no schedules to read",
                hint="set API_URL where Floodmark runs, for example --set API_URL=https://...",
            )
        try:
            return await self._run(url, dry_run=dry_run, force=force)
        except FloodmarkError as error:
            if not dry_run:
                await self._remember_failure(error)
            raise

    async def status(self) -> SyncStatus:
        """Return the configuration and the result of the last sync."""
        async with self._jobs.reading() as store:
            count, last = await store.count(), _last(await store.last())
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
                known = _read_kept(await store.answer())
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
            found, refused = await self._compare(store, answer.rows, _read_kept(await store.answer()))
        return _report(found, dry_run=True, not_modified=not is_new, refused=None if force else refused)

    async def _apply(self, answer: _Kept, seen: _Kept | None, *, is_new: bool, force: bool) -> Report:
        """Apply the response. A transaction that conflicts with another one is repeated."""
        for left in range(_ATTEMPTS - 1, -1, -1):
            try:
                report = await self._transact(answer, seen, is_new=is_new, force=force)
            except DBAPIError:
                # Another transaction has just taken a name, or a lock in another order. Ours was rolled back.
                if not left:
                    raise
                continue
            if report.changes:
                await self._signals.notify(Topic.JOBS)
            self._events.emit(SchedulesSynced(who=self._actor.who, **_counts(report), errors=len(report.errors)))
            return report
        raise AssertionError("unreachable")

    async def _transact(self, answer: _Kept, seen: _Kept | None, *, is_new: bool, force: bool) -> Report:
        async with self._jobs.writing() as store:
            kept = _read_kept(await store.answer())
            if seen is not None and kept not in (seen, answer):
                raise _SupersededError
            found, refused = await self._compare(store, answer.rows, kept)
            if found.steps:
                # Compare again, now that nobody else can change these jobs.
                await store.lock_jobs(step.job_id for step in found.steps if step.job_id is not None)
                found, refused = await self._compare(store, answer.rows, kept)
            if refused is not None and not force:
                raise Conflict(
                    f"the sync was refused: {refused}",
                    hint="nothing was changed; check it with: floodmark sync --dry-run; "
                    "if it is right, apply it with: floodmark sync --force",
                )
            await store.apply(found.steps, _usual(self._settings), self._actor)
            report = _report(found, not_modified=not is_new)
            if report.changes:
                await store.note(self._actor, "sync.forced" if force and refused else "sync.done", _counts(report))
            if answer != kept:
                await store.keep_answer(msgspec.to_builtins(answer))
            await store.keep_last(msgspec.to_builtins(self._success(report, len(answer.rows))))
            return report

    async def _compare(self, store: Syncing, rows: Sequence[ScheduleRow], kept: _Kept) -> tuple[SyncPlan, str | None]:
        known = await self._find_known(store, rows)
        made = {job.domain_config_id for job in known}
        new = [row for row in rows if row.domain_config_id not in made]
        taken = await store.find_taken(name for row in new for name in (short_name(row), long_name(row)))
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

    async def _find_known(self, store: Syncing, rows: Sequence[ScheduleRow]) -> list[SyncedJob]:
        """Return the synced jobs, with all columns only for those that will change, because most do not."""
        known = await store.find_synced()
        changing = set(await asyncio.to_thread(find_differing, rows, known))
        columns = await store.columns(changing)
        return [
            msgspec.structs.replace(job, columns=columns[job.job_id]) if job.job_id in columns else job
            for job in known
            # A job without columns was removed a moment ago.
            if job.job_id in columns or job.job_id not in changing
        ]

    def _success(self, report: Report, schedules: int) -> LastSync:
        now = self._clock.now()
        return LastSync(
            at=now,
            ok=True,
            who=self._actor.who,
            last_good_at=now,
            schedules=schedules,
            **_counts(report),
            error_count=len(report.errors),
            errors=report.errors[:_STORED_ERRORS],
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
    """Syncs every SYNC_INTERVAL, as the leader. A failed sync is reported, and the next one is on time."""

    def __init__(self, sync: Sync, events: Events) -> None:
        self._sync, self._events = sync, events
        self._stopping = asyncio.Event()

    async def step(self) -> timedelta | None:
        """Sync once."""
        work, stop = asyncio.create_task(self._sync.run()), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A stopping process does not wait for a slow API; what is not committed is rolled back.
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
        """Cancel the current sync."""
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
    """Return the columns of a new job that follow from the settings, as for any other job."""
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


def _counts(report: Report) -> dict[str, Any]:
    return {name: getattr(report, name) for name in ("created", "updated", "skipped", "disabled")}


def _read_kept(value: Any) -> _Kept:
    """Return the stored response; an empty one if there is none, or if another version has stored another format."""
    try:
        return msgspec.convert(value, _Kept)
    except msgspec.ValidationError:
        return _Kept()


def _last(value: Any) -> LastSync | None:
    try:
        return None if value is None else msgspec.convert(value, LastSync)
    except msgspec.ValidationError:
        return None
