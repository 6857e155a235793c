"""`rules.holding` as SQL for both databases: which executions that wait for another one (`hold = 'overlap'`) go on.

The rule is applied twice: when an execution of the stream ends (settle), and by the leader for everything that ended in
another way (wake). Both look at one execution a job, by index, so the cost does not grow with the number that waits.

Several jobs may collect one stream, but only one at a time. When one of them ends, the next turn goes to the job whose
last run is longest ago: otherwise a job with a long backlog would keep the stream until its backlog is empty.

In these fragments `e` is the waiting execution and `j` its job. `{index}` is for SQLite, which has to be told to use
`ix_job_executions_held`: without statistics it may take the index of the whole history, which is in the same order.
"""

from floodmark.rules.starting import FORCED

from .rule_sql import UNMET, holds_pause, quote

FIRST_HELD = f"""
SELECT {{columns}} FROM executions h {{index}}
 WHERE h.state = 'waiting' AND h.hold = 'overlap' AND h.job_id = {{job_id}}
   AND NOT {holds_pause("{paused}", "h.trigger")}
 ORDER BY h.scheduled_for LIMIT 1
"""

# The jobs that collect the stream of `p`, an execution that ended: by their own `stream`, or by source and target.
# `p.job_id` is among them even if its stream was changed meanwhile.
SHARES_STREAM = """
(j.job_id = p.job_id OR j.stream = p.stream
 OR (j.stream IS NULL AND j.source = {source} AND j.target = {target}))
"""

# What MAY_GO_ON reads of an execution: given by FIRST_HELD itself, no plan can begin with all executions.
HELD_COLUMNS = "h.execution_id, h.job_id, h.trigger, h.scheduled_for"

# Everything unfinished without a hold is under way: queued, running, or waiting for a time.
MAY_GO_ON = f"""
NOT EXISTS (SELECT 1 FROM executions o
             WHERE o.job_id = e.job_id AND o.completed_at IS NULL AND o.hold IS NULL {{besides}})
AND (e.trigger = {quote(FORCED)}
     OR (NOT EXISTS (SELECT 1 FROM executions o {{index}}
                      WHERE o.state = 'waiting' AND o.hold IN ('paused', 'dependency') AND o.job_id = e.job_id
                        AND o.scheduled_for < e.scheduled_for)
         AND NOT EXISTS ({UNMET})))
"""
