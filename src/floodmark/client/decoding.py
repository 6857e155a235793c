"""JSON back into the values that `shapes.py` wrote it from."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from floodmark.errors import InvalidInput, Unavailable
from floodmark.model.job import NEVER, Job
from floodmark.model.shapes import job_from_shape
from floodmark.store.port import Event
from floodmark.triggers import instants, trigger_of

T = TypeVar("T")


def decoded(body: bytes, kind: type[T]) -> T:
    """A body as a value of this kind."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise not_understood(error) from error


def converted(value: Any, kind: type[T]) -> T:
    """The same for a part of a body."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise not_understood(error) from error


def not_understood(error: Exception) -> Unavailable:
    """What to raise for an answer that is none of ours."""
    return Unavailable(
        f"the server answers in a form that is not known here: {error}",
        hint="compare the versions: floodmark --version, here and there; upgrade the older one",
    )


def job_of(shape: Mapping[str, Any]) -> Job:
    """A job from what `job_shape` made of it."""
    try:
        job = job_from_shape(shape)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise not_understood(error) from error
    return msgspec.structs.replace(job, next_run=NEVER) if _is_over(job) else job


def event_of(body: bytes) -> Event:
    """An event from what `event_shape` made of it: its data is the text of JSON again."""
    shape = decoded(body, dict[str, msgspec.Raw])
    data = bytes(shape.pop("data", msgspec.Raw(b"null"))).decode()
    return converted({**{name: decoded(bytes(value), Any) for name, value in shape.items()}, "data": data}, Event)


def _is_over(job: Job) -> bool:
    """Whether it will not run again: without a next run, that or "not planned yet" is meant."""
    if job.next_run is not None or job.planned_until is None:
        return False
    try:
        return next(instants(trigger_of(job.when, anchor=job.created_at), job.planned_until), None) is None
    except InvalidInput:
        return False
