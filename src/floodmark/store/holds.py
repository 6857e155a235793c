"""`rules.holding` as SQL for both databases: which executions that wait for another one (`hold = 'overlap'`) may start.

The rule is applied when an execution of the stream ends (settle), and by the leader for those that ended in another way
(wake). Both examine one execution per job, by index, so the cost does not grow with the number of waiting ones.

Several jobs may collect one stream, but only one at a time. When one of them ends, the job whose last run is longest
ago is next: otherwise a job with a long backlog would keep the stream until its backlog is empty.

In these fragments `e` is the waiting execution and `j` its job. `{index}` makes SQLite use
`ix_job_executions_held`: without statistics it may choose the index of the whole history, which has the same order.
"""

from floodmark.rules.starting import FORCED

from .rule_sql import UNMET, holds_pause, quote

FIRST_HELD = f"""
SELECT {{columns}} FROM executions h {{index}}
 WHERE h.state = 'waiting' AND h.hold = 'overlap' AND h.job_id = {{job_id}}
   AND NOT {holds_pause("{paused}", "h.trigger")}
 ORDER BY h.scheduled_for LIMIT 1
"""

# The jobs that collect the stream of `p`, an execution that has ended: by their `stream`, or by source and target.
# `p.job_id` is one of them even if its stream was changed meanwhile.
SHARES_STREAM = (
    "j.job_id = p.job_id",
    "j.stream = p.stream",
    "j.stream IS NULL AND j.source = {source} AND j.target = {target}",
)

# The columns that MAY_GO_ON needs. FIRST_HELD returns them, so that no plan can start with all executions.
HELD_COLUMNS = "h.execution_id, h.job_id, h.trigger, h.scheduled_for"

# An unfinished execution without a hold is under way: queued, running, or waiting for a time. `{same_job}`: whether `o`
# and `e` are executions of one job.
MAY_GO_ON = f"""
NOT EXISTS (SELECT 1 FROM executions o
             WHERE {{same_job}} AND o.completed_at IS NULL AND o.hold IS NULL {{besides}})
AND (e.trigger = {quote(FORCED)}
     OR (NOT EXISTS (SELECT 1 FROM executions o {{index}}
                      WHERE o.state = 'waiting' AND o.hold IN ('paused', 'dependency') AND {{same_job}}
                        AND o.scheduled_for < e.scheduled_for)
         AND NOT EXISTS ({UNMET})))
"""
