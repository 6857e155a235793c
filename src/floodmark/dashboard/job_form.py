"""The fields of a job in a form, generated from the field table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput
from floodmark.model.job import Job
from floodmark.model.job_fields import FIELDS, SETTABLE, JobField

from .field_texts import text_of, value_of
from .refusals import PageRefusals

# The schedule and the params have their own parts of a form.
_ELSEWHERE = frozenset({"params"} | {field.name for field in SETTABLE if field.part == "when"})
_FIRST = ("name", "source", "target", "account", "tags")
# These belong to the choice of the schedule.
ADAPTIVE = ("budget", "max_delay_seconds", "weight")
_OTHER = "Ids and triggers"
_PRIORITIES = {"1": "high", "2": "normal", "3": "low"}


class FormField(Struct, frozen=True, kw_only=True):
    """A field of a job with the text in its field. `choices` are values with their words, if it has few values."""

    name: str
    label: str
    help: str
    text: str
    example: str
    choices: tuple[tuple[str, str], ...] = ()
    is_numeric: bool = False


class FieldGroup(Struct, frozen=True, kw_only=True):
    """Fields under one heading."""

    title: str
    fields: tuple[FormField, ...]


def texts_of_job(job: Job) -> dict[str, str]:
    """Return the text of every field of a form for a job."""
    return {field.name: text_of(field, attrgetter(field.path)(job)) for field in SETTABLE if _is_shown(field)}


def groups_of(texts: Mapping[str, str], *, is_new: bool = False) -> list[FieldGroup]:
    """Return all fields of a form in groups; for a new job only those that an option of `floodmark add` sets."""
    shown = [field for field in SETTABLE if _is_shown(field) and (not is_new or _is_offered(field))]
    groups: dict[str, list[FormField]] = {}
    for field in shown:
        groups.setdefault(_group_of(field), []).append(form_field(field, texts.get(field.name, ""), is_new=is_new))
    order = ("What", "Schedule", "Policy", "Items", _OTHER)
    return [FieldGroup(title=title, fields=tuple(groups[title])) for title in order if title in groups]


def form_field(field: JobField, text: str, *, is_new: bool = False) -> FormField:
    """Return one field. The help has the meaning, what applies if it is left empty, and the allowed values."""
    declared = field.declared
    usual = field.default_words
    parts = [declared.description]
    if usual is not None and (is_new or field.is_optional):
        parts.append(f"Left empty: {usual}.")
    return FormField(
        name=field.name,
        label=_label_of(field),
        help=" ".join(parts).replace("`", ""),
        text=text,
        example=_example_of(field),
        choices=_choices_of(field, is_new=is_new),
        is_numeric=field.kind in (int, float),
    )


def read_changes(
    fields: Mapping[str, list[str]], base: Mapping[str, str], refusals: PageRefusals, *, is_new: bool = False
) -> dict[str, Any]:
    """Return the columns whose text differs from `base`; refused values are noted."""
    changes: dict[str, Any] = {}
    for field in SETTABLE:
        typed = fields.get(field.name)
        if typed is None or not _is_shown(field) or typed[0].strip() == base.get(field.name, "").strip():
            continue
        if is_new and not typed[0].strip():
            continue
        try:
            changes[field.name] = value_of(field, typed[0])
        except InvalidInput as error:
            refusals.add(field.name, error)
    return changes


def field_names() -> dict[str, str]:
    """Return the field of a form for the name of each column, as messages of the server begin with it."""
    return {name: name for name in FIELDS} | dict.fromkeys(("cron_expression", "interval_seconds"), "way")


def labels_of(names: Iterable[str]) -> str:
    """Return names of columns as people read them: "priority, timeout"."""
    return ", ".join(_label_of(FIELDS[name]).lower() if name in FIELDS else name for name in names)


def _is_shown(field: JobField) -> bool:
    return field.name not in _ELSEWHERE


def _is_offered(field: JobField) -> bool:
    return field.declared.option is not None and field.name not in (*ADAPTIVE, "name", "tags")


def _group_of(field: JobField) -> str:
    if field.name in _FIRST:
        return "What"
    if field.part == "policy":
        return "Policy"
    option = field.declared.option
    if field.name == "schedule_enabled":
        return "Schedule"
    return (option.panel or _OTHER) if option is not None else _OTHER


def _label_of(field: JobField) -> str:
    return field.attribute.replace("_", " ").capitalize()


def _example_of(field: JobField) -> str:
    """Return an example as it is typed."""
    example = field.declared.example
    if example is None or field.is_enum:
        return ""
    return text_of(field, field.value_from(example))


def _choices_of(field: JobField, *, is_new: bool) -> tuple[tuple[str, str], ...]:
    empty = (("", "default"),) if is_new else ()
    if field.kind is bool:
        return (*empty, ("yes", "yes"), ("no", "no"))
    if field.is_enum:
        values: Sequence[str] = [str(word.value) for word in field.kind]
        words = _PRIORITIES if field.name == "priority" else {}
        return (*empty, *((value, words.get(value, value)) for value in values))
    return ()
