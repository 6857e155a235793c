"""Jobs, executions and events as JSON: plain values under stable names. Times are UTC, durations are seconds."""

from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any

import msgspec

from .execution import Execution
from .job import NEVER, Job
from .job_fields import FIELDS

_values_of = attrgetter(*(field.path for field in FIELDS.values()))
_DURATIONS = tuple(field.name for field in FIELDS.values() if field.kind is timedelta)


def job_shape(job: Job) -> dict[str, Any]:
    """Return a job under the names of its columns."""
    shape = dict(zip(FIELDS, _values_of(job), strict=True))
    for name in _DURATIONS:
        if shape[name] is not None:
            shape[name] = shape[name].total_seconds()
    if job.next_run == NEVER:
        shape["next_run"] = None
    return shape


def job_from_shape(shape: Mapping[str, Any]) -> Job:
    """Return the job of a shape made by `job_shape`; raise `msgspec.ValidationError` if it is no job.

    Without a next run the job is not planned yet; unknown fields are ignored.
    """
    parts: dict[str | None, dict[str, Any]] = {None: {}, "when": {}, "policy": {}}
    for field in FIELDS.values():
        if field.name in shape:
            value = shape[field.name]
            is_duration = field.kind is timedelta and isinstance(value, int | float)
            parts[field.part][field.attribute] = timedelta(seconds=value) if is_duration else value
    return msgspec.convert({**parts[None], "when": parts["when"], "policy": parts["policy"]}, Job)


def execution_shape(execution: Execution) -> dict[str, Any]:
    """Return an execution under the names of its columns."""
    return msgspec.structs.asdict(execution)


def event_shape(event: Any) -> Mapping[str, Any]:
    """Return an event, or another value with JSON in `data`, which stays as it is."""
    return msgspec.structs.asdict(event) | {"data": msgspec.Raw(event.data.encode())}
