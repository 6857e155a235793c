"""The pure parts of the command line: what stands where, and how times are put into words."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from floodmark.cli.history import digits_shown, time_taken
from floodmark.cli.output import counted, plain, safe, short
from floodmark.cli.parsing import json_or_text, params_of
from floodmark.cli.root import hoist_global_options
from floodmark.cli.times import absolute, both, clock_changes, due, relative, upcoming
from floodmark.errors import InvalidInput
from floodmark.model.execution import Execution, State
from floodmark.model.job import NEVER, Job, Priority, ScheduleType, When

NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        ("ls --set A=1 --json -q", "--set A=1 -q ls --json"),
        ("ls --set=A=1", "--set=A=1 ls"),
        ("add python x:y --debug --set A=1 --set B=2", "--debug --set A=1 --set B=2 add python x:y"),
        ("run -- --set A=1", "run -- --set A=1"),
        ("ls --set", "--set ls"),
        ("", ""),
    ],
)
def test_global_options_may_stand_anywhere(typed: str, understood: str) -> None:
    assert hoist_global_options(typed.split()) == understood.split()


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (timedelta(seconds=0.4), "now"),
        (timedelta(seconds=40), "in 40 s"),
        (timedelta(hours=1, minutes=30), "in 1 h 30 min"),
        (timedelta(days=-3), "3 d ago"),
    ],
)
def test_times_are_told_from_now(away: timedelta, words: str) -> None:
    assert relative(NOON + away, NOON) == words


def test_a_date_is_told_unless_it_is_today() -> None:
    assert absolute(NOON + MINUTE, NOON, BERLIN) == "14:01:00"
    assert absolute(NOON + timedelta(hours=11), NOON, BERLIN) == "2026-10-02 01:00"


def test_both_together_and_none_at_all() -> None:
    assert both(NOON + MINUTE, NOON, BERLIN) == "in 1 min (14:01:00 CEST)"
    assert both(None, NOON) == both(NEVER, NOON) == "-"
    assert due(NOON - MINUTE, NOON, UTC) == "due 1 min ago (11:59:00 UTC)"
    assert due(None, NOON) == "-"


def a_job(**changes: Any) -> Job:
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=600)
    values: dict[str, Any] = {
        "job_id": "1",
        "name": "x",
        "source": "python",
        "target": "x",
        "stream": "x",
        "when": when,
    }
    return Job(**values | {"created_at": NOON} | changes)


def test_a_new_job_is_due_at_once_and_an_overdue_one_first() -> None:
    assert upcoming(a_job(), NOON, 2) == [NOON, NOON + 10 * MINUTE]
    assert upcoming(a_job(planned_until=NOON), NOON + MINUTE, 2) == [NOON + 10 * MINUTE, NOON + 20 * MINUTE]
    late = upcoming(a_job(planned_until=NOON), NOON + 25 * MINUTE, 2)
    assert late == [NOON + 20 * MINUTE, NOON + 30 * MINUTE]


def test_changes_of_the_clocks_are_marked_where_they_are_first_felt() -> None:
    days = [datetime(2026, 10, day, 1, tzinfo=UTC) for day in (23, 24, 25, 26)]
    assert list(clock_changes(days, NOON, BERLIN)) == ["", "", "clocks went back 1 h", ""]
    spring = [datetime(2026, 3, 29, hour, tzinfo=UTC) for hour in (0, 1)]
    assert list(clock_changes(spring, spring[0], BERLIN)) == ["", "clocks went forward 1 h"]


def test_params_are_json_where_they_are_json() -> None:
    given = params_of(["n=2", "on=true", "list=[1]", "text=a b", "equals=a=b", 'quoted="2"', "nothing="])
    assert given == {"n": 2, "on": True, "list": [1], "text": "a b", "equals": "a=b", "quoted": "2", "nothing": ""}
    assert json_or_text("NaN") == "NaN"
    with pytest.raises(InvalidInput, match="is not NAME=VALUE"):
        params_of(["=2"])


@pytest.mark.spec("G9")
def test_what_comes_from_elsewhere_cannot_steer_the_terminal() -> None:
    assert safe("a\x1b[31m\nb\u202e") == "a\\u001b[31m b\\u202e"
    assert plain("[red]x[/]\x1b\ny") == "\\[red]x\\[/]\\u001b\ny"
    assert short("a" * 20, 5) == "aaaa…"


def test_numbers_and_nouns_agree() -> None:
    assert [counted(n, "job") for n in (0, 1, 12_000)] == ["0 jobs", "1 job", "12,000 jobs"]


@pytest.mark.parametrize(
    ("ids", "digits"),
    [
        ([], 13),
        (["01a1e3b9db2571148bf4"], 13),
        (["01a1e3b9db2571148bf4", "01a1e3ba06f87ae18b9f"], 13),
        (["01a1e3b9db2571148bf4", "01a1e3ba06f87ae18b9f", "01a1e3b9db257a9b928d", "01a1e3b9db257113903b"], 16),
    ],
)
def test_what_fired_in_the_same_moment_is_told_apart(ids: list[str], digits: int) -> None:
    assert digits_shown(ids) == digits


def test_the_time_a_run_took_is_that_of_all_its_slices() -> None:
    def run(worked: float, ended: datetime) -> Execution:
        return Execution(
            execution_id="e",
            job_id="j",
            job_name="site",
            scheduled_for=NOON,
            state=State.DONE,
            priority=Priority.NORMAL,
            attempt=1,
            started_at=ended - timedelta(seconds=2),
            completed_at=ended,
            duration_seconds=worked,
        )

    assert time_taken(run(2.0, NOON + MINUTE)) == "2 s"
    assert time_taken(run(41.0, NOON + 3 * MINUTE)) == "41 s of work, 3 min from due to end"
