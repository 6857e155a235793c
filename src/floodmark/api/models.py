"""Models of requests and responses that do not follow from a declaration: jobs, whose fields are one table."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from floodmark.model.job_fields import FIELDS, SETTABLE, JobField


def _number(value: object) -> object:
    """Refuse a boolean: for Python true is 1, for JSON it is not."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "Input should be 1, 2 or 3")
    return value


def whole(value: object) -> object:
    """Return an integer for a float such as 3.0, which is an integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
_EXAMPLE_JOB: dict[str, Any] = {
    "name": "news",
    "source": "telegram",
    "target": "@example_news",
    "schedule_type": "interval",
    "interval_seconds": 300,
    "priority": 1,
    "tags": ["news"],
}


class Given(BaseModel):
    """The base of request bodies: unknown fields are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def leave_out_default(schema: dict[str, Any]) -> None:
    """Remove the default of an optional field: it could not be sent."""
    schema.pop("default", None)


def _optional(description: str, *examples: Any) -> Any:
    return Field(
        default=None, description=description, examples=list(examples) or None, json_schema_extra=leave_out_default
    )


def _plain_type(field: JobField) -> Any:
    """Return the type of a field in JSON."""
    if field.is_enum:
        return Literal[*(word.value for word in field.kind)]
    return {timedelta: float, Mapping: dict[str, Any], tuple: list[str]}.get(field.kind, field.kind)


def _request_type(field: JobField) -> Any:
    """Return the type of a field in a request, bounds included."""
    bounds, kind = _bounds_of(field), _plain_type(field)
    if field.kind is tuple:
        kind = list[Annotated[str, bounds]]
    elif field.is_enum and issubclass(field.kind, int):
        kind = Annotated[kind, BeforeValidator(_number)]
    elif field.kind is int:
        kind = Annotated[int, bounds, BeforeValidator(whole)]
    elif field.declared.bounds is not None:
        kind = Annotated[kind, bounds]
    return kind | None if field.is_optional else kind


def _bounds_of(field: JobField) -> Any:
    names = ("gt", "ge", "le", "min_length", "max_length")
    found = {name: getattr(field.declared.bounds, name, None) for name in names}
    return Field(**{name: value for name, value in found.items() if value is not None})


def _job_request(name: str, doc: str, example: Any, *, are_defaults_named: bool) -> Any:
    fields: dict[str, Any] = {}
    for field in SETTABLE:
        description = field.declared.description
        if are_defaults_named and field.default_words is not None:
            description += f" Default: {field.default_words}."
        examples = [] if field.declared.example is None else [field.declared.example]
        fields[field.name] = (_request_type(field), _optional(description, *examples))
    made = create_model(name, __base__=Given, __doc__=doc, **fields)
    made.model_config["json_schema_extra"] = {"examples": [example]}
    return made


JobIn = _job_request(
    "JobIn",
    "A new job, or the new columns of a job. Columns that are left out get their default.",
    _EXAMPLE_JOB,
    are_defaults_named=True,
)
JobPatch = _job_request(
    "JobPatch",
    "Changes of a job. Columns that are left out stay.",
    {"priority": 1, "tags": ["news", "daily"]},
    are_defaults_named=False,
)


def _job_answer() -> Any:
    fields: dict[str, Any] = {}
    for field in FIELDS.values():
        kind = _plain_type(field) | None if field.is_nullable else _plain_type(field)
        fields[field.name] = (kind, Field(description=field.declared.description))
    return create_model("JobOut", __doc__="A job. Times are UTC, durations are seconds.", **fields)


JobOut = _job_answer()


class ImportedJobIn(Given):
    """A job of another scheduler."""

    job: JobIn = Field(description="A job with a name and without depends_on.")  # type: ignore[valid-type] # made above
    anchor: str | None = Field(
        default=None,
        max_length=40,
        description="The first instant of an interval; now, if left out.",
        examples=["2026-01-31T08:00:00Z"],
        json_schema_extra={"format": "date-time"},
    )
    pause_reason: Text | None = Field(default=None, description="Import the job as paused, for this reason.")


class ImportIn(Given):
    """Jobs of another scheduler."""

    jobs: list[ImportedJobIn] = Field(min_length=1, max_length=500)
    take_over: bool = Field(
        default=False, description="Schedule them here at once; else the old scheduler keeps them, for comparison."
    )
    dry_run: bool = Field(default=False, description="Report what would be done, and change nothing.")
