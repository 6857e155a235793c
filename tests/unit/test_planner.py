"""The planner: which instants fire, which are coalesced or skipped, and when to look again."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.model.job import NEVER, CatchUp, Frequency, Overlap, Policy
from floodmark.rules.planner import MOST_COUNTED, Fire, FireAction, Plan, plan
from floodmark.triggers import Trigger, between
from floodmark.triggers.calendar import calendar
from floodmark.triggers.cron import cron
from floodmark.triggers.event import EventTrigger
from floodmark.triggers.interval import Interval
from floodmark.triggers.once import Once

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE, TICK = timedelta(minutes=1), timedelta(microseconds=1)
EVERY_MINUTE = Interval(anchor=NOON, step=MINUTE)

pytestmark = pytest.mark.spec("G1", "E7")


def after(minutes: float) -> datetime:
    return NOON + minutes * MINUTE


def planned(policy: Policy, *, minutes: float, active: int = 0, limit: int = 100) -> Plan:
    """One step, `minutes` after noon, for a job that runs every minute and was planned until noon."""
    return plan(EVERY_MINUTE, policy, planned_until=NOON, now=after(minutes), active=active, limit=limit)


def actions(fires: tuple[Fire, ...]) -> list[tuple[float, FireAction]]:
    return [((fire.instant - NOON) / MINUTE, fire.action) for fire in fires]


# Examples


def test_nothing_is_due_before_its_time() -> None:
    assert planned(Policy(), minutes=0.9) == Plan(fires=(), next_run=after(1), planned_until=after(0.9))


def test_an_instant_fires_when_it_is_reached() -> None:
    """To the microsecond, and not a second time by the step after it."""
    done = planned(Policy(), minutes=1)
    assert done == Plan(fires=(Fire(instant=after(1)),), next_run=after(2), planned_until=after(1))
    again = plan(EVERY_MINUTE, Policy(), planned_until=done.planned_until, now=after(1))
    assert again == Plan(fires=(), next_run=after(2), planned_until=after(1))


def test_the_newest_stands_for_those_that_came_due_with_it() -> None:
    [fire] = planned(Policy(), minutes=4.5).fires
    assert fire == Fire(instant=after(4), coalesced=3, reason="stands for 3 earlier instants")


def test_without_coalescing_each_fires() -> None:
    policy = Policy(coalesce=False, max_instances=9)
    assert actions(planned(policy, minutes=3.5).fires) == [
        (1, FireAction.RUN),
        (2, FireAction.RUN),
        (3, FireAction.RUN),
    ]


def test_an_instant_is_in_time_to_the_end_of_its_grace() -> None:
    policy = Policy(catch_up=CatchUp.NONE, misfire_grace=5 * MINUTE)
    once = Once(NOON)
    in_time = plan(once, policy, planned_until=after(-1), now=after(5))
    late = plan(once, policy, planned_until=after(-1), now=after(5) + TICK)
    assert actions(in_time.fires) == [(0, FireAction.RUN)]
    assert actions(late.fires) == [(0, FireAction.SKIP)]


def test_missed_instants_are_recorded_as_one_skip_with_their_lateness() -> None:
    policy = Policy(catch_up=CatchUp.NONE, misfire_grace=5 * MINUTE)
    trigger = cron("0 * * * *", "UTC")
    skip, *rest = plan(trigger, policy, planned_until=NOON, now=NOON + timedelta(hours=4, minutes=55)).fires
    reason = "missed by 55 min (grace 5 min); stands for 3 earlier instants"
    assert skip == Fire(instant=NOON + timedelta(hours=4), action=FireAction.SKIP, coalesced=3, reason=reason)
    assert rest == []


def test_what_was_missed_is_made_up_for_once() -> None:
    once = Once(NOON)
    [fire] = plan(once, Policy(), planned_until=after(-1), now=after(125)).fires
    assert fire == Fire(instant=NOON, reason="missed by 2 h 5 min (grace 5 min)")


def test_an_instant_in_time_stands_for_the_missed_ones() -> None:
    [fire] = planned(Policy(misfire_grace=2 * MINUTE), minutes=42.5).fires
    assert fire == Fire(instant=after(42), coalesced=41, reason="stands for 41 earlier instants")


def test_missed_instants_can_all_be_made_up_for_oldest_first() -> None:
    policy = Policy(catch_up=CatchUp.ALL, misfire_grace=2 * MINUTE, overlap=Overlap.QUEUE, max_instances=9)
    done = planned(policy, minutes=6)
    assert actions(done.fires) == [
        (1, FireAction.RUN),
        (2, FireAction.RUN),
        (3, FireAction.RUN),
        (6, FireAction.RUN),
    ]
    assert done.fires[0].reason == "missed by 5 min (grace 2 min)"
    assert done.fires[-1].coalesced == 2


def test_what_the_limit_leaves_over_comes_with_the_next_step() -> None:
    policy = Policy(coalesce=False, catch_up=CatchUp.ALL, max_instances=99)
    first = planned(policy, minutes=10, limit=4)
    assert (first.next_run, first.planned_until) == (after(5), after(4))
    second = plan(EVERY_MINUTE, policy, planned_until=first.planned_until, now=after(10), limit=6)
    assert (second.next_run, second.planned_until) == (after(11), after(10))
    assert [fire.instant for fire in first.fires + second.fires] == [after(n) for n in range(1, 11)]


def test_a_plan_that_is_just_full_is_still_done() -> None:
    policy = Policy(coalesce=False, max_instances=99)
    done = planned(policy, minutes=3.5, limit=3)
    assert (done.next_run, done.planned_until) == (after(4), after(3.5))


@pytest.mark.parametrize(("overlap", "action"), [(Overlap.SKIP, FireAction.SKIP), (Overlap.QUEUE, FireAction.QUEUE)])
def test_an_unfinished_execution_holds_the_next_one_up(overlap: Overlap, action: FireAction) -> None:
    [fire] = planned(Policy(overlap=overlap), minutes=1, active=1).fires
    assert fire == Fire(instant=after(1), action=action, reason="overlap: 1 execution unfinished")


def test_each_run_of_a_plan_counts_against_the_next() -> None:
    policy = Policy(coalesce=False, max_instances=2)
    fires = planned(policy, minutes=3, active=1).fires
    assert actions(fires) == [(1, FireAction.RUN), (2, FireAction.SKIP), (3, FireAction.SKIP)]
    assert fires[2].reason == "overlap: 2 executions unfinished"


def test_a_waiting_execution_is_unfinished_too() -> None:
    fires = planned(Policy(coalesce=False, overlap=Overlap.QUEUE), minutes=3).fires
    assert actions(fires) == [(1, FireAction.RUN), (2, FireAction.QUEUE), (3, FireAction.QUEUE)]
    assert fires[2].reason == "overlap: 2 executions unfinished"


def test_a_new_instant_replaces_the_unfinished_execution() -> None:
    [fire] = planned(Policy(overlap=Overlap.REPLACE), minutes=1, active=1).fires
    assert fire == Fire(instant=after(1), action=FireAction.REPLACE, reason="overlap: 1 execution unfinished")


@pytest.mark.parametrize(("active", "action"), [(0, FireAction.RUN), (1, FireAction.REPLACE)])
def test_of_several_that_would_replace_each_other_only_the_newest_runs(active: int, action: FireAction) -> None:
    policy = Policy(overlap=Overlap.REPLACE, coalesce=False)
    fires = planned(policy, minutes=3, active=active).fires
    assert actions(fires) == [(1, FireAction.SKIP), (2, FireAction.SKIP), (3, action)]
    assert fires[0].reason == "replaced by a newer instant"


def test_nothing_is_replaced_while_there_is_room() -> None:
    policy = Policy(overlap=Overlap.REPLACE, coalesce=False, max_instances=3)
    assert actions(planned(policy, minutes=2, active=1).fires) == [(1, FireAction.RUN), (2, FireAction.RUN)]


def test_a_skipped_instant_replaces_nothing() -> None:
    policy = Policy(overlap=Overlap.REPLACE, catch_up=CatchUp.NONE)
    [fire] = plan(Once(NOON), policy, planned_until=after(-1), now=after(60), active=5).fires
    assert fire.action is FireAction.SKIP
    assert fire.reason == "missed by 1 h (grace 5 min)"


def test_jitter_is_the_same_on_every_machine_and_after_every_restart() -> None:
    policy = Policy(jitter=10 * MINUTE)
    [fire] = plan(EVERY_MINUTE, policy, planned_until=NOON, now=after(1), seed="job-1").fires
    assert fire.not_before == datetime(2026, 6, 1, 12, 1, 53, 780210, tzinfo=UTC)


def test_jitter_that_is_over_keeps_nobody_waiting() -> None:
    policy = Policy(jitter=MINUTE, misfire_grace=timedelta(hours=9))
    [fire] = plan(Once(NOON), policy, planned_until=after(-1), now=after(1)).fires
    assert fire.not_before is None


def test_a_skipped_instant_has_no_jitter() -> None:
    [fire] = planned(Policy(jitter=MINUTE * 9), minutes=1, active=1).fires
    assert (fire.action, fire.not_before) == (FireAction.SKIP, None)


def test_a_clock_set_back_fires_nothing_twice() -> None:
    done = plan(EVERY_MINUTE, Policy(), planned_until=after(10), now=after(3))
    assert done == Plan(fires=(), next_run=after(11), planned_until=after(10))


@pytest.mark.parametrize("trigger", [EventTrigger(), Once(after(-5))])
def test_a_job_that_will_not_fire_again_is_planned_for_never(trigger: Trigger) -> None:
    done = plan(trigger, Policy(), planned_until=NOON, now=after(1))
    assert done == Plan(fires=(), next_run=NEVER, planned_until=after(1))


class Counted:
    """A trigger that counts how often it is asked."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger, self.asked = trigger, 0

    def after(self, instant: datetime) -> datetime | None:
        self.asked += 1
        return self.trigger.after(instant)

    def latest(self, until: datetime) -> datetime | None:
        self.asked += 1
        return self.trigger.latest(until)


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize(
    "trigger", [Interval(anchor=NOON, step=timedelta(seconds=1)), cron("* * * * *", "Europe/Berlin")]
)
def test_years_of_missed_instants_cost_no_more_than_the_cap(
    trigger: Trigger, catch_up: CatchUp, coalesce: bool
) -> None:
    counted = Counted(trigger)
    policy = Policy(catch_up=catch_up, coalesce=coalesce, misfire_grace=timedelta(days=30))
    done = plan(counted, policy, planned_until=NOON, now=NOON + timedelta(days=5000), limit=100)
    assert len(done.fires) <= 100
    assert counted.asked <= 2 * MOST_COUNTED + 2 * 100 + 10
    assert max(fire.coalesced for fire in done.fires) in (0, MOST_COUNTED)


