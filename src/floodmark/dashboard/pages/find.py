"""The search box at the top: jobs, executions and items."""

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import RedirectResponse, Response

from floodmark.dashboard.forms import Refused
from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError
from floodmark.model.execution import Execution
from floodmark.model.job import Job
from floodmark.operations.jobs import JobFilter
from floodmark.rules.streams import split_stream

_ROWS, _ITEMS = 20, 10
# The beginning of an id has the time of its creation; fewer digits fit too many executions.
_ID = re.compile(r"[0-9a-f]{8,32}", re.IGNORECASE | re.ASCII)


@page("/find", "find.html", shared=False)
async def find(view: View) -> Mapping[str, Any] | Response:
    """Find jobs by name, target or tag, an execution by its id, and items. The only exact match is opened."""
    text = (view.query("q") or "").strip()[:200]
    execution = await _execution(view, text)
    if execution is not None and execution.execution_id == text.replace("-", "").lower():
        return RedirectResponse(view.url(f"/executions/{execution.execution_id}"), 303)
    jobs = await _jobs(view, text) if text else []
    values = {"text": text, "execution": execution, "jobs": jobs, "split_stream": split_stream}
    try:
        found = await view.operations.search(text, limit=_ITEMS) if text else None
    except FloodmarkError as error:
        # A text that is no query, or no index: the jobs are shown.
        return {**values, "found": None, "refused": Refused.of(error)}
    return {**values, "found": found, "refused": None}


async def _execution(view: View, text: str) -> Execution | None:
    if not _ID.fullmatch(text.replace("-", "")):
        return None
    try:
        return await view.operations.execution(text)
    except FloodmarkError:
        # None, or several: the jobs are shown.
        return None


async def _jobs(view: View, text: str) -> list[Job]:
    """Return jobs that mention the text, then those with it as a tag."""
    found = (await view.operations.jobs(JobFilter(text=text), limit=_ROWS)).items
    if len(found) < _ROWS:
        found += (await view.operations.jobs(JobFilter(tag=text), limit=_ROWS)).items
    return list({job.job_id: job for job in found}.values())


PAGES = (find,)
