"""Conversion of other schedulers' jobs to Floodmark's. Without I/O."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from floodmark.model.handover import NewJob
from floodmark.model.job import Policy, ScheduleType, When
from floodmark.model.spec import JobSpec, slug

from .apscheduler import Imported
from .celery import BeatEntry
from .crontab import CrontabLine

_NAME_LENGTH = 60


def jobs_of_crontab(
    entries: Sequence[CrontabLine], *, target: str, prefix: str = "cron", tags: Sequence[str] = (), policy: Policy
) -> list[NewJob]:
    """Return a job for each line, which passes the command line to the function `target` as a param."""
    names = _unique([_command_name(prefix, entry.command) for entry in entries])
    return [
        NewJob(
            spec=JobSpec(
                source="python",
                target=target,
                name=name,
                # One for each: jobs that share a stream wait for each other.
                stream=f"crontab:{name}",
                when=When(schedule_type=ScheduleType.CRON, cron_expression=entry.schedule, timezone=entry.timezone),
                policy=policy,
                params=_params(entry),
                tags=tuple(tags),
            )
        )
        for name, entry in zip(names, entries, strict=True)
    ]


def jobs_of_apscheduler(imported: Sequence[Imported], *, tags: Sequence[str] = ()) -> list[NewJob]:
    """Return a job for each APScheduler job, with its function."""
    names = _unique([job.name for job in imported])
    return [
        NewJob(
            spec=_spec(job, name, f"apscheduler:{job.job_id}", tags, job.policy),
            anchor=job.anchor,
            pause_reason="it was paused in APScheduler" if job.is_paused else None,
        )
        for name, job in zip(names, imported, strict=True)
    ]


def jobs_of_celery(entries: Sequence[BeatEntry], *, tags: Sequence[str] = ()) -> list[NewJob]:
    """Return a job for each entry of Celery beat, which calls the function of its task."""
    names = _unique([entry.name for entry in entries])
    return [
        NewJob(spec=_spec(entry, name, f"celery:{name}", tags, Policy()))
        for name, entry in zip(names, entries, strict=True)
    ]


def _spec(found: Imported | BeatEntry, name: str, stream: str, tags: Sequence[str], policy: Policy) -> JobSpec:
    return JobSpec(
        source="python",
        target=found.target,
        name=name,
        stream=stream,
        when=found.when,
        policy=policy,
        params=found.params,
        tags=tuple(tags),
    )


def _params(entry: CrontabLine) -> dict[str, Any]:
    environment = dict(entry.environment) or None
    params = {"command": entry.command, "stdin": entry.stdin, "user": entry.user, "environment": environment}
    return {name: value for name, value in params.items() if value is not None}


def _command_name(prefix: str, command: str) -> str:
    """Return a name that is easy to type: `/usr/bin/report --all` becomes `cron-report-all`."""
    program, _, rest = command.partition(" ")
    target = f"{program.rpartition('/')[2]} {rest}"
    spec = JobSpec(source="cron", target=target, when=When(schedule_type=ScheduleType.EVENT))
    words = slug(spec).removeprefix("cron-")
    return f"{prefix}-{words}"[:_NAME_LENGTH].strip("-")


def _unique(names: Sequence[str]) -> list[str]:
    """Number repeated names, so that the same file gives the same names each time."""
    found: list[str] = []
    taken = set(names)
    for place, name in enumerate(names):
        numbered = (f"{name}-{number}" for number in count(2))
        chosen = name if name not in names[:place] else next(other for other in numbered if other not in taken)
        taken.add(chosen)
        found.append(chosen)
    return found
