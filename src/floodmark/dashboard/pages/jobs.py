"""The list of jobs."""

from collections.abc import Mapping
from typing import Any

from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.operations.jobs import JobFilter


@page("/jobs", "jobs.html", live=("execution", "change"))
async def list_jobs(view: View) -> Mapping[str, Any]:
    """List jobs."""
    wanted = JobFilter(
        state=view.query("state"),  # type: ignore[arg-type] # checked by the operation
        source=view.query("kind"),
        tag=view.query("tag"),
        text=view.query("text"),
        stale=True if view.query("stale") else None,
    )
    return {"jobs": await view.operations.jobs(wanted, cursor=view.query("cursor"), limit=50)}


PAGES = (list_jobs,)