def test_a_number_too_large_to_count_is_named_so() -> None:
    [fire] = planned(Policy(), minutes=5000).fires
    assert fire.coalesced == MOST_COUNTED
    assert fire.reason == "stands for 1000 or more earlier instants"


# Properties

TRIGGERS = st.one_of(
    st.builds(
        Interval,
        anchor=st.integers(-500, 500).map(after),
        step=st.timedeltas(timedelta(seconds=1), timedelta(hours=30)),
    ),
    st.builds(
        cron,
        st.sampled_from(["*/7 * * * *", "0 * * * *", "30 2 * * *", "15,45 1-3 * * *", "0 */5 * * MON", "0 0 29 2 *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"]),
    ),
    st.just(calendar(Frequency.DAILY, {"hour": 2, "minute": 30}, "Europe/Berlin")),
    st.builds(Once, st.integers(-9, 999).map(after)),
    st.just(EventTrigger()),
)
POLICIES = st.builds(
    Policy,
    overlap=st.sampled_from(Overlap),
    max_instances=st.integers(1, 4),
    coalesce=st.booleans(),
    misfire_grace=st.timedeltas(timedelta(), timedelta(hours=3)) | st.just(timedelta.max),
    catch_up=st.sampled_from(CatchUp),
    jitter=st.just(timedelta()) | st.timedeltas(timedelta(), timedelta(hours=1)),
)
# Before the clocks change in Berlin, Lord Howe and Santiago, so that long gaps cross it.
STARTS = st.sampled_from([NOON, datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)])
# Mostly the next moment, sometimes an outage: in multiples of the trigger's own pace.
GAPS = st.lists(st.floats(0, 3) | st.floats(0, 60), min_size=1, max_size=8)


