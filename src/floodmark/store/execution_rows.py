"""From rows of `executions` to the values the history shows."""

from typing import Any

from sqlalchemy import select

from floodmark.model.execution import Execution, Hold, State
from floodmark.model.job import Priority

from .tables import job_executions

SELECT_EXECUTION = select(*(job_executions.c[name] for name in Execution.__struct_fields__))


def execution_from_row(row: Any) -> Execution:
    """An execution from a row of `SELECT_EXECUTION`."""
    columns = dict(row._mapping)
    columns["state"] = State(columns["state"])
    columns["priority"] = Priority(columns["priority"])
    columns["hold"] = None if columns["hold"] is None else Hold(columns["hold"])
    return Execution(**columns)
