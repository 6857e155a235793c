"""The field table of a job: what is declared in one place agrees with the structs, the database, JSON and the mark."""

from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec import NODEFAULT, Struct

from floodmark.model.job import CatchUp, DueJob, Frequency, Job, Overlap, Policy, Priority, ScheduleType, When, Work
from floodmark.model.job_fields import COLUMNS, FIELDS, SETTABLE, columns_of, spec_from
from floodmark.model.shapes import job_from_shape, job_shape
from floodmark.model.spec import JobSpec, declaration
from floodmark.store.tables import jobs

pytestmark = pytest.mark.spec("E2")

WHEN = When(
    schedule_type=ScheduleType.CALENDAR,
    frequency=Frequency.DAILY,
    time_config={"minute": 30, "hour": 2},
    timezone="Europe/Berlin",
)
SPEC = JobSpec(
    name="news",
    source="python",
    target="feeds:news",
    when=WHEN,
    policy=Policy(overlap=Overlap.QUEUE, catch_up=CatchUp.ALL, jitter=timedelta(seconds=3)),
    params={"z": 1, "a": {"c": [1], "b": None}},
    tags=("b", "a"),
    priority=Priority.HIGH,
    timeout=timedelta(seconds=90.5),
    depends_on=("first",),
    tenant_id="acme",
)


def in_full() -> Job:
    """A job in which every field has a value of its own."""
    plain = {name: getattr(SPEC, name) for name in SPEC.__struct_fields__ if name != "declared"}
    stated = {field.attribute: field.name for field in SETTABLE if field.kind is str and field.part is None}
    at = datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    times = {field.attribute: at for field in FIELDS.values() if field.kind is datetime}
    return Job(**{**plain, **stated, **times}, job_id="1", paused=True, version=7)


def types_of(struct: type[Struct]) -> dict[str, Any]:
    return get_type_hints(struct)


@pytest.mark.parametrize("struct", [Work, DueJob])
def test_the_parts_of_a_job_have_its_fields_types_and_defaults(struct: type[Struct]) -> None:
    whole, defaults = types_of(Job), {field.name: field for field in msgspec.structs.fields(Job)}
    for field in msgspec.structs.fields(struct):
        if field.name in ("active", "waits_for"):
            continue
        assert types_of(struct)[field.name] == whole[field.name], field.name
        assert field.default == defaults[field.name].default, field.name
        assert field.default_factory == defaults[field.name].default_factory, field.name


def test_every_field_of_a_job_is_declared() -> None:
    """Only `unreadable` is no field: no column, no JSON."""
    assert {field.part or field.attribute for field in FIELDS.values()} == {*Job.__struct_fields__} - {"unreadable"}
    assert {field.part or field.attribute for field in SETTABLE} == {*JobSpec.__struct_fields__} - {"declared"}
    for field in FIELDS.values():
        assert field.declared.description.endswith("."), field.name
        assert field.form, field.name


def test_every_column_of_the_table_is_a_field() -> None:
    assert {field.name for field in COLUMNS} == {*jobs.c.keys()} - {"declared", "id"}


def test_a_default_is_one_that_may_be_set() -> None:
    for field in SETTABLE:
        if field.default is not NODEFAULT:
            plain = field.default.total_seconds() if isinstance(field.default, timedelta) else field.default
            msgspec.convert(msgspec.to_builtins(plain), field.checked_type)


def test_an_example_is_one_that_may_be_set() -> None:
    for field in FIELDS.values():
        if field.declared.example is not None:
            msgspec.convert(field.declared.example, field.checked_type)


def test_json_gives_back_the_same_job() -> None:
    job = in_full()
    assert job_from_shape(msgspec.json.decode(msgspec.json.encode(job_shape(job)))) == job


def test_a_field_of_a_newer_server_is_ignored() -> None:
    assert job_from_shape({**job_shape(in_full()), "colour": "blue"}) == in_full()


def test_columns_give_back_the_same_spec() -> None:
    columns = {**columns_of(SPEC), "depends_on": SPEC.depends_on}
    assert spec_from(columns, when=WHEN, policy=Policy()) == SPEC


def test_what_is_left_out_keeps_its_default() -> None:
    usual = Policy(max_instances=4)
    spec = spec_from({"source": "python", "target": "a:b", "jitter_seconds": 5}, when=WHEN, policy=usual)
    assert spec.policy == Policy(max_instances=4, jitter=timedelta(seconds=5))
    for field in SETTABLE:
        if field.part is None and field.default is not NODEFAULT:
            assert attrgetter(field.path)(spec) == field.default, field.name


def test_the_mark_of_a_declaration_never_changes() -> None:
    """A new mark for the same declaration would undo what operators have changed since."""
    assert declaration(JobSpec(source="python", target="feeds:news", when=WHEN)) == "a54a67b3514d1c776a18982294d9cd3b"
    assert declaration(SPEC) == "f3d7cead9822f9a7e31dd42f9ffe3635"
