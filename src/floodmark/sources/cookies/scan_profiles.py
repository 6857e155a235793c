"""Named parameter sets of cookie scans. Table: `scan_profiles`, which operators fill with SQL."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from floodmark.store.database import Database
from floodmark.store.tables import job_executions, jobs

from .tables import scan_profiles


class ScanProfiles:
    """Reads the profiles of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def params_for(self, execution_id: str) -> Mapping[str, Any]:
        """Return the parameters of the profile of an execution's job; empty if it has none."""
        query = (
            select(scan_profiles.c.params)
            .join(jobs, jobs.c.profile_id == scan_profiles.c.profile_id)
            .join(job_executions, job_executions.c.job_id == jobs.c.job_id)
            .where(job_executions.c.execution_id == execution_id)
        )
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).scalar()
        return found if isinstance(found, dict) else {}
