"""What a sync would change, and what it refuses to read."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.sync.difference import SyncedJob, SyncPlan, difference, gone_mark, is_mark, mark_of, short_name, too_much
from floodmark.sync.format import BadAnswer, ScheduleRow, rows_of, unknown_fields

pytestmark = pytest.mark.spec("E6")


def a_row(number: int = 1, domain: str | None = None, **data: Any) -> ScheduleRow:
    schedule = data.pop("schedule", {"frequency": "daily", "time": {"hour": 2, "minute": 0}})
    told = {"domain": domain or f"site{number}.example", "schedule": schedule, **data}
    return msgspec.convert({"domain_config_id": f"c{number}", "data": told}, ScheduleRow)


def made(found: SyncPlan, by_hand: Mapping[str, Any] | None = None) -> list[SyncedJob]:
    """The jobs there are after a first sync; `by_hand` is what someone has changed in all of them."""
    return [
        SyncedJob(
            job_id=step.change.name,
            name=step.change.name,
            mark=step.mark,
            columns={"retry_max": 3, "stream": None, **step.change.after, **(by_hand or {})},
        )
        for step in found.steps
    ]


def changed(found: SyncPlan) -> dict[str, Any]:
    [step] = found.steps
    return dict(step.change.after)


@pytest.mark.spec("E3")
def test_a_schedule_becomes_a_job() -> None:
    row = a_row(maxPages=50, maxRetries=5, customPages=["/a"], accept_selector="button", description="Two\nlines")
    found = difference([row], [])
    assert changed(found) == {
        "name": "cookies-site1-example",
        "source": "cookies",
        "tags": ["sync"],
        "target": "site1.example",
        "domain": "site1.example",
        "domain_config_id": "c1",
        "schedule_type": "calendar",
        "cron_expression": None,
        "interval_seconds": None,
        "frequency": "daily",
        "time_config": {"hour": 2, "minute": 0},
        "retry_max": 5,
        "params": {"description": "Two\nlines", "maxPages": 50, "customPages": ["/a"], "accept_selector": "button"},
        "schedule_enabled": True,
    }
    assert is_mark(found.steps[0].mark)


@pytest.mark.spec("B1", "T14")
def test_a_schedule_may_be_adaptive() -> None:
    daily, adaptive = a_row(), a_row(schedule={"frequency": "adaptive"})
    found = difference([adaptive], [])
    assert not found.errors
    columns = changed(found)
    assert (columns["schedule_type"], columns["frequency"], columns["time_config"]) == ("adaptive", None, None)
    assert changed(difference([daily], made(found))) == {
        "schedule_type": "calendar",
        "frequency": "daily",
        "time_config": {"hour": 2, "minute": 0},
    }


@given(st.lists(st.integers(1, 30), unique=True), st.lists(st.integers(1, 30), unique=True))
def test_the_same_answer_again_changes_nothing(first: list[int], second: list[int]) -> None:
    rows, more = [a_row(number) for number in first], [a_row(number) for number in second]
    known = made(difference(rows, []))
    again = difference(rows, known)
    assert (again.steps, again.skipped, again.errors) == ((), len(rows), ())
    grown = difference(more, known)
    assert grown.skipped == len({*first} & {*second})
    assert grown.count("created") == len({*second} - {*first})
    assert grown.count("disabled") == 0


def test_the_order_of_fields_and_a_null_are_no_change() -> None:
    one = b'{"data":[{"domain_config_id":"a","data":{"domain":"x.y","schedule":{"frequency":"daily"}}}]}'
    other = (
        b'{"data":[{"data":{"schedule":{"time":null,"frequency":"daily"},"maxPages":null,"domain":"x.y"},'
        b'"domain_config_id":"a"}]}'
    )
    assert mark_of(rows_of(one)[0]) == mark_of(rows_of(other)[0])


def test_what_people_changed_stays_while_the_api_says_the_same() -> None:
    row = a_row()
    known = made(difference([row], []), {"frequency": "weekly", "schedule_enabled": False})
    assert difference([row], known).skipped == 1


def test_when_the_api_says_something_else_it_wins_in_what_it_carries() -> None:
    before, after = a_row(maxPages=5, scanDepth=2), a_row(maxPages=9)
    by_hand = {
        "frequency": "weekly",
        "schedule_enabled": False,
        "priority": 1,
        "params": {"maxPages": 7, "scanDepth": 2, "accept_selector": "mine", "own": 1},
    }
    known = made(difference([before], []), by_hand)
    assert changed(difference([after], known, before=[before])) == {
        # Carried before and no longer: gone. Never carried: as it is.
        "params": {"maxPages": 9, "accept_selector": "mine", "own": 1},
        "frequency": "daily",
    }


def test_a_schedule_of_another_kind_gives_way_to_that_of_the_api() -> None:
    known = made(difference([a_row()], []), {"schedule_type": "cron", "cron_expression": "* * * * *"})
    after = changed(difference([a_row(maxPages=1)], known))
    assert (after["schedule_type"], after["cron_expression"]) == ("calendar", None)


def test_two_schedules_of_one_domain_get_names_and_streams_of_their_own() -> None:
    found = difference([a_row(1, "x.example"), a_row(2, "x.example")], [])
    assert [step.change.name for step in found.steps] == ["cookies-x-example", "cookies-x-example-c2"]
    assert found.steps[1].change.after["stream"] == "cookies:c2"


def test_a_job_that_no_sync_made_is_left_alone_and_named() -> None:
    rows = [a_row(1), a_row(2)]
    found = difference(rows, [], taken=[short_name(rows[0])])
    assert [step.change.name for step in found.steps] == ["cookies-site2-example"]
    [error] = found.errors
    assert (error.domain_config_id, error.domain) == ("c1", "site1.example")
    assert "'cookies-site1-example'" in error.error
    assert "floodmark show cookies-site1-example" in error.hint


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (a_row(domain="http://x.example/"), "is not a domain"),
        (a_row(domain="x.example/../y"), "is not a domain"),
        (a_row(domain="user@x.example"), "is not a domain"),
        (a_row(domain="a b"), "is not a domain"),
        (a_row(domain="-x.example"), "is not a domain"),
        (a_row(domain="x" * 254), "is not a domain"),
        (a_row(schedule={"frequency": "daily", "time": {"hour": 24}}), "hour is 24"),
        (a_row(schedule={"frequency": "weekly", "time": {"day": "someday"}}), "day is 'someday'"),
        (a_row(schedule={"frequency": "monthly", "time": {"day": 32}}), "day is 32"),
        (a_row(schedule={"frequency": "hourly", "time": {"hour": 1}}), "no key 'hour'"),
    ],
)
def test_a_row_that_cannot_be_a_job_is_an_error_and_the_others_go_on(row: ScheduleRow, says: str) -> None:
    found = difference([row, a_row(2)], [])
    assert found.count("created") == 1
    assert says in found.errors[0].error
    assert found.errors[0].hint


@pytest.mark.parametrize(
    "domain", ["example.com", "a.b.example.co.uk", "localhost:8080", "müller.example", "127.0.0.1"]
)
def test_domains_are_taken_as_people_write_them(domain: str) -> None:
    assert difference([a_row(domain=domain)], []).count("created") == 1


def test_a_row_with_an_error_is_not_missing() -> None:
    known = made(difference([a_row(1), a_row(2)], []))
    broken = a_row(1, schedule={"frequency": "daily", "time": {"hour": 99}})
    found = difference([broken, a_row(2)], known, disable_missing=True)
    assert (found.steps, len(found.errors)) == ((), 1)


def test_missing_schedules_are_disabled_only_when_asked_and_come_back_enabled() -> None:
    rows = [a_row(number) for number in range(5)]
    known = made(difference(rows, []))
    assert difference(rows[1:], known).steps == ()
    gone = difference(rows[1:], known, disable_missing=True)
    assert (gone.count("disabled"), changed(gone)) == (1, {"schedule_enabled": False})
    assert gone.steps[0].mark == gone_mark("c0")

    disabled = msgspec.structs.replace(
        known[0], mark=gone_mark("c0"), columns={**known[0].columns, "schedule_enabled": False}
    )
    there = [disabled, *known[1:]]
    assert difference(rows[1:], there, disable_missing=True).steps == ()
    assert changed(difference(rows, there)) == {"schedule_enabled": True}
    # Whoever enables it again by hand has the last word.
    by_hand = msgspec.structs.replace(disabled, columns=known[0].columns)
    assert difference(rows[1:], [by_hand, *known[1:]], disable_missing=True).steps == ()


def test_what_people_disabled_is_not_disabled_again_nor_enabled() -> None:
    rows = [a_row(1), a_row(2)]
    known = made(difference(rows, []), {"schedule_enabled": False})
    assert difference([], known, disable_missing=True).steps == ()
    assert "schedule_enabled" not in changed(difference([a_row(1, maxPages=3), rows[1]], known))


@pytest.mark.parametrize(
    ("missing", "share", "refused"),
    [(1, 0.2, False), (3, 0.2, True), (3, 0.3, False), (9, 1.0, False), (10, 1.0, True)],
)
def test_too_much_at_once_is_refused_and_all_of_it_always(missing: int, share: float, refused: bool) -> None:
    rows = [a_row(number) for number in range(10)]
    known, left = made(difference(rows, [])), rows[missing:] or [a_row(99)]
    found = difference(left, known, disable_missing=True)
    told = too_much(found, left, known, share)
    assert (told is not None) == refused
    if told is not None:
        assert f"{missing} of 10 jobs" in told


def test_an_answer_without_schedules_is_too_much_whatever_is_disabled() -> None:
    known = made(difference([a_row(1), a_row(2)], []))
    assert "2 jobs came from it before" in str(too_much(difference([], known), [], known, 1.0))
    assert too_much(difference([], []), [], [], 0.0) is None


GOOD = msgspec.json.encode({"data": [a_row(maxPages=5, description="Example")]})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"[]", "expected `object`, got `array`"),
        (b"{}", "missing required field `data`"),
        (GOOD[:-9], "truncated"),
        (GOOD + b"x", "trailing characters"),
        (b"\xef\xbb\xbf" + GOOD, "it is not JSON"),
        (GOOD.replace(b"Example", b"\xff"), "it is not UTF-8"),
        (GOOD.replace(b"Example", b"\\ud800"), "it is not JSON"),
        (GOOD.replace(b"Example", b"\\u0007"), "not printable - at `$.data[0].data.description`"),
        (GOOD.replace(b"Example", b"\\u0000"), "not printable"),
        (GOOD.replace(b"Example", b"x" * 2001), "length <= 2000"),
        (GOOD.replace(b"c1", b" c1"), "starts or ends with a space"),
        (GOOD.replace(b'"c1"', b'""'), "length >= 1"),
        (GOOD.replace(b'"c1"', b"17"), "expected `str`, got `int`"),
        (GOOD.replace(b":5", b':"5"'), "expected `int | null`, got `str`"),
        (GOOD.replace(b":5", b":0"), ">= 1"),
        (GOOD.replace(b":5", b":NaN"), "it is not JSON"),
        (GOOD.replace(b"daily", b"yearly"), "invalid enum value 'yearly'"),
        (GOOD.replace(b'{"data":', b'{"data":' + b"[" * 100_000, 1), "expected `object`, got `array`"),
        (
            GOOD.replace(b'"data":[', b'"more":' + b"[" * 100_000 + b"]" * 100_000 + b',"data":[', 1),
            "nested too deeply",
        ),
    ],
)
def test_an_answer_of_another_form_is_refused_with_the_place(body: bytes, says: str) -> None:
    with pytest.raises(BadAnswer) as refused:
        rows_of(body)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()
    assert "nothing was changed" in refused.value.hint


def test_an_id_that_comes_twice_is_refused() -> None:
    body = msgspec.json.encode({"data": [a_row(1), a_row(2), a_row(1, "other.example")]})
    with pytest.raises(BadAnswer, match="domain_config_id 'c1' twice"):
        rows_of(body)


@pytest.mark.spec("E6")
def test_a_field_that_nobody_knows_is_taken_and_named() -> None:
    plain, [row] = rows_of(GOOD), rows_of(GOOD.replace(b'"daily"', b'"daily","every":2'))
    assert (row,) == plain
    body = GOOD.replace(b"maxPages", b"a\\u001b[2Jb").replace(b'"daily"', b'"daily","every":2')
    body = body.replace(b'{"data":[', b'{"page":2,"data":[', 1)
    rows_of(body)
    assert unknown_fields(body) == ("page", "data.data.a\ufffd[2Jb", "data.data.schedule.every")
    assert unknown_fields(GOOD) == ()
