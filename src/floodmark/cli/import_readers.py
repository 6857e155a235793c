"""Read the jobs of other schedulers."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.importers.apscheduler import ImportedJob, read_job
from floodmark.importers.apscheduler_store import stored_jobs
from floodmark.importers.beat_files import read_beat
from floodmark.importers.build_jobs import build_jobs, jobs_of_crontab
from floodmark.importers.crontab import read_crontab
from floodmark.model.handover import NewJob

_LARGEST_FILE = 1_000_000


class ImportProblem(NamedTuple):
    """A job that cannot be imported."""

    where: str
    text: str
    error: str
    hint: str


JobsFound = tuple[list[NewJob], list[ImportProblem]]


async def read_crontab_jobs(
    file: Path, *, target: str, is_system: bool | None, timezone: str | None, prefix: str, tags: Sequence[str]
) -> JobsFound:
    """Read a crontab. The defaults: lines name a user if the file is in /etc, and the time zone of this machine."""
    names_user = _is_in_etc(file) if is_system is None else is_system
    found = read_crontab(_read_text(file), is_system=names_user, timezone=timezone or _local_zone())
    problems = [ImportProblem(f"line {error.line}", error.text, error.error, error.hint) for error in found.errors]
    return jobs_of_crontab(found.entries, target=target, prefix=prefix, tags=tags), problems


async def read_apscheduler_jobs(url: str, table: str, *, tags: Sequence[str]) -> JobsFound:
    """Read an APScheduler 3 job store."""
    found: list[ImportedJob] = []
    problems: list[ImportProblem] = []
    for stored in await stored_jobs(url, table):
        try:
            found.append(read_job(stored.job_state, next_run=stored.next_run_time, now=datetime.now(UTC)))
        except FloodmarkError as error:
            problems.append(ImportProblem(stored.id, "", str(error), error.hint))
    return build_jobs(found, "apscheduler", tags=tags), problems


async def read_celery_jobs(reference: str, *, timezone: str, tags: Sequence[str]) -> JobsFound:
    """Read the schedule of Celery beat."""
    found, errors = read_beat(reference, timezone=timezone)
    return build_jobs(found, "celery", tags=tags), [
        ImportProblem(name, "", error, hint) for name, error, hint in errors
    ]


def _is_in_etc(file: Path) -> bool:
    return file.absolute().is_relative_to("/etc")


def _read_text(file: Path) -> str:
    hint = "name a readable file; `crontab -l` prints the crontab of a user"
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(f"{file} is too large for a crontab", hint=hint)
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}", hint=hint) from None


def _local_zone() -> str:
    """Return the time zone that cron uses: TZ, or that of this machine."""
    name = os.environ.get("TZ", "").removeprefix(":")
    where = str(Path("/etc/localtime").resolve())
    return name or (where.partition("zoneinfo/")[2] or "UTC")