def pace(trigger: Trigger, start: datetime) -> timedelta:
    """The time between two instants, so that steps neither miss everything nor last for ever."""
    one, two, *_ = [*between(trigger, start, NEVER, 2), start, start + MINUTE]
    return min(max(two - one, timedelta(seconds=1)), timedelta(days=30))


def steps(
    trigger: Trigger, policy: Policy, start: datetime, gaps: list[float], *, limit: int, active: int = 0
) -> Iterator[tuple[datetime, datetime, Plan]]:
    """What a scheduler does, waking up at odd times: (planned until, now, the plan)."""
    planned_until = now = start
    for gap in gaps:
        now += pace(trigger, start) * gap
        done = plan(trigger, policy, planned_until=planned_until, now=now, active=active, limit=limit, seed="job")
        yield planned_until, now, done
        planned_until = done.planned_until


@settings(max_examples=150, deadline=None)
@given(trigger=TRIGGERS, policy=POLICIES, start=STARTS, gaps=GAPS, limit=st.integers(1, 7), active=st.integers(0, 5))
def test_every_instant_is_accounted_for_exactly_once(
    *, trigger: Trigger, policy: Policy, start: datetime, gaps: list[float], limit: int, active: int
) -> None:
    """As fired, as coalesced into a later one, or as skipped; what is left is where the next step begins."""
    for before, now, done in steps(trigger, policy, start, gaps, limit=limit, active=active):
        assert len(done.fires) <= limit
        assert done.planned_until >= before
        assert done.next_run == (trigger.after(done.planned_until) or NEVER)
        assert done.planned_until >= now or (done.next_run <= now and len(done.fires) == limit)

        bounds = [before, *(fire.instant for fire in done.fires)]
        for (earlier, instant), fire in zip(pairwise(bounds), done.fires, strict=True):
            dealt_with = between(trigger, earlier, instant, 9999)
            assert dealt_with[-1] == instant <= now
            assert fire.coalesced == len(dealt_with) - 1
        assert between(trigger, bounds[-1], done.planned_until, 1) == []


