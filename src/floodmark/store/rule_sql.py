"""The rules of `rules/` as SQL, with values and texts from there. `tests/system/test_rules_in_sql.py` compares both.

In these fragments `e` is an execution and `j` its job.
"""

from collections.abc import Iterable, Sequence
from string import Formatter

from sqlalchemy import ColumnElement, FromClause, func

from floodmark.model.execution import State
from floodmark.model.job import SCHEDULER_VERSION, ScheduleType
from floodmark.rules.planner import REPLACED
from floodmark.rules.starting import FORCED

from .tables import jobs


def quote(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def list_states(states: Iterable[State]) -> str:
    """Return states as the right side of `IN`."""
    return f"({', '.join(map(quote, states))})"


def fill_text(template: str, **columns: str) -> str:
    """Return an SQL expression for a text whose `{names}` are filled with columns."""
    parts: list[str] = []
    for text, name, _, _ in Formatter().parse(template):
        parts += [quote(text)] if text else []
        parts += [columns[name]] if name else []
    return " || ".join(parts)


def choose(conditions: Sequence[str], values: Iterable[str]) -> str:
    """Return a `CASE` with the value of the first condition that holds."""
    return f"CASE {' '.join(f'WHEN {c} THEN {v}' for c, v in zip(conditions, values, strict=True))} END"


def stream_of(job: FromClause) -> ColumnElement[str]:
    """Return `streams.stream_name` of a job."""
    return func.coalesce(job.c.stream, job.c.source + ":" + job.c.target)


JOB_STREAM = stream_of(jobs)
STREAM = str(stream_of(jobs.alias("j")).compile(compile_kwargs={"literal_binds": True}))


def postgres_rank(now: str, *, delays: str, priority: str = "e.priority") -> str:
    """Return `rank.rank_of` on PostgreSQL. `delays` is the argument that `rank.rank_delays` makes."""
    return f"{now} + ({delays}::interval[])[{priority}]"


# Whether an execution that does not run was offered since it was last queued: it has a worker, but no lease of it.
WAS_OFFERED = "e.worker IS NOT NULL AND e.fence IS NULL"


def match_key(column: str, value: str) -> str:
    """Return the condition `column = value` in a form for which PostgreSQL can only look each value up in the index.

    A plan that was made for an empty table reads all of an index instead, if its order could serve a join. An array
    has no order.
    """
    return f"{column} = ANY (ARRAY[{value}])"


def holds_pause(paused: str, trigger: str) -> str:
    """Return the condition `starting.holds_pause`."""
    return f"({paused} AND {trigger} <> {quote(FORCED)})"


# `dependencies.is_unmet` without and with the instant of the execution; `needed` is the job it depends on.
UNMET_SINCE_LAST_RUN = "(needed.last_success IS NULL OR needed.last_success <= {last_run})"
UNMET = f"""
SELECT 1 FROM job_dependencies d JOIN jobs needed ON needed.job_id = d.depends_on
 WHERE d.job_id = e.job_id AND {UNMET_SINCE_LAST_RUN}
   AND (needed.last_success IS NULL OR needed.last_success <= e.scheduled_for)
"""

# `rescue.count_rescues`; `w` is the watermark with the fence of the execution.
RESCUES = "CASE WHEN w.moved_at > e.started_at THEN 0 ELSE e.rescues + 1 END"

# The executions that a new one of the same job has to wait for. Those held by a pause or a dependency do not count,
# because they may be held for ever.
UNDER_WAY = "e.completed_at IS NULL AND (e.hold IS NULL OR e.hold = 'overlap')"

# The jobs that the scheduler plans.
PLANNABLE = (
    f"j.schedule_enabled AND NOT j.paused AND j.invalid_reason IS NULL AND j.scheduler_version = {SCHEDULER_VERSION}"
)
# The jobs that the scheduler plans by the clock: an adaptive job only once, at first.
CLOCKED = f"{PLANNABLE} AND (j.schedule_type <> {quote(ScheduleType.ADAPTIVE)} OR j.next_run IS NULL)"
ADAPTIVE = f"{PLANNABLE} AND j.schedule_type = {quote(ScheduleType.ADAPTIVE)}"

# The new values of unfinished executions that a newer instant replaces: a running one is asked to end.
REPLACE = f"""
    cancel_requested = CASE state WHEN 'running' THEN {quote(REPLACED)} END,
    state = CASE state WHEN 'running' THEN state ELSE 'cancelled' END,
    completed_at = CASE state WHEN 'running' THEN NULL ELSE {{now}} END,
    reason = CASE state WHEN 'running' THEN reason ELSE {quote(REPLACED)} END
"""
