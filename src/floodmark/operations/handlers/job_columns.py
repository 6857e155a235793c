"""Turns the columns of a request into a new job, or into changes of one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floodmark.errors import Conflict, InvalidInput
from floodmark.model.job import ScheduleType, When
from floodmark.model.job_fields import FIELDS, spec_from
from floodmark.model.spec import JobSpec
from floodmark.rules.streams import stream_name

if TYPE_CHECKING:
    from floodmark.repositories.jobs import Jobs
    from floodmark.settings import Settings

# The schedule type that follows from a column.
_TYPES = {
    "cron_expression": ScheduleType.CRON,
    "interval_seconds": ScheduleType.INTERVAL,
    "frequency": ScheduleType.CALENDAR,
}


def spec_of(given: Mapping[str, Any], settings: "Settings") -> JobSpec:
    """Return the job that these columns describe, completed by the settings."""
    source, target = _where(given)
    usual = {"timeout_seconds": settings.scheduler_job_timeout, "retry_max": settings.parser_retry_max}
    columns = {**usual, **given, "source": source, "target": target}
    return spec_from(columns, when=when_of_columns(given), policy=settings.default_policy())


def when_of_columns(given: Mapping[str, Any]) -> When:
    """Return the schedule; its type follows from the other columns, unless it is given."""
    columns = {name: FIELDS[name].value_from(given[name]) for name in When.__struct_fields__ if name in given}
    if "schedule_type" in columns:
        return When(**columns)
    kinds = _kinds_in(given)
    if len(kinds) > 1:
        raise InvalidInput(f"the schedule type is ambiguous: {' or '.join(kinds)}", hint="say which with schedule_type")
    return When(**columns, schedule_type=kinds[0] if kinds else ScheduleType.EVENT)


def _kinds_in(given: Mapping[str, Any]) -> list[ScheduleType]:
    return [kind for name, kind in _TYPES.items() if given.get(name) is not None]


def _where(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return source and target. A job of an older scheduler has only a URL, which `web` collects."""
    source, target, url = given.get("source"), given.get("target"), given.get("url")
    if source is None and target is None and url is not None:
        return "web", url
    if source is None or (target is None and url is None):
        missing = "source" if source is None else "target"
        raise InvalidInput(
            f"{missing} is missing", hint='for example {"source": "telegram", "target": "@channel"}, or a url alone'
        )
    return source, target if target is not None else url or ""


async def refuse_second(spec: JobSpec, jobs: "Jobs") -> None:
    """Refuse a second job without a name for the same target."""
    stream = stream_name(spec.stream, spec.source, spec.target)
    for other in await jobs.find(source=spec.source, text=spec.target, limit=500):
        if other.stream == stream:
            raise Conflict(f"{other.name} collects {spec.target} already", hint="a second job for it needs a name")


def changes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a partial change sets. A new schedule type clears the columns of the old one."""
    changes = dict(given)
    kinds = _kinds_in(given)
    if "schedule_type" not in changes and len(kinds) == 1:
        changes["schedule_type"] = kinds[0]
    kind = changes.get("schedule_type")
    if kind is not None:
        for name, of_column in _TYPES.items():
            if of_column != kind:
                changes.setdefault(name, None)
        if kind != ScheduleType.CALENDAR:
            changes.setdefault("time_config", None)
    return changes