@settings(max_examples=80, deadline=None)
@given(TRIGGERS, POLICIES, STARTS, GAPS, st.integers(1, 7))
def test_without_coalescing_and_with_full_catch_up_every_instant_fires_in_order(
    trigger: Trigger, policy: Policy, start: datetime, gaps: list[float], limit: int
) -> None:
    eager = Policy(
        coalesce=False,
        catch_up=CatchUp.ALL,
        max_instances=9999,
        misfire_grace=policy.misfire_grace,
        overlap=policy.overlap,
    )
    done = list(steps(trigger, eager, start, gaps, limit=limit))
    # However small the limit, steps without any gap catch up in the end.
    _, now, last = done[-1]
    while last.next_run <= now:
        last = plan(trigger, eager, planned_until=last.planned_until, now=now, limit=limit)
        done.append((now, now, last))

    fires = [fire for _, _, each in done for fire in each.fires]
    assert [fire.instant for fire in fires] == between(trigger, start, now, 9999)
    assert {fire.action for fire in fires} <= {FireAction.RUN}


def reading(trigger: Trigger, policy: Policy, start: datetime, now: datetime) -> list[tuple[datetime, FireAction]]:
    """The table at the head of the planner, read by listing everything."""
    due = between(trigger, start, now, 9999)
    missed = [at for at in due if now - at > policy.misfire_grace]
    in_time = [at for at in due if now - at <= policy.misfire_grace]
    fires = [(at, FireAction.RUN) for at in (in_time[-1:] if policy.coalesce else in_time)]
    match policy.catch_up:
        case CatchUp.ALL:
            return [(at, FireAction.RUN) for at in missed] + fires
        case CatchUp.NONE:
            return [(at, FireAction.SKIP) for at in missed[-1:]] + fires
        case CatchUp.ONE:
            return fires or [(at, FireAction.RUN) for at in missed[-1:]]


@settings(max_examples=150, deadline=None)
@given(TRIGGERS, POLICIES, STARTS, st.floats(0, 60))
def test_the_planner_reads_its_table_as_it_is_written(
    trigger: Trigger, policy: Policy, start: datetime, gap: float
) -> None:
    roomy = Policy(
        coalesce=policy.coalesce, catch_up=policy.catch_up, misfire_grace=policy.misfire_grace, max_instances=9999
    )
    now = start + pace(trigger, start) * gap
    done = plan(trigger, roomy, planned_until=start, now=now, limit=9999)
    assert [(fire.instant, fire.action) for fire in done.fires] == reading(trigger, roomy, start, now)


@settings(max_examples=80, deadline=None)
@given(POLICIES, st.floats(0, 60), st.integers(0, 5), st.integers(1, 50))
def test_no_more_executions_than_allowed_are_ever_unfinished(
    policy: Policy, minutes: float, active: int, limit: int
) -> None:
    unfinished = active
    for fire in planned(policy, minutes=minutes, active=active, limit=limit).fires:
        if fire.action is FireAction.REPLACE:
            unfinished = 1
        if fire.action is FireAction.RUN:
            unfinished += 1
            assert unfinished <= policy.max_instances
        assert fire.reason or fire.action is FireAction.RUN


@settings(max_examples=80, deadline=None)
@given(TRIGGERS, POLICIES, STARTS, GAPS, st.integers(1, 7))
def test_the_same_question_has_the_same_answer(
    trigger: Trigger, policy: Policy, start: datetime, gaps: list[float], limit: int
) -> None:
    first, second = (list(steps(trigger, policy, start, gaps, limit=limit)) for _ in range(2))
    assert first == second


@settings(max_examples=80, deadline=None)
@given(st.timedeltas(timedelta(), timedelta(days=2)), st.text(max_size=20))
def test_jitter_stays_within_its_bounds(jitter: timedelta, seed: str) -> None:
    [fire] = plan(Once(NOON), Policy(jitter=jitter), planned_until=after(-1), now=NOON, seed=seed).fires
    assert fire.not_before is None or NOON < fire.not_before <= NOON + jitter


def test_jitter_spreads_jobs_that_share_an_instant() -> None:
    policy = Policy(jitter=100 * MINUTE)
    waits = {
        plan(Once(NOON), policy, planned_until=after(-1), now=NOON, seed=f"job-{n}").fires[0].not_before
        for n in range(50)
    }
    assert len(waits) == 50
