"""From the columns of a request to a job that can be made."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from floodmark.errors import Conflict, InvalidInput
from floodmark.model.job import CatchUp, Frequency, Overlap, Policy, Priority, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.operations.local import LocalOffice
from floodmark.operations.port import JobFilter
from floodmark.rules.streams import stream_name
from floodmark.settings import Settings

# What is the same in a request and in a spec.
_PLAIN = (
    "name",
    "stream",
    "params",
    "retry_max",
    "limit_key",
    "account",
    "schedule_enabled",
    "domain",
    "domain_config_id",
    "profile_id",
    "source_id",
    "url",
    "tenant_id",
    "user_id",
    "trigger_webhook",
    "trigger_channel",
)
# Which column says how a job says when.
_TELLING = {
    "cron_expression": ScheduleType.CRON,
    "interval_seconds": ScheduleType.INTERVAL,
    "frequency": ScheduleType.CALENDAR,
}


def spec_of(given: Mapping[str, Any], settings: Settings) -> JobSpec:
    """The job that these columns describe, the rest as the settings have it."""
    source, target = _where(given)
    plain = {name: given[name] for name in _PLAIN if name in given}
    return JobSpec(
        source=source,
        target=target,
        when=when_of_columns(given),
        policy=_policy(given, settings),
        tags=tuple(given.get("tags", ())),
        priority=Priority(given.get("priority", Priority.NORMAL)),
        timeout=_seconds(given, "timeout_seconds", settings.scheduler_job_timeout),
        depends_on=tuple(given.get("depends_on", ())),
        **{"retry_max": settings.parser_retry_max, **plain},
    )


async def fitted(spec: JobSpec, office: LocalOffice) -> JobSpec:
    """The same as its source wants it, or `InvalidInput`; `Conflict` for a second job for a channel without a name."""
    spec = await office.complete(spec)
    if spec.name is None and office.parts.validation.has_one_job_per_target(spec.source):
        await _refuse_second(spec, office)
    return spec


def when_of_columns(given: Mapping[str, Any]) -> When:
    """The when-columns; how it says when follows from them, unless it is said."""
    columns = {name: given[name] for name in When.__struct_fields__ if name in given}
    if columns.get("frequency") is not None:
        columns["frequency"] = Frequency(columns["frequency"])
    said = [kind for name, kind in _TELLING.items() if given.get(name) is not None]
    if "schedule_type" in columns:
        columns["schedule_type"] = ScheduleType(columns["schedule_type"])
    elif len(said) > 1:
        raise InvalidInput(f"it cannot be told whether it is {' or '.join(said)}", hint="say which with schedule_type")
    else:
        columns["schedule_type"] = said[0] if said else ScheduleType.EVENT
    return When(**columns)


def _policy(given: Mapping[str, Any], settings: Settings) -> Policy:
    usual = settings.default_policy()
    return Policy(
        overlap=Overlap(given.get("overlap", usual.overlap)),
        max_instances=given.get("max_instances", usual.max_instances),
        coalesce=given.get("coalesce", usual.coalesce),
        misfire_grace=_seconds(given, "misfire_grace_seconds", usual.misfire_grace),
        catch_up=CatchUp(given.get("catch_up", usual.catch_up)),
        jitter=_seconds(given, "jitter_seconds", usual.jitter),
    )


def _seconds(given: Mapping[str, Any], name: str, usual: timedelta) -> timedelta:
    return timedelta(seconds=given[name]) if name in given else usual


def _where(given: Mapping[str, Any]) -> tuple[str, str]:
    """A job of an older scheduler has nothing but a URL: that is what `web` collects."""
    source, target, url = given.get("source"), given.get("target"), given.get("url")
    if source is None and target is None and url is not None:
        return "web", url
    if source is None or (target is None and url is None):
        missing = "source" if source is None else "target"
        raise InvalidInput(
            f"{missing} is missing", hint='for example {"source": "telegram", "target": "@channel"}, or a url alone'
        )
    return source, target if target is not None else url or ""


async def _refuse_second(spec: JobSpec, office: LocalOffice) -> None:
    """A second job for a channel has to be asked for by name."""
    stream = stream_name(spec.stream, spec.source, spec.target)
    for other in await office.jobs(JobFilter(source=spec.source, text=spec.target), limit=500):
        if other.stream == stream:
            raise Conflict(f"{other.name} collects {spec.target} already", hint="a second job for it needs a name")


def changes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a partial change sets. A job that gets another way to say when keeps nothing of the old one."""
    changes = dict(given)
    said = [kind for name, kind in _TELLING.items() if given.get(name) is not None]
    if "schedule_type" not in changes and len(said) == 1:
        changes["schedule_type"] = said[0]
    kind = changes.get("schedule_type")
    if kind is not None:
        for name, telling in _TELLING.items():
            if telling != kind:
                changes.setdefault(name, None)
        if kind != ScheduleType.CALENDAR:
            changes.setdefault("time_config", None)
    return changes
