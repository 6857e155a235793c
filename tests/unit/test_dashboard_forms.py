"""Forms of jobs: texts and values, schedules, options of sources, and what was refused."""

from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import pytest

from floodmark.dashboard.field_texts import duration_text, object_of, text_of, value_of
from floodmark.dashboard.job_draft import JobDraft
from floodmark.dashboard.job_form import groups_of, read_changes, texts_of_job
from floodmark.dashboard.param_form import option_fields, read_params, texts_of_params
from floodmark.dashboard.refusals import PageRefusals
from floodmark.dashboard.when_form import KEPT, WAYS, WhenForm, plan_runs
from floodmark.errors import InvalidInput
from floodmark.model.job import CatchUp, Frequency, Overlap, Policy, Priority, ScheduleType, When
from floodmark.model.job_fields import FIELDS, SETTABLE
from floodmark.sources.form import find_form
from floodmark.testing.factories import a_job

pytestmark = pytest.mark.spec("B10")

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FULL = a_job(
    name="news",
    tags=("a", "b c"),
    priority=Priority.LOW,
    timeout=timedelta(hours=1, minutes=30),
    max_delay=timedelta(seconds=0.5),
    weight=2.5,
    retry_max=0,
    policy=Policy(overlap=Overlap.QUEUE, coalesce=False, catch_up=CatchUp.ALL, jitter=timedelta(seconds=90)),
    depends_on=("first", "second"),
    account="main",
    schedule_enabled=False,
)


@pytest.mark.parametrize("job", [FULL, a_job()], ids=["full", "bare"])
def test_every_field_that_can_be_set_is_in_the_form_and_survives_it(job: Any) -> None:
    texts = texts_of_job(job)
    shown = {field.name for group in groups_of(texts) for field in group.fields}
    assert shown == set(texts)
    when = {field.name for field in SETTABLE if field.part == "when"}
    assert shown | when | {"params"} == {field.name for field in SETTABLE}
    for name, text in texts.items():
        field = FIELDS[name]
        stored = attrgetter(field.path)(job)
        assert field.value_from(value_of(field, text)) == stored, name


