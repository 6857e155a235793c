"""Rows of `jobs` as values. Columns and conversions follow from the field table (`floodmark.model.job_fields`).

Leasing and firing read many rows: the function that reads one is compiled once, and is as fast as one written by hand.
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

# Raised by attempts to read a value of the wrong kind.
_UNREADABLE = (KeyError, TypeError, ValueError)

# How a value is read, by the type of its field; $ is the column.
_READERS: Mapping[Any, str] = {
    bool: "bool($)",
    timedelta: "seconds($)",
    datetime: "moment($)",
    Mapping: "{} if $ == '{}' else decoded($)",
    tuple: "tuple(decoded($))",
}


def moment(value: datetime | str | None) -> datetime | None:
    """A time as either driver gives it: SQLite text, asyncpg aware UTC."""
    return from_text(value) if isinstance(value, str) else value


def decoded(value: Any) -> Any:
    """A JSON column as either driver gives it."""
    return read_json(value, depth=STORED_DEPTH) if isinstance(value, str | bytes) else value


@lru_cache(maxsize=1024)
def seconds(value: float) -> timedelta:
    """A duration typed by hand may be absurd, but must not stop everyone else: it is cut at ten years."""
    return timedelta(seconds=min(max(value, 0.0), TEN_YEARS))


def _expression(field: JobField) -> str:
    """Return the Python expression that reads a column."""
    if field.name == "stream":
        return "stream_name(stream, source, target)"
    read = _READERS.get(field.kind, "$")
    if field.is_enum:
        # A frequency typed by hand may be wrong; the trigger says so when the job is planned.
        read = f"{field.kind.__name__}.get($, $)" if field.is_optional else f"{field.kind.__name__}[$]"
    elif field.kind is datetime and not field.is_optional:
        read += " or LONG_AGO"
    return read.replace("$", field.name)


def _compile(struct: type[Struct], fields: Sequence[JobField], *more: str) -> Callable[..., Any]:
    """Return a function that takes a row of these fields, and `more` values as they are, and returns a struct."""
    values = {field.attribute: _expression(field) for field in fields if field.part is None}
    for part in dict.fromkeys(field.part for field in fields if field.part is not None):
        values[part] = f"{part}(({', '.join(field.name for field in fields if field.part == part)}))"
    values |= {name: name for name in more}
    source = f"""def read({", ".join(["row", *more])}):
        ({", ".join(field.name for field in fields)}) = row
        return struct({", ".join(f"{name}={value}" for name, value in values.items())})"""
    names = {**_NAMES, "struct": struct}
    exec(source, names)  # noqa: S102 - made of the names in our own table
    compiled: Callable[..., Any] = names["read"]
    return compiled


def _compile_part(struct: type[Struct], part: str) -> Callable[..., Any]:
    """The same for a part of a job, which many jobs have in common: reading it again takes longer than the rest."""
    compiled = _compile(struct, [replace(field, part=None) for field in COLUMNS if field.part == part])
    return lru_cache(maxsize=1024)(compiled)


def _fields_of(struct: type[Struct], *without: str) -> tuple[JobField, ...]:
    """Return the fields of a struct that are columns."""
    names = set(struct.__struct_fields__).difference(without)
    return tuple(field for field in COLUMNS if (field.part or field.attribute) in names)


# What the expressions use. The name of an Enum stands for a mapping from its values to its members.
_NAMES: dict[str, Any] = {"seconds": seconds, "moment": moment, "decoded": decoded, "LONG_AGO": LONG_AGO}
_NAMES["stream_name"] = stream_name
_NAMES |= {field.kind.__name__: {word.value: word for word in field.kind} for field in COLUMNS if field.is_enum}
_NAMES |= {"when": _compile_part(When, "when"), "policy": _compile_part(Policy, "policy")}

_JOB, _WORK = _fields_of(Job), _fields_of(Work)
# A job whose schedule is invalid is never due.
_DUE = _fields_of(DueJob, "invalid_reason")
_read_job, _read_work, _read_due_job = (
    _compile(Job, _JOB),
    _compile(Work, _WORK),
    _compile(DueJob, _DUE, "active", "waits_for"),
)


def _names_of(fields: Iterable[JobField]) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


# The order in which the functions below expect their columns.
JOB_COLUMNS, WORK_COLUMNS, DUE_COLUMNS = _names_of(_JOB), _names_of(_WORK), _names_of(_DUE)
WORK_SELECT = ", ".join(f"j.{column}" for column in WORK_COLUMNS)
DUE_SELECT = ", ".join(f"j.{column}" for column in DUE_COLUMNS)


def job_from_row(row: Sequence[Any]) -> Job:
    """Return a job from columns in the order of `JOB_COLUMNS`; one that cannot be read has the reason within it."""
    try:
        job: Job = _read_job(row)
    except _UNREADABLE as error:
        when, reason = When(schedule_type=ScheduleType.EVENT), _explain(_JOB, row, error)
        return Job(**_identity(_JOB, row), when=when, invalid_reason=reason, unreadable=reason)
    return job


def work_from_row(row: Sequence[Any]) -> Work:
    """Return what a worker needs of a job, from columns in the order of `WORK_COLUMNS`.

    One that cannot be read has the reason within it: those that were claimed with it must not suffer.
    """
    try:
        work: Work = _read_work(row)
    except _UNREADABLE as error:
        return Work(**_identity(_WORK, row), unreadable=_explain(_WORK, row, error))
    return work


def due_job_from_row(row: Sequence[Any], active: int, waits_for: Sequence[str]) -> DueJob:
    """Return what the scheduler needs of a job, from columns in the order of `DUE_COLUMNS`."""
    try:
        due: DueJob = _read_due_job(row, active, tuple(waits_for))
    except _UNREADABLE as error:
        when = When(schedule_type=ScheduleType.EVENT)
        # A change of the schedule makes the scheduler plan the job again; so does resuming it, whatever was changed.
        reason = f"{_explain(_DUE, row, error)}; correct it, then pause and resume the job"
        return DueJob(**_identity(_DUE, row), when=when, invalid_reason=reason)
    return due


def of_execution(work: Work, *columns: Any) -> tuple[Any, ...]:
    """The work of an execution and its JSON columns; if one of these cannot be read, the work says so."""
    try:
        return work, *map(decoded, columns)
    except _UNREADABLE as error:
        reason = f"its watermark, or the params or result of its execution, cannot be read: {error}"
        return replace(work, unreadable=work.unreadable or reason), *(None for _ in columns)


def _identity(fields: Sequence[JobField], row: Sequence[Any]) -> dict[str, Any]:
    """Return the fields that are text, whatever was typed into them."""
    columns = dict(zip(_names_of(fields), row, strict=True))
    if "stream" in columns:
        columns["stream"] = stream_name(columns["stream"], columns["source"], columns["target"])
    return {name: columns[name] for name in ("job_id", "name", "source", "target", "stream") if name in columns}


def _explain(fields: Sequence[JobField], row: Sequence[Any], error: Exception) -> str:
    """Say which column of a row cannot be read."""
    columns = dict(zip(_names_of(fields), row, strict=True))
    for field in fields:
        try:
            eval(_expression(field), {**_NAMES, **columns})  # noqa: S307 - as in `_compile`
        except _UNREADABLE:
            return f"{field.name} has a value of the wrong kind, {str(columns[field.name])[:60]!r}"
    return f"a column has a value of the wrong kind: {type(error).__name__}: {error}"
