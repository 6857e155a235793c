"""The rules of `rules/` as SQL, with values and texts from there. `tests/system/test_rules_in_sql.py` compares both.

In these fragments `e` is an execution and `j` its job.
"""

from collections.abc import Iterable, Sequence
from string import Formatter

from msgspec import Struct
from sqlalchemy import ColumnElement, FromClause, func

from floodmark.model.execution import Hold, State
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


class Lookups(Struct, frozen=True):
    """How a database looks up the rows of a rule, in a form that leaves its planner no other way.

    PostgreSQL plans a hot statement when tables may be empty, or when their statistics say so. All of an index then
    costs no more than one entry, so conditions are written such that they fit a single index. For SQLite they
    name the index to use.
    """

    is_postgres: bool

    def match(self, column: str, value: str) -> str:
        """Return the condition `column = value`."""
        return match_key(column, value) if self.is_postgres else f"{column} = {value}"

    def is_unfinished(self, execution: str, job_id: str) -> str:
        """Return the condition that an execution of a job has not ended."""
        # The expression of `ix_job_executions_active`, which the index of the whole history does not fit.
        job = f"{execution}.job_id || ''" if self.is_postgres else f"{execution}.job_id"
        return f"{job} = {job_id} AND {execution}.completed_at IS NULL"

    def is_held(self, execution: str, *holds: Hold) -> str:
        """Return the condition that an unfinished execution waits for one of these."""
        wanted = f"IN ({', '.join(map(quote, holds))})" if len(holds) > 1 else f"= {quote(holds[0])}"
        if self.is_postgres:
            return f"COALESCE({execution}.hold, '') {wanted} AND {execution}.state || '' = 'waiting'"
        return f"{execution}.hold {wanted} AND {execution}.state = 'waiting'"

    def is_under_way(self, execution: str) -> str:
        """Return the condition that an unfinished execution runs, is queued, or waits for a time."""
        return f"COALESCE({execution}.hold, '') = ''" if self.is_postgres else f"{execution}.hold IS NULL"

    def is_before(self, moment: str, other: str) -> str:
        """Return the condition that an instant is before another, without offering an index of it."""
        return f"{moment} + interval '0' < {other}" if self.is_postgres else f"{moment} < {other}"

    @property
    def held_index(self) -> str:
        """The index of held executions, after the name of a table."""
        return "" if self.is_postgres else "INDEXED BY ix_job_executions_held"

    @property
    def by_itself(self) -> str:
        """The end of an EXISTS. Without it PostgreSQL may turn it into a join that reads all rows."""
        return "OFFSET 0" if self.is_postgres else ""


ON_POSTGRES, ON_SQLITE = Lookups(is_postgres=True), Lookups(is_postgres=False)

# `dependencies.is_unmet` without and with the instant of the execution; `needed` is the job it depends on.
UNMET_SINCE_LAST_RUN = "(needed.last_success IS NULL OR needed.last_success <= {last_run})"


def unmet(database: Lookups, last_run: str) -> str:
    """Return a query that finds a row if a dependency of the execution `e` is unmet."""
    return f"""
SELECT 1 FROM job_dependencies d
 WHERE {database.match("d.job_id", "e.job_id")} AND EXISTS (
       SELECT 1 FROM jobs needed
        WHERE {database.match("needed.job_id", "d.depends_on")} AND {UNMET_SINCE_LAST_RUN.format(last_run=last_run)}
          AND (needed.last_success IS NULL OR needed.last_success <= e.scheduled_for) {database.by_itself})
 {database.by_itself}
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
    hold = NULL,
    reason = CASE state WHEN 'running' THEN reason ELSE {quote(REPLACED)} END
"""
