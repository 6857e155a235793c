"""Rows of `jobs` as values. Columns and conversions follow from the field table (`floodmark.model.job_fields`).

Leasing and firing read many rows, so the functions that read a row are compiled: they are as fast as hand-written ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from floodmark.model.field import TEN_YEARS
from floodmark.model.job import LONG_AGO, DueJob, Job, Policy, ScheduleType, When, Work
from floodmark.model.job_fields import COLUMNS, JobField
from floodmark.model.strict_json import STORED_DEPTH, read_json
from floodmark.rules.streams import stream_name

from .types import from_text

# Raised when a value of the wrong type is read.
_UNREADABLE = (KeyError, TypeError, ValueError)

# The expression that reads a value, by the type of its field; $ is the column.
_READERS: Mapping[Any, str] = {
    bool: "bool($)",
    timedelta: "read_seconds($)",
    datetime: "read_moment($)",
    Mapping: "{} if $ == '{}' else decode_json($)",
    tuple: "tuple(decode_json($))",
}


def read_moment(value: datetime | str | None) -> datetime | None:
    """Return a time column of either driver: SQLite returns text, asyncpg aware UTC."""
    return from_text(value) if isinstance(value, str) else value


def decode_json(value: Any) -> Any:
    """Return a JSON column of either driver."""
    return read_json(value, depth=STORED_DEPTH) if isinstance(value, str | bytes) else value


@lru_cache(maxsize=1024)
def read_seconds(value: float) -> timedelta:
    """Return a duration of at most ten years: an absurd one typed by hand must not stop other jobs."""
    return timedelta(seconds=min(max(value, 0.0), TEN_YEARS))


def _expression(field: JobField) -> str:
    """Return the Python expression that reads a column."""
    if field.name == "stream":
        return "stream_name(stream, source, target)"
    read = _READERS.get(field.kind, "$")
    if field.is_enum:
        # A frequency typed by hand may be wrong; the trigger reports it when the job is planned.
        read = f"{field.kind.__name__}.get($, $)" if field.is_optional else f"{field.kind.__name__}[$]"
    elif field.kind is timedelta and field.is_optional:
        read = f"None if $ is None else {read}"
    elif field.kind is datetime and not field.is_optional:
        read += " or LONG_AGO"
    return read.replace("$", field.name)


def _compile(struct: type[Struct], fields: Sequence[JobField], *more: str) -> Callable[..., Any]:
    """Return a function that makes a struct from a row of these fields and from `more` values."""
    values = {field.attribute: _expression(field) for field in fields if field.part is None}
    for part in dict.fromkeys(field.part for field in fields if field.part is not None):
        values[part] = f"{part}(({', '.join(field.name for field in fields if field.part == part)}))"
    values |= {name: name for name in more}
    source = f"""def read({", ".join(["row", *more])}):
        ({", ".join(field.name for field in fields)}) = row
        return struct({", ".join(f"{name}={value}" for name, value in values.items())})"""
    names = {**_NAMES, "struct": struct}
    exec(source, names)  # noqa: S102 - made of names in our own table
    compiled: Callable[..., Any] = names["read"]
    return compiled


def _compile_part(struct: type[Struct], part: str) -> Callable[..., Any]:
    """Return the same for a part of a job, with a cache: many jobs share its values, and reading it is slow."""
    compiled = _compile(struct, [replace(field, part=None) for field in COLUMNS if field.part == part])
    return lru_cache(maxsize=1024)(compiled)


def _fields_of(struct: type[Struct], *without: str) -> tuple[JobField, ...]:
    """Return the fields of a struct that are columns."""
    names = set(struct.__struct_fields__).difference(without)
    return tuple(field for field in COLUMNS if (field.part or field.attribute) in names)


# The names in the expressions. That of an Enum is a mapping from its values to its members.
_FUNCTIONS = (read_seconds, read_moment, decode_json, stream_name)
_NAMES: dict[str, Any] = {"LONG_AGO": LONG_AGO, **{function.__name__: function for function in _FUNCTIONS}}
_NAMES |= {field.kind.__name__: {word.value: word for word in field.kind} for field in COLUMNS if field.is_enum}
_NAMES |= {"when": _compile_part(When, "when"), "policy": _compile_part(Policy, "policy")}

_JOB, _WORK = _fields_of(Job), _fields_of(Work)
# A job whose schedule is invalid is never due.
_DUE = _fields_of(DueJob, "invalid_reason")
_read_job, _read_work = _compile(Job, _JOB), _compile(Work, _WORK)
_read_due_job = _compile(DueJob, _DUE, "active", "waits_for")


def _names_of(fields: Iterable[JobField]) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


# The order in which the functions below expect their columns.
JOB_COLUMNS, WORK_COLUMNS, DUE_COLUMNS = _names_of(_JOB), _names_of(_WORK), _names_of(_DUE)
WORK_SELECT = ", ".join(f"j.{column}" for column in WORK_COLUMNS)
DUE_SELECT = ", ".join(f"j.{column}" for column in DUE_COLUMNS)


def job_from_row(row: Sequence[Any]) -> Job:
    """Return a job from columns in the order of `JOB_COLUMNS`. An unreadable one has the reason in `unreadable`."""
    try:
        job: Job = _read_job(row)
    except _UNREADABLE as error:
        when, reason = When(schedule_type=ScheduleType.EVENT), _explain(_JOB, row, error)
        return Job(**_identity(_JOB, row), when=when, invalid_reason=reason, unreadable=reason)
    return job


def work_from_row(row: Sequence[Any]) -> Work:
    """Return the part of a job that a worker needs, from columns in the order of `WORK_COLUMNS`.

    An unreadable one has the reason in `unreadable`: it must not stop those that were claimed with it.
    """
    try:
        work: Work = _read_work(row)
    except _UNREADABLE as error:
        return Work(**_identity(_WORK, row), unreadable=_explain(_WORK, row, error))
    return work


def due_job_from_row(row: Sequence[Any], active: int, waits_for: Sequence[str]) -> DueJob:
    """Return the part of a job that the scheduler needs, from columns in the order of `DUE_COLUMNS`."""
    try:
        due: DueJob = _read_due_job(row, active, tuple(waits_for))
    except _UNREADABLE as error:
        when = When(schedule_type=ScheduleType.EVENT)
        # Resuming a job makes the scheduler plan it again, whichever column was corrected.
        reason = f"{_explain(_DUE, row, error)}; correct it, then pause and resume the job"
        return DueJob(**_identity(_DUE, row), when=when, invalid_reason=reason)
    return due


def decode_columns(work: Work, *columns: Any) -> tuple[Any, ...]:
    """Return the job of an execution and the execution's JSON columns; an unreadable one is reported in the job."""
    try:
        return work, *map(decode_json, columns)
    except _UNREADABLE as error:
        reason = f"its watermark, or the params or result of its execution, cannot be read: {error}"
        return replace(work, unreadable=work.unreadable or reason), *(None for _ in columns)


def _identity(fields: Sequence[JobField], row: Sequence[Any]) -> dict[str, Any]:
    """Return the text fields, which can always be read."""
    columns = dict(zip(_names_of(fields), row, strict=True))
    if "stream" in columns:
        columns["stream"] = stream_name(columns["stream"], columns["source"], columns["target"])
    return {name: columns[name] for name in ("job_id", "name", "source", "target", "stream") if name in columns}


def _explain(fields: Sequence[JobField], row: Sequence[Any], error: Exception) -> str:
    """Return which column of a row cannot be read."""
    columns = dict(zip(_names_of(fields), row, strict=True))
    for field in fields:
        try:
            eval(_expression(field), {**_NAMES, **columns})  # noqa: S307 - as in `_compile`
        except _UNREADABLE:
            return f"{field.name} has a value of the wrong kind, {str(columns[field.name])[:60]!r}"
    return f"a column has a value of the wrong kind: {type(error).__name__}: {error}"