def test_a_form_that_was_not_touched_changes_nothing() -> None:
    texts, refusals = texts_of_job(FULL), PageRefusals()
    fields = {name: [text] for name, text in texts.items()}
    assert read_changes(fields, texts, refusals) == {}
    changed = read_changes({**fields, "priority": ["1"], "tags": ["x, y"], "account": [""]}, texts, refusals)
    assert changed == {"priority": 1, "tags": ["x", "y"], "account": None}
    assert refusals == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("timeout_seconds", "soon", "timeout_seconds: 'soon' is not a length of time"),
        ("retry_max", "three", "retry_max is 'three'"),
        ("weight", "", "weight is empty"),
        ("priority", "9", "priority is '9'"),
        ("coalesce", "perhaps", "coalesce is 'perhaps'"),
        ("name", " ", "name is empty"),
    ],
)
def test_a_wrong_value_is_refused_with_a_hint(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        value_of(FIELDS[name], text)
    assert str(refused.value) == message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "1m30s"), (5400, "1h30m"), (86400, "1d"), (0, "0"), (0.5, "0.5"), (1, "1s")]
)
def test_durations_are_written_as_people_type_them(seconds: float, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text
    assert value_of(FIELDS["jitter_seconds"], text) == seconds


@pytest.mark.parametrize("text", ["[1]", "1", "{", "[" * 100_000, '{"a": NaN'])
def test_only_a_json_object_can_be_typed(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^params is "):
        object_of("params", text)


@pytest.mark.parametrize(
    "when",
    [
        When(schedule_type=ScheduleType.CRON, cron_expression="*/5 * * * *", timezone="Europe/Berlin"),
        When(schedule_type=ScheduleType.INTERVAL, interval_seconds=5400.0),
        When(schedule_type=ScheduleType.CALENDAR, frequency=Frequency.HOURLY, time_config={"minute": 15}),
        When(schedule_type=ScheduleType.CALENDAR, frequency=Frequency.DAILY, time_config={"hour": 2, "minute": 5}),
        When(
            schedule_type=ScheduleType.CALENDAR,
            frequency=Frequency.WEEKLY,
            time_config={"hour": 2, "minute": 5, "day": "tuesday"},
        ),
        When(
            schedule_type=ScheduleType.CALENDAR,
            frequency=Frequency.MONTHLY,
            time_config={"hour": 2, "minute": 5, "day": 31},
        ),
        When(schedule_type=ScheduleType.IMMEDIATE),
        When(schedule_type=ScheduleType.EVENT),
        When(schedule_type=ScheduleType.ADAPTIVE),
    ],
)
def test_a_schedule_survives_its_form(when: When) -> None:
    assert WhenForm.of(when).when() == when


def test_a_schedule_of_a_package_stays_as_it_is() -> None:
    when = When(schedule_type=ScheduleType.CALENDAR, time_config={"trigger": "sunrise"})
    assert WhenForm.of(when).way == KEPT
    assert WhenForm.of(When(schedule_type=ScheduleType.INTERVAL, interval_seconds=0.5)).way == KEPT


def test_the_next_runs_are_those_of_the_chosen_way_in_its_zone() -> None:
    refusals = PageRefusals()
    planned = plan_runs(WhenForm(way="daily", daily="02:00", timezone="Europe/Berlin"), NOW, refusals)
    assert planned is not None
    assert [run["local"] for run in planned.runs[:2]] == ["2026-06-02T02:00:00+02:00", "2026-06-03T02:00:00+02:00"]
    interval = plan_runs(WhenForm(way="every", every="1h"), NOW, refusals)
    assert interval is not None
    assert interval.runs[0]["at"] == NOW, "a new job runs at once"
    later = plan_runs(WhenForm(way="every", every="1h"), NOW, refusals, anchor=NOW - timedelta(minutes=20))
    assert later is not None
    assert later.runs[0]["at"] == NOW + timedelta(minutes=40)
    assert refusals == {}


@pytest.mark.parametrize(
    ("form", "field"),
    [
        (WhenForm(way="cron", cron="* *"), "cron"),
        (WhenForm(way="every", every="often"), "every"),
        (WhenForm(way="daily", daily="25:00"), "daily"),
        (WhenForm(way="weekly", weekly_day="doomsday"), "weekly"),
        (WhenForm(way="monthly", monthly_day="40"), "monthly"),
        (WhenForm(way="hourly", hourly="x"), "hourly"),
        (WhenForm(timezone="Atlantis"), "timezone"),
    ],
)
def test_a_wrong_schedule_is_refused_at_its_field(form: WhenForm, field: str) -> None:
    refusals = PageRefusals()
    assert plan_runs(form, NOW, refusals) is None
    assert list(refusals) == [field]
    assert refusals[field].message


def test_every_way_has_a_form() -> None:
    for way, _ in WAYS:
        refusals = PageRefusals()
        assert plan_runs(WhenForm(way=way), NOW, refusals) is not None, refusals


def test_options_of_a_source_become_params_and_back() -> None:
    form, refusals = find_form("web"), PageRefusals()
    params = {"include": ["/news/**", "/a"], "max_pages": 50, "delay": "2s", "feeds": False, "extra": {"deep": 1}}
    texts, others = texts_of_params("web", form, params)
    assert others == {"extra": {"deep": 1}}
    assert {field.option.param: field.text for field in option_fields("web", form, texts) if field.text} == {
        "include": "/news/**\n/a",
        "max_pages": "50",
        "delay": "2s",
        "feeds": "no",
    }
    fields = {name: [text] for name, text in texts.items()} | {"params": ['{"extra": {"deep": 1}}']}
    assert read_params("web", form, fields, params, refusals) == params
    assert refusals == {}


def test_values_that_an_option_cannot_have_stay_json() -> None:
    texts, others = texts_of_params("web", find_form("web"), {"include": "/x", "feeds": "maybe", "max_pages": True})
    assert texts == {}
    assert set(others) == {"include", "feeds", "max_pages"}


def test_a_wrong_option_is_refused_at_its_field() -> None:
    refusals = PageRefusals()
    fields = {"option.cookies.maxPages": ["0"], "option.cookies.scanDepth": ["deep"], "params": ["[]"]}
    read_params("cookies", find_form("cookies"), fields, {}, refusals)
    assert sorted(refusals) == ["option.cookies.maxPages", "option.cookies.scanDepth", "params"]


def test_a_message_of_the_server_is_placed_at_the_field_that_it_begins_with() -> None:
    refusals = PageRefusals()
    places = {"history": "option.telegram.history", "name": "name"}
    refusals.place(InvalidInput("history 'x' is not a number of posts", hint="use 500"), places)
    refusals.place(InvalidInput("name: taken"), places)
    refusals.place(InvalidInput("the budget password=hunter2 is unknown"), places)
    assert set(refusals) == {"option.telegram.history", "name", ""}
    assert str(refusals["option.telegram.history"]) == "history 'x' is not a number of posts: use 500"
    assert "hunter2" not in str(refusals[""])


def test_a_draft_keeps_what_was_typed_and_takes_what_others_changed() -> None:
    job = a_job(name="news", source="python", priority=Priority.NORMAL, retry_max=3)
    draft = JobDraft.of(job)
    typed = {name: [text] for name, text in draft.texts.items()} | {"retry_max": ["7"], "base": [draft.base_text]}
    draft.read(typed)
    assert draft.changes() == {"retry_max": 7}
    theirs = a_job(
        job_id=job.job_id,
        name="news",
        source="python",
        stream=job.stream,
        priority=Priority.HIGH,
        retry_max=5,
        version=2,
    )
    draft.continue_from(theirs)
    assert set(draft.others) == {"priority", "retry_max"}
    assert (draft.texts["priority"], draft.texts["retry_max"], draft.version) == ("1", "7", 2)


def test_text_of_an_empty_value_is_empty() -> None:
    assert [text_of(FIELDS[name], value) for name, value in (("account", None), ("tags", ()), ("params", {}))] == [
        ""
    ] * 3
