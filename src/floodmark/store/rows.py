"""From rows to values: the columns of a job in one fixed order, whichever database they come from."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from floodmark.model.job import (
    LONG_AGO,
    CatchUp,
    DueJob,
    Frequency,
    Job,
    Overlap,
    Policy,
    Priority,
    ScheduleType,
    When,
    Work,
)
from floodmark.model.strict_json import STORED_DEPTH, read_json
from floodmark.rules.streams import stream_name

from .types import from_text

# The order in which `_when` and `_policy` expect them.
_WHEN = (
    "schedule_type",
    "cron_expression",
    "interval_seconds",
    "frequency",
    "time_config",
    "timezone",
)
_POLICY = (
    "overlap",
    "max_instances",
    "coalesce",
    "misfire_grace_seconds",
    "catch_up",
    "jitter_seconds",
)
# The order in which `job_from_row` expects them.
JOB_COLUMNS = (
    "job_id",
    "name",
    "source",
    "target",
    "stream",
    "params",
    "tags",
    *_WHEN,
    "schedule_enabled",
    "paused",
    "pause_reason",
    "invalid_reason",
    "scheduler_version",
    "priority",
    "timeout_seconds",
    "retry_max",
    *_POLICY,
    "limit_key",
    "account",
    "next_run",
    "planned_until",
    "last_run",
    "last_success",
    "last_status",
    "domain",
    "domain_config_id",
    "profile_id",
    "source_id",
    "url",
    "tenant_id",
    "user_id",
    "trigger_webhook",
    "trigger_channel",
    "version",
    "created_at",
    "updated_at",
)
# The order in which `work_from_row` expects them.
WORK_COLUMNS = (
    "job_id",
    "name",
    "source",
    "target",
    "stream",
    "params",
    "priority",
    "timeout_seconds",
    "retry_max",
    "limit_key",
    "account",
    "source_id",
    "url",
    "tenant_id",
    "user_id",
)
# The order in which `due_job_from_row` expects them; behind them, how many are active and what it waits for.
DUE_COLUMNS = (
    "job_id",
    "name",
    "source",
    *_WHEN,
    *_POLICY,
    "priority",
    "planned_until",
    "created_at",
)
WORK_SELECT = ", ".join(f"j.{column}" for column in WORK_COLUMNS)
DUE_SELECT = ", ".join(f"j.{column}" for column in DUE_COLUMNS)

_SCHEDULE_TYPES = {kind.value: kind for kind in ScheduleType}
_FREQUENCIES: dict[str | None, Frequency | None] = {None: None, **{f.value: f for f in Frequency}}
_PRIORITIES = {p.value: p for p in Priority}
_OVERLAPS = {o.value: o for o in Overlap}
_CATCH_UPS = {c.value: c for c in CatchUp}


# What a value of the wrong kind makes of the attempt to read it.
_UNREADABLE = (KeyError, TypeError, ValueError)
_TEN_YEARS = 315_360_000.0


def moment(value: datetime | str | None) -> datetime | None:
    """A time as either driver gives it: SQLite text, asyncpg aware UTC."""
    return from_text(value) if isinstance(value, str) else value


def decoded(value: Any) -> Any:
    """A JSON column as either driver gives it."""
    return read_json(value, depth=STORED_DEPTH) if isinstance(value, str | bytes) else value


@lru_cache(maxsize=1024)
def seconds(value: float) -> timedelta:
    """A duration typed by hand may be absurd, but must not stop everyone else: it is cut at ten years."""
    return timedelta(seconds=min(max(value, 0.0), _TEN_YEARS))


# Jobs have much in common, and reading it again for each of a thousand takes longer than all the rest.
@lru_cache(maxsize=1024)
def _when(columns: tuple[Any, ...]) -> When:
    schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone = columns
    return When(
        schedule_type=_SCHEDULE_TYPES[schedule_type],
        cron_expression=cron_expression,
        interval_seconds=interval_seconds,
        # A frequency typed by hand may be wrong; the trigger says so when the job is planned.
        frequency=_FREQUENCIES.get(frequency, frequency),
        time_config=decoded(time_config),
        timezone=timezone,
    )


@lru_cache(maxsize=1024)
def _policy(columns: tuple[Any, ...]) -> Policy:
    overlap, max_instances, coalesce, grace, catch_up, jitter = columns
    return Policy(
        overlap=_OVERLAPS[overlap],
        max_instances=max_instances,
        coalesce=bool(coalesce),
        misfire_grace=seconds(grace),
        catch_up=_CATCH_UPS[catch_up],
        jitter=seconds(jitter),
    )


_READERS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("params", "tags", "time_config"), decoded),
    **dict.fromkeys(("timeout_seconds", "misfire_grace_seconds", "jitter_seconds"), seconds),
    **dict.fromkeys(("next_run", "planned_until", "last_run", "last_success", "created_at", "updated_at"), moment),
    "schedule_type": _SCHEDULE_TYPES.__getitem__,
    "priority": _PRIORITIES.__getitem__,
    "overlap": _OVERLAPS.__getitem__,
    "catch_up": _CATCH_UPS.__getitem__,
}


def job_from_row(row: Sequence[Any]) -> Job:
    """A job from its columns, in the order of `JOB_COLUMNS`; one that cannot be read has the reason within it."""
    try:
        return _job(row)
    except _UNREADABLE as error:
        when, reason = When(schedule_type=ScheduleType.EVENT), _told(JOB_COLUMNS, row, error)
        return Job(**_what(row), when=when, invalid_reason=reason, unreadable=reason)


def _job(row: Sequence[Any]) -> Job:
    (
        job_id, name, source, target, stream, params, tags, schedule_type, cron_expression, interval_seconds,
        frequency, time_config, timezone, schedule_enabled, paused, pause_reason, invalid_reason,
        scheduler_version, priority, timeout_seconds, retry_max, overlap, max_instances, coalesce,
        misfire_grace_seconds, catch_up, jitter_seconds, limit_key, account, next_run, planned_until, last_run,
        last_success, last_status, domain, domain_config_id, profile_id, source_id, url, tenant_id, user_id,
        trigger_webhook, trigger_channel, version, created_at, updated_at,
    ) = row  # fmt: skip
    return Job(
        job_id=job_id,
        name=name,
        source=source,
        target=target,
        stream=stream_name(stream, source, target),
        when=_when((schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone)),
        policy=_policy((overlap, max_instances, coalesce, misfire_grace_seconds, catch_up, jitter_seconds)),
        params=decoded(params),
        tags=tuple(decoded(tags)),
        priority=_PRIORITIES[priority],
        timeout=seconds(timeout_seconds),
        retry_max=retry_max,
        limit_key=limit_key,
        account=account,
        schedule_enabled=bool(schedule_enabled),
        paused=bool(paused),
        pause_reason=pause_reason,
        invalid_reason=invalid_reason,
        scheduler_version=scheduler_version,
        next_run=moment(next_run),
        planned_until=moment(planned_until),
        last_run=moment(last_run),
        last_success=moment(last_success),
        last_status=last_status,
        domain=domain,
        domain_config_id=domain_config_id,
        profile_id=profile_id,
        source_id=source_id,
        url=url,
        tenant_id=tenant_id,
        user_id=user_id,
        trigger_webhook=trigger_webhook,
        trigger_channel=trigger_channel,
        version=version,
        created_at=moment(created_at) or LONG_AGO,
        updated_at=moment(updated_at) or LONG_AGO,
    )


def work_from_row(row: Sequence[Any]) -> Work:
    """What a worker needs of a job, from columns in the order of `WORK_COLUMNS`.

    One that cannot be read has the reason within it: those that were claimed with it must not suffer.
    """
    try:
        return _work(row)
    except _UNREADABLE as error:
        return Work(**_what(row), unreadable=_told(WORK_COLUMNS, row, error))


def _work(row: Sequence[Any]) -> Work:
    (
        job_id, name, source, target, stream, params, priority, timeout_seconds, retry_max, limit_key, account,
        source_id, url, tenant_id, user_id,
    ) = row  # fmt: skip
    return Work(
        job_id=job_id,
        name=name,
        source=source,
        target=target,
        stream=stream_name(stream, source, target),
        params={} if params == "{}" else decoded(params),
        priority=_PRIORITIES[priority],
        timeout=seconds(timeout_seconds),
        retry_max=retry_max,
        limit_key=limit_key,
        account=account,
        source_id=source_id,
        url=url,
        tenant_id=tenant_id,
        user_id=user_id,
    )


def of_execution(work: Work, *columns: Any) -> tuple[Any, ...]:
    """The work of an execution and its JSON columns; if one of these cannot be read, the work says so."""
    try:
        return work, *map(decoded, columns)
    except _UNREADABLE as error:
        reason = f"its watermark, or the params or result of its execution, cannot be read: {error}"
        return replace(work, unreadable=work.unreadable or reason), *(None for _ in columns)


def due_job_from_row(row: Sequence[Any], active: int, waits_for: Sequence[str]) -> DueJob:
    """What the scheduler needs of a job, from columns in the order of `DUE_COLUMNS`."""
    try:
        return _due_job(row, active, tuple(waits_for))
    except _UNREADABLE as error:
        job_id, name, source = row[:3]
        when = When(schedule_type=ScheduleType.EVENT)
        # A change of the schedule has it planned anew; so does resuming it, whatever was changed.
        reason = f"{_told(DUE_COLUMNS, row, error)}; correct it, then pause and resume the job"
        return DueJob(job_id=job_id, name=name, source=source, when=when, invalid_reason=reason)


def _due_job(row: Sequence[Any], active: int, waits_for: tuple[str, ...]) -> DueJob:
    (
        job_id, name, source, schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone,
        overlap, max_instances, coalesce, misfire_grace_seconds, catch_up, jitter_seconds, priority, planned_until,
        created_at,
    ) = row  # fmt: skip
    return DueJob(
        job_id=job_id,
        name=name,
        source=source,
        when=_when((schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone)),
        policy=_policy((overlap, max_instances, coalesce, misfire_grace_seconds, catch_up, jitter_seconds)),
        priority=_PRIORITIES[priority],
        planned_until=moment(planned_until),
        created_at=moment(created_at) or LONG_AGO,
        active=active,
        waits_for=waits_for,
    )


def _what(row: Sequence[Any]) -> dict[str, Any]:
    """The first columns of a job, which are text whatever was typed."""
    job_id, name, source, target, stream = row[:5]
    stream = stream_name(stream, source, target)
    return {"job_id": job_id, "name": name, "source": source, "target": target, "stream": stream}


def _told(columns: Sequence[str], row: Sequence[Any], error: Exception) -> str:
    for name, value in zip(columns, row, strict=True):
        try:
            _READERS.get(name, str)(value)
        except _UNREADABLE:
            return f"{name} has a value of the wrong kind, {str(value)[:60]!r}"
    return f"a column has a value of the wrong kind: {type(error).__name__}: {error}"
