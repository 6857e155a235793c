"""When a job has to wait for a success of another job."""

from datetime import datetime


def is_unmet(last_success: datetime | None, last_run: datetime | None, scheduled_for: datetime | None = None) -> bool:
    """Return whether an execution has to wait. `last_success`: of the job it depends on, `last_run`: of its own job.

    A success counts for the next run only. It also counts for executions that were due before it (`scheduled_for`),
    because they have waited for it: otherwise a job that fell behind would need one success for each run.
    """
    if last_success is None:
        return True
    is_used = last_run is not None and last_success <= last_run
    return is_used and (scheduled_for is None or last_success <= scheduled_for)
