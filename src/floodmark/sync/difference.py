"""Plans the changes of a sync from the response, the existing jobs and the previous response. No clock, no I/O.

`declared` of a job holds the id and the digest of its schedule: `sync:<digest>:<domain_config_id>`, or
`sync:gone:<domain_config_id>` after a sync has disabled the job because its schedule was missing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from floodmark.errors import InvalidInput
from floodmark.model.job import Frequency, ScheduleType, When
from floodmark.model.spec import JobSpec, slug
from floodmark.rules.streams import default_stream
from floodmark.triggers.calendar import calendar

from .format import ScheduleRow

SOURCE = "cookies"
TAG = "sync"
_MARK, _GONE = "sync:", "gone"
# Fields without a column of their own become params of the scan, with the same names.
_PARAMS = ("description", "allow_deep_scan", "maxPages", "scanDepth", "customPages", "accept_selector")
# The columns that a sync may change in an existing job.
COLUMNS = (
    "target",
    "domain",
    "domain_config_id",
    "schedule_type",
    "cron_expression",
    "interval_seconds",
    "frequency",
    "time_config",
    "retry_max",
    "params",
    "schedule_enabled",
)
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::\d{{1,5}})?")
_LONGEST_HOST = 253

Action = Literal["created", "updated", "disabled"]


class SyncedJob(Struct, frozen=True, kw_only=True):
    """A job that a sync has created. `columns`: current values; all of `COLUMNS` for jobs of `find_differing`."""

    job_id: str
    name: str
    mark: str
    columns: Mapping[str, Any]

    @property
    def domain_config_id(self) -> str:
        """Return the id of its schedule, even if someone has changed the column since."""
        return self.mark.split(":", 2)[2]

    @property
    def is_gone(self) -> bool:
        """Return whether a sync has disabled it because its schedule was missing."""
        return self.mark == gone_mark(self.domain_config_id)


class JobChange(Struct, frozen=True, kw_only=True):
    """A job that was created or changed, or would be."""

    action: Action
    name: Annotated[str, Meta(description="The job.")]
    domain_config_id: str
    before: Annotated[
        Mapping[str, Any] | None, Meta(description="The columns that differ, as they were; null for a new job.")
    ]
    after: Annotated[Mapping[str, Any], Meta(description="The same columns as they are now.")]


class Step(Struct, frozen=True, kw_only=True):
    """A change with the data to write it: `job_id` is None for a new job."""

    change: JobChange
    job_id: str | None
    mark: str


class RowError(Struct, frozen=True, kw_only=True):
    """A schedule that cannot become a job. The others are not affected."""

    domain_config_id: str
    domain: str
    error: Annotated[str, Meta(description="What is wrong with it.")]
    hint: Annotated[str, Meta(description="What to do about it.")] = ""


class SyncPlan(Struct, frozen=True, kw_only=True):
    """All changes of a sync."""

    steps: tuple[Step, ...]
    skipped: int
    errors: tuple[RowError, ...]

    def count(self, action: Action) -> int:
        """Return how many jobs would be created, updated or disabled."""
        return sum(step.change.action == action for step in self.steps)


def is_mark(declared: str | None) -> bool:
    """Return whether a sync has created the job."""
    return declared is not None and declared.startswith(_MARK) and declared.count(":") >= 2


def mark_of(row: ScheduleRow) -> str:
    """Return the mark of a job of this schedule."""
    return f"{_MARK}{row.digest}:{row.domain_config_id}"


def gone_mark(domain_config_id: str) -> str:
    """Return the mark of a job that was disabled because its schedule was missing."""
    return f"{_MARK}{_GONE}:{domain_config_id}"


def short_name(row: ScheduleRow) -> str:
    """Return the usual name of its job: "cookies-example-com"."""
    return slug(JobSpec(source=SOURCE, target=row.data.domain, when=When(schedule_type=ScheduleType.CALENDAR)))


def long_name(row: ScheduleRow) -> str:
    """Return the name of its job if another schedule has the short one."""
    return f"{short_name(row)}-{row.domain_config_id}"


def find_differing(rows: Iterable[ScheduleRow], known: Iterable[SyncedJob]) -> list[str]:
    """Return the ids of the jobs whose schedules have changed in the API."""
    marks = {row.domain_config_id: mark_of(row) for row in rows}
    return [job.job_id for job in known if marks.get(job.domain_config_id, job.mark) != job.mark]


def difference(
    rows: Sequence[ScheduleRow],
    known: Iterable[SyncedJob],
    *,
    before: Iterable[ScheduleRow] = (),
    taken: Iterable[str] = (),
    disable_missing: bool = False,
    validate: Callable[[JobSpec], object] = lambda spec: None,
) -> SyncPlan:
    """Compare the response with the jobs of earlier syncs.

    `before`: the response of the last sync. `taken`: names of jobs that no sync has created. `validate` raises
    `InvalidInput` for a schedule whose job could not run; only that schedule fails.
    """
    jobs = {job.domain_config_id: job for job in known}
    earlier = {row.domain_config_id: row for row in before}
    names = _Names(taken, (job.name for job in jobs.values()))
    steps: list[Step] = []
    errors: list[RowError] = []
    skipped = 0
    for row in rows:
        job = jobs.get(row.domain_config_id)
        if job is not None and job.mark == mark_of(row):
            skipped += 1
            continue
        try:
            _check(row)
            validate(_spec(row))
            steps.append(_create(row, names) if job is None else _update(row, job, earlier.get(row.domain_config_id)))
        except InvalidInput as error:
            errors.append(_error(row, error))
    if disable_missing:
        there = {row.domain_config_id for row in rows}
        steps += [_disable(job) for id_, job in jobs.items() if id_ not in there and _is_active(job)]
    return SyncPlan(steps=tuple(steps), skipped=skipped, errors=tuple(errors))


def too_much(found: SyncPlan, rows: Sequence[ScheduleRow], known: Iterable[SyncedJob], max_share: float) -> str | None:
    """Return why a person has to confirm the plan; None if nobody has to. Disabling all jobs is always too much."""
    jobs = list(known)
    if not rows and jobs:
        return f"the response contains no schedule, and {_count(len(jobs), 'job')} came from it before"
    disabled, there = found.count("disabled"), sum(_is_active(job) for job in jobs)
    if disabled and (disabled == there or disabled > max_share * there):
        return f"it would disable {disabled} of {_count(there, 'job')}, and {max_share:.0%} are allowed at once"
    return None


class _Names:
    """Gives names to new jobs. A name that another job has, which no sync has created, is an error of the row."""

    def __init__(self, taken: Iterable[str], ours: Iterable[str]) -> None:
        self._taken, self._ours = frozenset(taken), set(ours)

    def give(self, row: ScheduleRow) -> str:
        name = short_name(row) if short_name(row) not in self._ours else long_name(row)
        if name in self._taken:
            raise InvalidInput(
                f"the job {name!r} exists and was not created by a sync: it is not changed",
                hint=f"rename or remove it: floodmark show {name}",
            )
        self._ours.add(name)
        return name


def _check(row: ScheduleRow) -> None:
    domain = row.data.domain
    if len(domain) > _LONGEST_HOST or _HOST.fullmatch(domain) is None:
        raise InvalidInput(f"{domain[:60]!r} is not a domain", hint="use a host name such as example.com")
    if not _is_adaptive(row):
        calendar(Frequency(row.data.schedule.frequency), _time_config(row), "UTC")


def _spec(row: ScheduleRow) -> JobSpec:
    """Return the job of a schedule, with the fields that its source validates."""
    when = When(schedule_type=ScheduleType.CALENDAR)
    return JobSpec(source=SOURCE, target=row.data.domain, params=_params(row), when=when)


def _create(row: ScheduleRow, names: _Names) -> Step:
    name = names.give(row)
    columns = {
        "name": name,
        "source": SOURCE,
        "tags": [TAG],
        **_columns(row),
        "params": _params(row),
        "schedule_enabled": True,
    }
    if name != short_name(row):
        # Two schedules of one domain must not share a stream.
        columns["stream"] = default_stream(SOURCE, row.domain_config_id)
    change = JobChange(action="created", name=name, domain_config_id=row.domain_config_id, before=None, after=columns)
    return Step(change=change, job_id=None, mark=mark_of(row))


def _update(row: ScheduleRow, job: SyncedJob, earlier: ScheduleRow | None) -> Step:
    """Overwrite what the API sends; keep the other values, which people may have set."""
    dropped = _params(earlier).keys() if earlier is not None else ()
    kept = {name: value for name, value in job.columns["params"].items() if name not in dropped}
    wanted = {**_columns(row), "params": {**kept, **_params(row)}}
    if job.is_gone:
        wanted["schedule_enabled"] = True
    return _step("updated", job, wanted, mark_of(row))


def _disable(job: SyncedJob) -> Step:
    return _step("disabled", job, {"schedule_enabled": False}, gone_mark(job.domain_config_id))


def _step(action: Action, job: SyncedJob, wanted: Mapping[str, Any], mark: str) -> Step:
    after = {name: value for name, value in wanted.items() if job.columns[name] != value}
    change = JobChange(
        action=action,
        name=job.name,
        domain_config_id=job.domain_config_id,
        before={name: job.columns[name] for name in after},
        after=after,
    )
    return Step(change=change, job_id=job.job_id, mark=mark)


def _is_active(job: SyncedJob) -> bool:
    """Return whether a sync may disable it: not if it is disabled, or was enabled again after a sync disabled it."""
    return bool(job.columns["schedule_enabled"]) and not job.is_gone


def _columns(row: ScheduleRow) -> dict[str, Any]:
    """Return the columns of a schedule except `params`."""
    is_adaptive = _is_adaptive(row)
    columns: dict[str, Any] = {
        "target": row.data.domain,
        "domain": row.data.domain,
        "domain_config_id": row.domain_config_id,
        "schedule_type": (ScheduleType.ADAPTIVE if is_adaptive else ScheduleType.CALENDAR).value,
        "cron_expression": None,
        "interval_seconds": None,
        "frequency": None if is_adaptive else row.data.schedule.frequency,
        "time_config": None if is_adaptive else _time_config(row),
    }
    retries = row.data.max_retries
    return columns if retries is None else {**columns, "retry_max": retries}


def _is_adaptive(row: ScheduleRow) -> bool:
    return row.data.schedule.frequency == "adaptive"


def _params(row: ScheduleRow) -> dict[str, Any]:
    data = msgspec.to_builtins(row.data)
    return {name: data[name] for name in _PARAMS if name in data}


def _time_config(row: ScheduleRow) -> dict[str, Any]:
    time = row.data.schedule.time
    return {} if time is None else dict(msgspec.to_builtins(time))


def _error(row: ScheduleRow, error: InvalidInput) -> RowError:
    return RowError(
        domain_config_id=row.domain_config_id, domain=row.data.domain[:260], error=str(error), hint=error.hint
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
