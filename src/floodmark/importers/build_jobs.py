"""Conversion of other schedulers' jobs to Floodmark's. Without I/O."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from floodmark.model.handover import NewJob
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec, slug

from .apscheduler import ImportedJob
from .crontab import CrontabLine

_NAME_LENGTH = 60


def jobs_of_crontab(
    entries: Sequence[CrontabLine], *, target: str, prefix: str = "cron", tags: Sequence[str] = ()
) -> list[NewJob]:
    """Return a job for each line, which passes the command line to the function `target` as a param."""
    found = [
        ImportedJob(
            name=_command_name(prefix, entry.command),
            target=target,
            when=When(schedule_type=ScheduleType.CRON, cron_expression=entry.schedule, timezone=entry.timezone),
            params=_params(entry),
        )
        for entry in entries
    ]
    return build_jobs(found, "crontab", tags=tags)


def build_jobs(found: Sequence[ImportedJob], scheduler: str, *, tags: Sequence[str] = ()) -> list[NewJob]:
    """Return a new job for each job of the other scheduler, with the same function."""
    names = _unique([job.name for job in found])
    return [
        NewJob(
            spec=JobSpec(
                source="python",
                target=job.target,
                name=name,
                # One for each: jobs that share a stream wait for each other.
                stream=f"{scheduler}:{job.job_id or name}",
                when=job.when,
                policy=job.policy,
                params=job.params,
                tags=tuple(tags),
            ),
            anchor=job.anchor,
            pause_reason="it was paused in APScheduler" if job.is_paused else None,
        )
        for name, job in zip(names, found, strict=True)
    ]


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
