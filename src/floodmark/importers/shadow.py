"""Records what Floodmark would fire for the jobs of the old scheduler, and compares it with its runs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta

from floodmark.errors import Conflict, InvalidInput
from floodmark.model.handover import JobParity, OldRunsTable, ParityReport, Recorded, ShadowStatus, Verdict
from floodmark.model.job import Job, ScheduleType
from floodmark.triggers import Trigger, between, trigger_of

from .parity import Parity, compare, tolerance_for
from .shadow_fires import ShadowFires, Shadowing

KEPT = timedelta(days=7)

_INSTANT = timedelta(microseconds=1)
# How much one step records after the shadow was off. An interval has at least one second.
_STRETCH = timedelta(hours=1)
_MOST = 3700
# Recorded again: a job may be committed a little after its creation time.
_OVERLAP = timedelta(seconds=30)
_FORGET_EVERY = timedelta(hours=1)
_SHOWN = 20
_RECORD = OldRunsTable()


class Shadow:
    """Records what would be fired, and fires nothing. Two shadows at once are harmless."""

    def __init__(self, fires: ShadowFires) -> None:
        self._fires = fires
        self._forget_at: datetime | None = None

    async def status(self) -> ShadowStatus:
        """Return the progress of the shadow."""
        under_way = await self._fires.status()
        jobs, fires = await self._fires.counts()
        since, until = (None, None) if under_way is None else (under_way.since, under_way.until)
        return ShadowStatus(on=under_way is not None, since=since, until=until, jobs=jobs, fires=fires)

    async def start(self, back: timedelta = timedelta()) -> bool:
        """Record from now on, or from `back` ago with the current schedules. Returns False if it was already on."""
        if not timedelta() <= back <= KEPT:
            raise InvalidInput(f"{back} is too long: fires are kept for 7 days", hint="for example --back 24h")
        return await self._fires.start(await self._fires.now() - back)

    async def stop(self) -> bool:
        """Stop recording and delete the records. Returns False if it was already off."""
        return await self._fires.stop()

    async def step(self) -> Recorded | None:
        """Record the next period. Returns None while the shadow is off."""
        under_way = await self._fires.status()
        if under_way is None:
            return None
        now = await self._fires.now()
        after = max(under_way.until, now - KEPT)
        until = min(now, after + _STRETCH)
        again = max(under_way.since, after - _OVERLAP)
        count = 0
        async for page in self._pages():
            await self._fires.record(
                [(job.job_id, instant) for job in page for instant in would_fire(job, again, until)]
            )
            count += len(page)
        await self._fires.reached(until)
        await self._forget(now)
        return Recorded(jobs=count, until=until, is_behind=until < now)

    async def report(
        self,
        *,
        hours: float = 24,
        tolerance: timedelta | None = None,
        record: OldRunsTable = _RECORD,
        names: Sequence[str] | None = None,
    ) -> ParityReport:
        """Compare the last hours. `names`: only these jobs."""
        under_way = await self._fires.status()
        if under_way is None:
            raise Conflict("the shadow is off: there is nothing to compare", hint="begin with: floodmark shadow start")
        begin = max(under_way.since, await self._fires.now() - timedelta(hours=hours))
        found: list[JobParity] = []
        async for page in self._pages():
            wanted = [job for job in page if names is None or job.name in names]
            if wanted:
                span = Shadowing(since=begin, until=max(begin, under_way.until))
                found += await self._compare(wanted, span, tolerance, record)
        return ParityReport(
            since=begin,
            until=max(begin, under_way.until),
            jobs=tuple(sorted(found, key=lambda one: one.job)),
            equal=sum(one.verdict == "equal" for one in found),
            differing=sum(one.verdict in ("differs", "invalid") for one in found),
        )

    async def _compare(
        self, jobs: Sequence[Job], span: Shadowing, given: timedelta | None, record: OldRunsTable
    ) -> list[JobParity]:
        expected = _with_neighbours(jobs, await self._fires.fires(jobs, span.since, span.until), span)
        tolerances = {
            job.job_id: tolerance_for(
                expected[job.job_id], is_interval=job.when.schedule_type is ScheduleType.INTERVAL, given=given
            )
            for job in jobs
        }
        # Twice the tolerance: the instant before the first one then finds its own run and takes no other.
        reach = 2 * max(tolerances.values())
        runs = await self._fires.runs(jobs, record, span.since - reach, span.until)
        return [_judge(job, expected[job.job_id], runs[job.job_id], span, tolerances[job.job_id]) for job in jobs]

    async def _pages(self) -> AsyncIterator[list[Job]]:
        page = await self._fires.old_jobs()
        while page:
            yield page
            page = await self._fires.old_jobs(page[-1].job_id)

    async def _forget(self, now: datetime) -> None:
        if self._forget_at is None or now >= self._forget_at:
            await self._fires.forget(now - KEPT)
            self._forget_at = now + _FORGET_EVERY


def would_fire(job: Job, after: datetime, until: datetime) -> list[datetime]:
    """Return the instants of a job after `after` and up to `until`, as Floodmark would plan them."""
    trigger = _trigger(job)
    if trigger is None or job.paused or not job.schedule_enabled:
        return []
    # Like the scheduler: a job that was never planned counts from its creation.
    return between(trigger, max(after, job.planned_until or job.created_at - _INSTANT), until, _MOST)


def _begin(job: Job) -> datetime:
    """Return when the schedule last changed: the database records it with every change."""
    return job.planned_until or job.created_at


def _trigger(job: Job) -> Trigger | None:
    try:
        return None if job.invalid_reason else trigger_of(job.when, anchor=job.created_at)
    except InvalidInput:
        return None


def _with_neighbours(
    jobs: Sequence[Job], fires: Mapping[str, list[datetime]], span: Shadowing
) -> dict[str, list[datetime]]:
    """Add, for each job, the instant before and the one after: some late and early runs belong to those."""
    found = {job_id: list(instants) for job_id, instants in fires.items()}
    for job in jobs:
        trigger = _trigger(job)
        if trigger is not None and not job.paused and job.schedule_enabled:
            around = (trigger.latest(max(span.since, _begin(job)) - _INSTANT), trigger.after(span.until))
            found[job.job_id] += [instant for instant in around if instant is not None]
    return found


def _judge(
    job: Job, expected: Sequence[datetime], runs: Sequence[datetime], span: Shadowing, tolerance: timedelta
) -> JobParity:
    begin = min(max(span.since, _begin(job)), span.until)
    parity = compare(expected, runs, begin=begin, end=span.until, tolerance=tolerance)
    verdict, reason = _verdict(job, parity)
    return JobParity(
        job=job.name,
        job_id=job.job_id,
        verdict=verdict,
        reason=reason,
        since=begin,
        until=span.until,
        expected=parity.expected,
        actual=parity.actual,
        matched=parity.matched,
        missed=len(parity.missed),
        extra=len(parity.extra),
        missed_at=parity.missed[:_SHOWN],
        extra_at=parity.extra[:_SHOWN],
        drift_median_seconds=parity.drift_median_seconds,
        drift_max_seconds=parity.drift_max_seconds,
    )


def _verdict(job: Job, parity: Parity) -> tuple[Verdict, str | None]:
    if job.invalid_reason:
        return "invalid", job.invalid_reason
    try:
        trigger_of(job.when, anchor=job.created_at)
    except InvalidInput as error:
        return "invalid", str(error)
    if job.when.schedule_type is ScheduleType.EVENT:
        return "nothing", "it runs on demand: there are no instants to compare"
    if not parity.is_equal:
        return "differs", None
    return ("equal", None) if parity.matched else ("nothing", "nothing was due yet")
