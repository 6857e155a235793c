"""Dead letters: executions that failed permanently, by group and one by one."""

from collections.abc import Mapping
from typing import Any

from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.errors import NotFound
from floodmark.model.job import Job

_ROWS, _GROUPS, _LONGEST = 50, 100, 2000


@page("/dead-letters", "dead_letters.html", live=("execution", "change"))
async def list_letters(view: View) -> Mapping[str, Any]:
    """List dead letters by group, and each of them."""
    group, name = view.query("group"), view.query("job")
    job = await _find_job(view, name)
    wanted = None if name is None else job.job_id if job is not None else name[:200]
    groups = await view.operations.letter_groups(wanted)
    letters = await view.operations.letters(
        job=wanted, group=None if group is None else group[:_LONGEST], cursor=view.query("cursor"), limit=_ROWS
    )
    return {
        "groups": groups[:_GROUPS],
        "left_out": max(0, len(groups) - _GROUPS),
        "total": sum(one.count for one in groups),
        "shown": next((one for one in groups if one.fingerprint == group), None),
        "letters": letters,
        "job": job,
        "wanted": wanted,
    }


async def _find_job(view: View, name: str | None) -> Job | None:
    try:
        return None if name is None else await view.operations.job(name[:200])
    except NotFound:
        return None


PAGES = (list_letters,)
