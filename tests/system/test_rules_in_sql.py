"""What the databases do in SQL is what the rules say: every case, or random ones, on SQLite and on PostgreSQL."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert

from floodmark.model.batch import Kept
from floodmark.model.execution import ENDED, Hold, Lease, State
from floodmark.model.freshness_map import FreshnessLevel
from floodmark.model.ids import new_id
from floodmark.model.job import Frequency, Priority, ScheduleType, When
from floodmark.model.outcome import Cancelled, Dead, Done, Outcome, Released, Retry, Snooze
from floodmark.outbound.tables import limits
from floodmark.repositories.staleness import Staleness
from floodmark.rules.dependencies import is_unmet
from floodmark.rules.holding import Unfinished, is_freed, next_held
from floodmark.rules.outcomes import consequence_of
from floodmark.rules.rank import rank_of
from floodmark.rules.rescue import count_rescues, rescue_of
from floodmark.rules.staleness import (
    INTERVALS,
    TIMED,
    freshness_level,
    is_stale,
    patience_of,
    usual_interval,
    usual_pause,
)
from floodmark.rules.starting import find_obstacle, wakes_to
from floodmark.rules.streams import split_stream, stream_name
from floodmark.store.port import FIRST_PLACE, Settlement
from floodmark.store.tables import activity, budgets, job_dependencies, job_executions, jobs, watermarks
from floodmark.testing.factories import (
    TTL,
    Opened,
    change_executions,
    change_jobs,
    expire,
    given_executions,
    given_job,
    given_queued,
    rescue,
    rows_of,
    take,
)
from floodmark.wiring.resources import Resources

pytestmark = pytest.mark.every_database

HOUR = timedelta(hours=1)
PATIENCE = timedelta(hours=10)
# No statement takes so long, and all times that are told apart are hours apart.
SOON = timedelta(minutes=20)
LIMIT = "told to {wait}, 'politely'"

a_few = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened(queue_patience=PATIENCE) as resources:
        yield resources


@pytest.mark.spec("E7", "T13")
@pytest.mark.parametrize("is_named", [False, True])
async def test_an_execution_starts_or_is_parked_as_the_rule_says(resources: Resources, is_named: bool) -> None:
    """By the queue in the database (what is first in line), and by that in Redis (these ids)."""
    now = datetime.now(UTC)
    cases = list(product((False, True), (False, True), (False, True), ("schedule", "manual", "webhook"), (False, True)))
    job_ids = [new_id() for _ in cases]
    rows = [
        {**_job(job_id), "limit_key": "held" if case[1] else f"free-{number % 2}"}
        for number, (job_id, case) in enumerate(zip(job_ids, cases, strict=True))
    ]
    # Of two that collect the same stream in one step the first starts.
    twins = [{**_job(new_id()), "stream": "shared"} for _ in range(2)]
    await _insert(resources, jobs, [{"limit_key": None, "stream": None, **row} for row in rows + twins])
    ids = await given_executions(resources, [row["job_id"] for row in rows + twins], put=False)
    for trigger in ("manual", "webhook"):
        await change_executions(
            resources, [i for i, case in zip(ids, cases, strict=False) if case[3] == trigger], trigger=trigger
        )
    for place, execution_id in enumerate(ids):
        await change_executions(resources, [execution_id], queue_rank=now - HOUR + timedelta(seconds=place))
    busy = [_stream(row) for row, case in zip(rows, cases, strict=True) if case[4]]
    await _insert(resources, watermarks, [{"stream": s, "fence": 5, "lease_until": now + HOUR} for s in busy])
    await _insert(
        resources,
        limits,
        [
            {"key": "held", "until": now + HOUR, "reason": LIMIT, "updated_at": now},
            {"key": "free-0", "until": now - HOUR, "reason": "over", "updated_at": now},
        ],
    )
    await change_jobs(resources, [job_id for job_id, case in zip(job_ids, cases, strict=True) if case[2]], paused=True)
    gone = [job_id for job_id, case in zip(job_ids, cases, strict=True) if case[0]]
    async with resources.database.writing() as connection:
        await connection.execute(delete(jobs).where(jobs.c.job_id.in_(gone)))

    if is_named:
        leases = await resources.leasing.claim(ids, worker="a", ttl=TTL)
    else:
        leases = await resources.leasing.claim_next(1000, worker="a", ttl=TTL)

    started, found = {lease.execution_id for lease in leases}, await _by_id(resources)
    cases += [(False, False, False, "schedule", False), (False, False, False, "schedule", True)]
    for execution_id, job, case in zip(ids, rows + twins, cases, strict=True):
        is_deleted, is_limited, is_paused, trigger, is_busy = case
        row = found[execution_id]
        obstacle = find_obstacle(
            is_deleted=is_deleted, is_limited=is_limited, is_paused=is_paused, trigger=trigger, is_busy=is_busy
        )
        assert (obstacle is None) == (execution_id in started)
        if obstacle is None:
            assert row["state"] == State.RUNNING
            continue
        reason = obstacle.reason.format(stream=_stream(job), limit=LIMIT)
        assert (row["state"], row["hold"], row["reason"]) == (obstacle.state, obstacle.hold, reason)
        assert (row["completed_at"] is not None) == (obstacle.state in ENDED)
        assert row["not_before"] == (pytest.approx(now + HOUR, abs=SOON) if obstacle.is_timed else None)


@pytest.mark.spec("V2")
async def test_a_queued_execution_has_the_rank_of_the_rule(resources: Resources) -> None:
    """From firing to the lease: its rank, whether it has been queued for long, and how long it has waited."""
    ages, now = (0.5 * HOUR, 1.5 * HOUR, 30 * HOUR), datetime.now(UTC)
    cases = dict[str, tuple[Priority, timedelta]]()
    for priority in Priority:
        fired = await given_queued(resources, len(ages), priority=priority, put=False)
        cases |= {execution_id: (priority, age) for execution_id, age in zip(fired, ages, strict=True)}
    for execution_id, row in (await _by_id(resources)).items():
        priority, age = cases[execution_id]
        assert row["queue_rank"] == pytest.approx(rank_of(priority, now, PATIENCE), abs=SOON)
        rank = rank_of(priority, now - age, PATIENCE)
        await change_executions(resources, [execution_id], queue_rank=rank, created_at=now - 100 * HOUR)

    old = await resources.upkeep.queued(after=FIRST_PLACE, older_than=HOUR, limit=1000)
    leases = await _all_leases(resources)

    in_order = sorted(cases, key=lambda i: rank_of(cases[i][0], now - cases[i][1], PATIENCE))
    assert [one.queued.execution_id for one in old] == [i for i in in_order if cases[i][1] > HOUR]
    assert [lease.execution_id for lease in leases] == in_order
    for lease in leases:
        _, age = cases[lease.execution_id]
        assert lease.waited == pytest.approx(age.total_seconds(), abs=SOON.total_seconds())


OUTCOMES: Sequence[Outcome] = (
    Done(kept=Kept(new=1)),
    Snooze(after=2 * HOUR, reason="flood wait"),
    Snooze(after=3 * HOUR, reason="flood wait", key="telegram:a"),
    Retry(after=4 * HOUR, error="no route"),
    Dead(error="gone for good"),
    Cancelled(reason="the job was deleted"),
    Released(),
    Released(reason="later"),
)


@pytest.mark.spec("T4", "G5")
async def test_an_execution_becomes_what_the_rule_makes_of_its_outcome(resources: Resources) -> None:
    cases = list(product(OUTCOMES, (None, "cancelled by operator"), Priority))
    for priority in Priority:
        await given_queued(resources, len(cases) // 3, priority=priority, put=False)
    held: dict[Priority, list[Lease]] = {priority: [] for priority in Priority}
    for lease in await _all_leases(resources):
        held[lease.job.priority].append(lease)
    chosen = [(held[priority].pop(), outcome, why) for outcome, why, priority in cases]
    await change_executions(resources, [x.execution_id for x, _, why in chosen if why], cancel_requested=cases[-1][1])
    now = datetime.now(UTC)

    settled = await resources.leasing.settle([Settlement(lease=x, outcome=o, duration=0.5) for x, o, _ in chosen])

    assert all(settled.mine)
    found = await _by_id(resources)
    for lease, outcome, why in chosen:
        row, follows = found[lease.execution_id], consequence_of(outcome, why)
        assert row["state"] == follows.state
        assert (row["attempt"], row["reason"]) == (lease.attempt - follows.refund, follows.reason)
        assert row["error_message"] == follows.error
        assert [entry["error"] for entry in row["error_details"] or ()] == ([follows.error] if follows.error else [])
        assert (row["completed_at"] is not None) == (follows.state in ENDED)
        assert row["not_before"] == (None if follows.after is None else pytest.approx(now + follows.after, abs=SOON))
        if follows.state is State.QUEUED:
            assert row["queue_rank"] == pytest.approx(rank_of(lease.job.priority, now, PATIENCE), abs=SOON)


@pytest.mark.spec("E1")
async def test_an_execution_is_rescued_as_the_rule_says(resources: Resources) -> None:
    cases = list(product(range(5), (False, True), (None, "cancelled by operator")))
    await given_queued(resources, len(cases), put=False)
    leases = await _all_leases(resources)
    await expire(resources, *leases)
    now = datetime.now(UTC)
    for lease, (before, has_progress, why) in zip(leases, cases, strict=True):
        await change_executions(resources, [lease.execution_id], rescues=before, cancel_requested=why)
        async with resources.database.writing() as connection:
            moved = now + HOUR if has_progress else now - HOUR
            this = watermarks.update().where(watermarks.c.stream == lease.job.stream)
            await connection.execute(this.values(moved_at=moved))

    queued = {one.execution_id for one in await rescue(resources, rescue_max=3)}

    found = await _by_id(resources)
    for lease, (before, has_progress, why) in zip(leases, cases, strict=True):
        row, rescues = found[lease.execution_id], count_rescues(before, has_progress=has_progress)
        expected = rescue_of(worker="a", rescues=rescues, cancel_requested=why, rescue_max=3)
        assert (row["state"], row["reason"], row["rescues"]) == (expected.state, expected.reason, rescues)
        assert (row["attempt"], row["error_message"]) == (lease.attempt - 1, expected.error)
        assert (lease.execution_id in queued) == (expected.state is State.QUEUED)
        if expected.state is State.QUEUED:
            assert row["queue_rank"] == pytest.approx(rank_of(Priority.NORMAL, now, PATIENCE), abs=SOON)


_HOURS = st.one_of(st.none(), st.integers(1, 5))
_EXECUTION = st.tuples(
    st.sampled_from((*Hold, *Hold, None)), st.sampled_from(("schedule", "schedule", "manual")), st.booleans()
)
_JOB = st.fixed_dictionaries(
    {
        "paused": st.booleans(),
        "is_busy": st.booleans() | st.just(False),
        "last_run": _HOURS,
        "needed": st.one_of(st.just("nothing"), _HOURS),
        "executions": st.lists(_EXECUTION, min_size=1, max_size=4),
    }
)


@pytest.mark.spec("V7", "E7")
@a_few
@given(drawn=st.lists(_JOB, min_size=30, max_size=60))
async def test_a_held_execution_goes_on_as_the_rule_says(resources: Resources, drawn: list[dict[str, Any]]) -> None:
    now = datetime.now(UTC)
    made = [_Drawn(one, now) for one in drawn]
    async with resources.database.writing() as connection:
        for table in (job_executions, job_dependencies, watermarks, jobs):
            await connection.execute(delete(table))
    await _insert(resources, jobs, [row for one in made for row in one.jobs])
    await _insert(resources, job_dependencies, [row for one in made for row in one.dependencies])
    await _insert(resources, watermarks, [row for one in made for row in one.leases])
    await _insert(resources, job_executions, [row for one in made for row in one.executions])

    woken = {one.execution_id for one in await resources.upkeep.wake(limit=1000)}

    found = await _by_id(resources)
    for one in made:
        for row, unfinished in zip(one.executions, one.unfinished, strict=True):
            after, expected = found[row["execution_id"]], one.expected(row, unfinished, now)
            assert (row["execution_id"] in woken) == (expected is State.QUEUED)
            if expected is None:
                assert (after["state"], after["hold"]) == (row["state"], row["hold"])
                continue
            assert (after["state"], after["hold"]) == (expected, None)
            if expected is State.QUEUED:
                assert after["queue_rank"] == pytest.approx(rank_of(row["priority"], now, PATIENCE), abs=SOON)
                assert after["not_before"] is None
            else:
                assert after["not_before"] == row["not_before"]


class _Drawn:
    """A job with unfinished executions, as rows and as values of the rule."""

    def __init__(self, drawn: dict[str, Any], now: datetime) -> None:
        def ago(hours: int | None) -> datetime | None:
            return None if hours is None else now - hours * HOUR

        mine, needed = _job(new_id()), _job(new_id())
        last_run, last_success = ago(drawn["last_run"]), None
        depends = drawn["needed"] != "nothing"
        if depends:
            last_success = ago(drawn["needed"])
        self.is_paused, self.is_busy = drawn["paused"], drawn["is_busy"]
        usual = {"paused": False, "last_run": None, "last_success": None}
        self.jobs = [
            {**usual, **mine, "paused": self.is_paused, "last_run": last_run},
            {**usual, **needed, "last_success": last_success},
        ]
        self.dependencies = [{"job_id": mine["job_id"], "depends_on": needed["job_id"]}] if depends else []
        self.leases = [{"stream": _stream(mine), "fence": 1, "lease_until": now + HOUR}] if self.is_busy else []
        self.executions, self.unfinished = list[dict[str, Any]](), list[Unfinished]()
        for place, (hold, trigger, is_early) in enumerate(drawn["executions"]):
            # A quarter of an hour off the full ones, so that no two moments are the same.
            scheduled_for = now - (place + 0.25) * HOUR
            not_before = now + HOUR if is_early else None
            state = State.QUEUED if hold is None and not is_early else State.WAITING
            self.executions.append(
                {
                    "execution_id": new_id(),
                    "job_id": mine["job_id"],
                    "job_name": mine["name"],
                    "scheduled_for": scheduled_for,
                    "state": state,
                    "priority": 1 + place % 3,
                    "trigger": trigger,
                    "hold": hold,
                    "not_before": not_before,
                    "queue_rank": now if state is State.QUEUED else None,
                }
            )
            self.unfinished.append(
                Unfinished(
                    scheduled_for=scheduled_for,
                    state=state,
                    trigger=trigger,
                    hold=hold,
                    is_unmet=depends and is_unmet(last_success, last_run, scheduled_for),
                )
            )

    def expected(self, row: dict[str, Any], execution: Unfinished, now: datetime) -> State | None:
        """What a wake makes of one of the executions, None if it stays as it is."""
        goes_on = None if self.is_busy else next_held(self.unfinished, is_paused=self.is_paused)
        if execution is goes_on or is_freed(execution, is_paused=self.is_paused):
            return wakes_to(row["not_before"], now)
        return None


@pytest.mark.parametrize("stream", ["test:harbour", "test:a:b", "a:", "harbour"])
async def test_the_end_of_an_execution_wakes_the_next_job_of_its_stream(resources: Resources, stream: str) -> None:
    """A job that has the stream by its source and target, one that names it, and one that only looks like it."""
    source, target = split_stream(stream)
    names = [{"stream": stream}, {"source": source or "y", "target": target}, {"source": stream, "target": stream}]
    first, *others = [
        await given_job(resources, **{"source": "x", **columns}) for columns in [{"stream": stream}, *names]
    ]
    await given_executions(resources, [first], put=False)
    [lease] = await take(resources)
    held = await given_executions(resources, others, state=State.WAITING, hold=Hold.OVERLAP, put=False)
    woken = []
    for _ in others:
        settled = await resources.leasing.settle([Settlement(lease=lease, outcome=Done(), duration=0.5)])
        woken += [one.execution_id for one in settled.woken]
        if not settled.woken:
            break
        [lease] = await take(resources)
    shares = [stream_name(c.get("stream"), c.get("source", "x"), c.get("target", "")) == stream for c in names]
    assert set(woken) == {execution_id for execution_id, does in zip(held, shares, strict=True) if does}


# Budgets with the longest time between two runs of their jobs.
_BUDGETS: dict[str, tuple[dict[str, Any], timedelta]] = {
    "own": ({"requests": 1, "max_delay_seconds": 5 * 3600.0, "sources": 1000}, 5 * HOUR),
    "minute": ({"requests": 10, "sources": 3000}, timedelta(seconds=4 * 3000 * 6.06)),
    "week": ({"requests": 2000, "period": "week", "sources": 30}, timedelta(seconds=4 * 30 * 604_801.8 / 2000)),
    "empty": ({"requests": 1}, timedelta()),
}
_TIMED = st.fixed_dictionaries(
    {
        "source": st.sampled_from(("telegram", "web")),
        "schedule_type": st.sampled_from(TIMED),
        "interval_hours": st.integers(1, 30),
        "max_delay_hours": st.one_of(st.none(), st.integers(1, 30)),
        "budget": st.one_of(st.none(), st.sampled_from(list(_BUDGETS))),
        "frequency": st.sampled_from(Frequency),
        "planned_hours": _HOURS,
        "next_hours": _HOURS,
        "checked_hours": st.one_of(st.none(), st.integers(0, 100)),
        "created_hours": st.integers(0, 100),
        "polled_hours": st.one_of(st.none(), st.integers(0, 40)),
        "paused": st.sampled_from((False, False, False, True)),
    }
)


@a_few
@given(drawn=st.lists(_TIMED, min_size=30, max_size=60))
@pytest.mark.thorough
async def test_a_job_is_stale_when_the_rule_says_so(resources: Resources, drawn: list[dict[str, Any]]) -> None:
    now, max_age = datetime.now(UTC), 24 * HOUR
    async with resources.database.writing() as connection:
        for table in (activity, watermarks, jobs, budgets):
            await connection.execute(delete(table))
    for name, (row, _) in _BUDGETS.items():
        await _insert(resources, budgets, [{"name": name, "interval_seconds": 1.0, **row}])
    rows = [_timed_job(one, now) for one in drawn]
    await _insert(resources, jobs, rows)
    # A quarter of an hour more, so that no age is just as long as it may be: one and a half times an interval, for one.
    ages = [(one["created_hours"] if one["checked_hours"] is None else one["checked_hours"]) + 0.25 for one in drawn]
    checked = [(row, age) for row, age, one in zip(rows, ages, drawn, strict=True) if one["checked_hours"] is not None]
    await _insert(
        resources, watermarks, [{"stream": _stream(row), "last_checked_at": now - age * HOUR} for row, age in checked]
    )

    polled = {row["job_id"]: one["polled_hours"] for row, one in zip(rows, drawn, strict=True)}
    polls = [{"job_id": job_id, "polled_at": now - n * HOUR} for job_id, n in polled.items() if n is not None]
    await _insert(resources, activity, polls)
    patience = {"telegram": max_age}
    staleness = Staleness(resources.database, resources.clock, find_patience=lambda: patience)

    stale, cells = await staleness.page(limit=1000), await staleness.worst(limit=1000)

    due = [(row, age) for row, age in zip(rows, ages, strict=True) if not row["paused"]]
    expected = {
        row["job_id"]
        for row, age in due
        if is_stale(age * HOUR, interval=_interval(row), catches_up=patience.get(row["source"], timedelta()))
    }
    assert {job.job_id for job in stale} == expected
    were_checked = {row["job_id"] for row, _ in checked}
    levels = {row["job_id"]: FreshnessLevel.OFF for row in rows}
    for row, age in due:
        interval = _interval(row)
        levels[row["job_id"]] = freshness_level(
            age * HOUR,
            usual=_usual(row, polled[row["job_id"]], interval, now),
            patience=patience_of(interval, patience.get(row["source"], timedelta())),
            was_checked=row["job_id"] in were_checked,
        )
    assert {cell.job_id: cell.level for cell in cells} == levels
    [kinds, tags] = await staleness.by_level()
    found = Counter({(kind.name, level): count for kind in kinds for level, count in kind.levels.items()})
    assert found == Counter((row["source"], levels[row["job_id"]]) for row in rows)
    assert tags == []


def _usual(row: dict[str, Any], polled: int | None, interval: timedelta | None, now: datetime) -> timedelta | None:
    if row["schedule_type"] is not ScheduleType.ADAPTIVE:
        return interval
    return usual_pause(interval, None if polled is None else now - polled * HOUR, row["next_run"])


def _timed_job(drawn: dict[str, Any], now: datetime) -> dict[str, Any]:
    kind, planned, following = drawn["schedule_type"], drawn["planned_hours"], drawn["next_hours"]
    return {
        **_job(new_id()),
        "source": drawn["source"],
        "paused": drawn["paused"],
        "schedule_type": kind,
        "interval_seconds": drawn["interval_hours"] * 3600.0 if kind is ScheduleType.INTERVAL else None,
        "frequency": drawn["frequency"] if kind is ScheduleType.CALENDAR else None,
        "cron_expression": "0 * * * *" if kind is ScheduleType.CRON else None,
        "budget": drawn["budget"],
        "max_delay_seconds": None if drawn["max_delay_hours"] is None else drawn["max_delay_hours"] * 3600.0,
        "planned_until": None if planned is None else now - planned * HOUR,
        "next_run": None if following is None else now + following * HOUR,
        "created_at": now - (drawn["created_hours"] + 0.5) * HOUR,
    }


def _interval(row: dict[str, Any]) -> timedelta | None:
    when = When(
        schedule_type=row["schedule_type"], interval_seconds=row["interval_seconds"], frequency=row["frequency"]
    )
    own, budget = row["max_delay_seconds"], row["budget"]
    by_budget = None if budget is None else _BUDGETS[budget][1]
    max_delay = by_budget if own is None else timedelta(seconds=own)
    return usual_interval(when, row["planned_until"], row["next_run"], max_delay)


def test_every_frequency_has_an_interval() -> None:
    assert set(INTERVALS) == set(Frequency)


@given(source=st.text(st.characters(exclude_characters=":")), target=st.text())
@pytest.mark.thorough
def test_a_default_stream_is_split_into_its_parts(source: str, target: str) -> None:
    assert split_stream(stream_name(None, source, target)) == (source, target)


def _job(job_id: str) -> dict[str, Any]:
    name = f"job-{job_id}"
    return {"job_id": job_id, "name": name, "source": "test", "target": name, "schedule_type": "event"}


def _stream(job: dict[str, Any]) -> str:
    return stream_name(job.get("stream"), job["source"], job["target"])


async def _insert(resources: Resources, table: Any, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        async with resources.database.writing() as connection:
            await connection.execute(insert(table), list(rows))


async def _by_id(resources: Resources) -> dict[str, dict[str, Any]]:
    return {row["execution_id"]: row for row in await rows_of(resources, job_executions)}


async def _all_leases(resources: Resources) -> list[Lease]:
    return await resources.leasing.claim_next(1000, worker="a", ttl=TTL)
