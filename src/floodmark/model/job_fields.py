"""The table of the fields of a job, derived from the declarations in `job.py`, and conversions based on it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from inspect import get_annotations
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

from .field import TEN_YEARS, Field
from .job import SCHEDULER_VERSION, Job, JobFields, Policy, When
from .spec import JobSpec

_FORMS: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    datetime: "a time in UTC",
    Mapping: "an object",
    tuple: "a list of words",
}


class JobField(Struct, frozen=True, kw_only=True):
    """One field: its name in columns, JSON and the API, its place in `Job`, and its declaration."""

    name: str
    attribute: str
    part: str | None  # "when" or "policy", if it belongs to one of these
    kind: Any  # its type, without None: str, int, float, bool, an Enum, timedelta, datetime, Mapping, tuple
    is_optional: bool  # whether people may set it to null
    is_nullable: bool  # whether a job may have null
    default: Any  # NODEFAULT if there is none
    is_settable: bool
    declared: Field

    @property
    def path(self) -> str:
        """Its path in `Job`: "retry_max", "policy.overlap"."""
        return self.attribute if self.part is None else f"{self.part}.{self.attribute}"

    def value_from(self, plain: Any) -> Any:
        """Return the value in the type that `Job` has; `ValueError` for an unknown value of an Enum."""
        if plain is None:
            return None
        if self.kind is timedelta:
            return plain if isinstance(plain, timedelta) else timedelta(seconds=plain)
        return self.kind(plain) if self.is_enum or self.kind is tuple else plain

    @property
    def is_enum(self) -> bool:
        """Whether its type is an Enum."""
        return isinstance(self.kind, type) and issubclass(self.kind, Enum)

    @property
    def checked_type(self) -> Any:
        """The type for the validation of a given value, with bounds."""
        kind: Any = float if self.kind is timedelta else dict[str, Any] if self.kind is Mapping else self.kind
        bounds = self.declared.bounds
        if self.kind is tuple:
            return list[str] if bounds is None else list[Annotated[str, bounds]]
        if bounds is not None:
            kind = Annotated[kind, bounds]
        return kind | None if self.is_optional else kind

    @property
    def default_words(self) -> str | None:
        """The default in words; None if the field is empty by default or required."""
        if self.declared.unset is not None or self.default is NODEFAULT or self.default in (None, (), {}):
            return self.declared.unset
        plain = self.default.total_seconds() if self.kind is timedelta else self.default
        return msgspec.json.encode(plain).decode().strip('"').removesuffix(".0")

    @property
    def form(self) -> str:
        """The allowed values in words: "true or false", "text of 1 to 2000 characters or null"."""
        return f"{self._form()} or null" if self.is_optional else self._form()

    @property
    def example(self) -> str | None:
        """An example as people write it; None if `form` is enough."""
        example = None if self.is_enum else self.declared.example
        return example if example is None or isinstance(example, str) else msgspec.json.encode(example).decode()

    @property
    def hint(self) -> str:
        """The hint after a refused value."""
        return self.form if self.example is None else f"{self.form}, for example {self.example}"

    def _form(self) -> str:
        if self.is_enum and issubclass(self.kind, int):
            return ", ".join(f"{number.value} is {number.name.lower()}" for number in self.kind)
        if self.is_enum:
            return "one of " + ", ".join(self.kind)
        form = "seconds" if self.name.endswith("_seconds") else _FORMS[self.kind]
        bounds = self.declared.bounds
        if bounds is None:
            return form
        if bounds.max_length is not None:
            return f"{form} of {bounds.min_length} to {bounds.max_length} characters"
        least = f"more than {bounds.gt}" if bounds.ge is None else f"at least {bounds.ge}"
        return f"{form}, {least} and at most {'ten years' if bounds.le == TEN_YEARS else bounds.le}"


_TYPES = get_type_hints(Job)


def _fields_of(struct: type[Struct], part: str | None = None) -> list[JobField]:
    """Return the fields that a struct itself declares."""
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(struct)}
    found: list[JobField] = []
    for attribute, hint in get_annotations(struct).items():
        if hint in (When, Policy):
            found += _fields_of(hint, part=attribute)
        elif notes := [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Field)]:
            kinds = _kinds_of(get_args(hint)[0])
            [kind] = [kind for kind in kinds if kind is not NoneType]
            field = JobField(
                name=f"{attribute}_seconds" if kind is timedelta else attribute,
                attribute=attribute,
                part=part,
                kind=get_origin(kind) or kind,
                is_optional=NoneType in kinds,
                is_nullable=NoneType in _kinds_of(_TYPES.get(attribute, get_args(hint)[0])),
                default=defaults[attribute],
                is_settable=part is not None or attribute in JobSpec.__struct_fields__,
                declared=notes[0],
            )
            found.append(field)
    return found


def _kinds_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


_NAMED_FIRST = ("job_id", "name")
FIELDS: Mapping[str, JobField] = {
    field.name: field
    for field in sorted([*_fields_of(JobFields), *_fields_of(Job)], key=lambda field: field.name not in _NAMED_FIRST)
}
COLUMNS = tuple(field for field in FIELDS.values() if field.declared.is_column)
SETTABLE = tuple(field for field in FIELDS.values() if field.is_settable)
POLICY_COLUMNS = tuple(field.name for field in COLUMNS if field.part == "policy")


def columns_of(spec: JobSpec) -> dict[str, Any]:
    """Return the columns that a spec sets, not yet validated."""
    columns = {field.name: attrgetter(field.path)(spec) for field in SETTABLE if field.declared.is_column}
    return columns | {"tags": list(spec.tags), "scheduler_version": SCHEDULER_VERSION}


def spec_from(columns: Mapping[str, Any], *, when: When, policy: Policy) -> JobSpec:
    """Return the spec that these columns describe. `policy` has the values of the policy that they leave out."""
    said: dict[str | None, dict[str, Any]] = {None: {}, "policy": {}}
    for field in SETTABLE:
        if field.name in columns and field.part != "when":
            said[field.part][field.attribute] = field.value_from(columns[field.name])
    return JobSpec(when=when, policy=msgspec.structs.replace(policy, **said["policy"]), **said[None])
