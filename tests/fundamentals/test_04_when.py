"""4. Schedules: by interval, cron or calendar, or adaptive.

A job has one of `every`, `cron`, `hourly`, `daily`, `weekly`, `monthly`, `once` and `adaptive`, or none. Times are in
its `timezone` and stay correct at daylight saving changes. `floodmark next NAME` shows the next runs.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from floodmark import Floodmark, InvalidInput

from .running import opened, running

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 6, 1, 12, tzinfo=UTC)
# On Sunday, 29 March 2026, the clocks of Berlin go forward from 2:00 to 3:00.
BEFORE_THE_CHANGE = datetime(2026, 3, 27, 12, tzinfo=UTC)


def nothing() -> list[dict[str, Any]]:
    """Collect nothing: this lesson is about schedules only."""
    return []


@pytest.mark.spec("V1")
async def test_a_schedule_by_interval(app: Floodmark) -> None:
    """Intervals count from the creation of the job and do not drift: a late run does not delay the next one."""
    app.collector(every="15m", name="posts")(nothing)

    async with opened(app) as floodmark:
        made = (await floodmark.job("posts")).created_at
        quarter = timedelta(minutes=15)

        runs = await floodmark.next_runs("posts", after=made, count=3)

        assert runs == [made + quarter, made + 2 * quarter, made + 3 * quarter]


@pytest.mark.spec("V1")
async def test_a_schedule_by_cron_expression(app: Floodmark) -> None:
    """The expression has five fields; names and `@daily` are supported."""
    app.collector(cron="*/30 8-9 * * MON-FRI", timezone="Europe/Berlin", name="posts")(nothing)

    async with opened(app) as floodmark:
        runs = await floodmark.next_runs("posts", after=MONDAY, count=5)

        shown = [f"{run.astimezone(BERLIN):%a %H:%M}" for run in runs]
        assert shown == ["Tue 08:00", "Tue 08:30", "Tue 09:00", "Tue 09:30", "Wed 08:00"]


@pytest.mark.spec("V1", "E3")
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"hourly": "15"}, ["Mon 01 12:15", "Mon 01 13:15"]),
        ({"daily": "02:00"}, ["Tue 02 02:00", "Wed 03 02:00"]),
        ({"weekly": "friday 18:30"}, ["Fri 05 18:30", "Fri 12 18:30"]),
        ({"monthly": "31 00:00"}, ["Tue 30 00:00", "Fri 31 00:00"]),
    ],
)
async def test_a_schedule_by_calendar(app: Floodmark, when: dict[str, str], expected: list[str]) -> None:
    """These schedules need no cron expression. If a month does not have that day, the job runs on its last day."""
    app.collector(name="posts", **when)(nothing)  # type: ignore[arg-type]  # one of several keywords

    async with opened(app) as floodmark:
        runs = await floodmark.next_runs("posts", after=MONDAY, count=2)

        assert [f"{run:%a %d %H:%M}" for run in runs] == expected


@pytest.mark.spec("V1", "G1")
async def test_a_daily_schedule_when_the_clocks_change(app: Floodmark) -> None:
    """02:30 does not exist that night. The job still runs once, at the first minute that exists."""
    app.collector(daily="02:30", timezone="Europe/Berlin", name="posts")(nothing)

    async with opened(app) as floodmark:
        runs = await floodmark.next_runs("posts", after=BEFORE_THE_CHANGE, count=3)

        shown = [f"{run.astimezone(BERLIN):%a %H:%M}" for run in runs]
        assert shown == ["Sat 02:30", "Sun 03:00", "Mon 02:30"]


@pytest.mark.spec("V1")
async def test_a_job_that_runs_once(app: Floodmark) -> None:
    """The job runs once, now."""
    app.collector(once=True, name="posts")(nothing)

    async with running(app) as floodmark:
        assert (await floodmark.wait_for_first_run("posts")).state == "done"
        assert (await floodmark.explain("posts")).startswith("finished: it ran at ")


@pytest.mark.spec("B1", "T14")
async def test_an_adaptive_job(app: Floodmark) -> None:
    """Floodmark learns when items appear and runs the job at those times, at least every `max_delay`.

    All adaptive jobs of a `budget` share its requests; without one, they use the budget `default`. The delay of items
    of a job with the `weight` 2 counts twice.
    """
    app.collector(adaptive=True, max_delay="1h", weight=2, name="posts")(nothing)

    async with opened(app) as floodmark:
        job = await floodmark.job("posts")

        assert (job.when.schedule_type, job.budget) == ("adaptive", "default")
        assert (job.max_delay, job.weight) == (timedelta(hours=1), 2)


@pytest.mark.spec("B2", "G9")
async def test_a_budget_that_does_not_exist_is_refused(app: Floodmark) -> None:
    """Create a budget before a job uses it."""
    app.collector(adaptive=True, budget="news", name="posts")(nothing)

    with pytest.raises(InvalidInput, match="there is no budget 'news'") as caught:
        async with opened(app):
            pass

    assert caught.value.hint == "create it: floodmark budgets set news --per-minute 30"


@pytest.mark.spec("G9")
def test_two_schedules_for_one_job_are_refused(app: Floodmark) -> None:
    """The error names the problem, its `hint` the next step, and nothing was changed."""
    with pytest.raises(InvalidInput, match="every and cron contradict each other") as caught:
        app.collector(every="15m", cron="@daily")

    assert caught.value.hint == "Say only one of them"
