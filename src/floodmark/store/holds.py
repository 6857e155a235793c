"""`rules.holding` as SQL for both databases: which executions that wait for another one (`hold = 'overlap'`) may start.

The rule is applied when an execution of the stream ends (settle), and by the leader for those that ended in another way
(wake). Both examine one execution per job, by index, so the cost does not grow with the number of waiting ones.

Several jobs may collect one stream, but only one at a time. When one of them ends, the job whose last run is longest
ago is next: otherwise a job with a long backlog would keep the stream until its backlog is empty.

In these fragments `e` is the waiting execution and `j` its job.
"""

from floodmark.model.execution import Hold
from floodmark.rules.starting import FORCED

from .rule_sql import Lookups, holds_pause, quote, unmet

# The jobs that collect the stream of `p`, an execution that has ended: by their `stream`, or by source and target.
# `p.job_id` is one of them even if its stream was changed meanwhile.
SHARES_STREAM = (
    "j.job_id = p.job_id",
    "j.stream = p.stream",
    "j.stream IS NULL AND j.source = {source} AND j.target = {target}",
)

# The columns that `may_go_on` needs. `first_held` returns them, so that no plan can start with all executions.
HELD_COLUMNS = "h.execution_id, h.job_id, h.trigger, h.scheduled_for"


def first_held(database: Lookups, columns: str, *, job_id: str, paused: str) -> str:
    """Return a query of the first execution of a job that waits for another one, and not for the end of a pause."""
    return f"""
SELECT {columns} FROM executions h {database.held_index}
 WHERE {database.is_unfinished("h", job_id)} AND {database.is_held("h", Hold.OVERLAP)}
   AND NOT {holds_pause(paused, "h.trigger")}
 ORDER BY h.scheduled_for LIMIT 1
"""


def may_go_on(database: Lookups, *, last_run: str, besides: str = "") -> str:
    """Return the condition that the execution `e` may start. `besides`: which executions `o` do not count.

    An unfinished execution without a hold is under way: queued, running, or waiting for a time.
    """
    is_of_job = database.is_unfinished("o", "e.job_id")
    return f"""
NOT EXISTS (SELECT 1 FROM executions o
             WHERE {is_of_job} AND {database.is_under_way("o")} {besides} {database.by_itself})
AND (e.trigger = {quote(FORCED)}
     OR (NOT EXISTS (SELECT 1 FROM executions o {database.held_index}
                      WHERE {is_of_job} AND {database.is_held("o", Hold.PAUSED, Hold.DEPENDENCY)}
                        AND {database.is_before("o.scheduled_for", "e.scheduled_for")} {database.by_itself})
         AND NOT EXISTS ({unmet(database, last_run)})))
"""
