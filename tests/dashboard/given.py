"""Jobs, executions and items for the pages of the dashboard, also such as nobody should have made."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert

from dashboard.site import Site
from floodmark.model.batch import Batch, Item
from floodmark.model.ids import new_id
from floodmark.model.outcome import Done
from floodmark.store.port import Event
from floodmark.store.tables import job_executions, jobs
from floodmark.testing.factories import given_lease, settle

# What may stand in names, errors and params: markup, scripts, attributes, marks that reverse the reading direction.
HOSTILE = (
    "<script>window.stolen = 1</script><img src=x onerror='window.stolen = 1'>\"'><b onmouseover=alert(1)>"
    "</textarea></select></pre><svg onload=alert(1)> javascript:alert(1) {{ 7 * 7 }} "
    "\u202egnirts\u202c \u0627\u0644\u0633\u0644\u0627\u0645"
)
ENDLESS = HOSTILE + "x" * 500_000


async def given_execution(site: Site, job_id: str, state: str = "done", **columns: Any) -> str:
    """Store an execution of a job and return its id."""
    now = datetime.now(UTC)
    is_ended = state in ("done", "dead", "cancelled", "skipped")
    row = {
        "execution_id": new_id(),
        "job_id": job_id,
        "job_name": "news",
        "scheduled_for": now - timedelta(microseconds=next(_COUNTER)),
        "state": state,
        "priority": 2,
        "attempt": 1,
        "started_at": None if state in ("queued", "skipped") else now,
        "completed_at": now if is_ended else None,
        "duration_seconds": 1.5 if is_ended else None,
        "created_at": now,
        **columns,
    }
    async with site.resources.database.writing() as connection:
        await connection.execute(insert(job_executions).values(**row))
    return str(row["execution_id"])


async def given_jobs(site: Site, count: int) -> None:
    """Store jobs without a schedule: job-000, job-001, ..."""
    names = [f"job-{number:03}" for number in range(count)]
    rows = [{"job_id": new_id(), "name": name, "target": name, "schedule_type": "event"} for name in names]
    async with site.resources.database.writing() as connection:
        await connection.execute(insert(jobs), rows)


_COUNTER = iter(range(1, 10**9))


async def given_items(site: Site, stream: str, *found: Item, **job: Any) -> str:
    """Store items as a worker does, and index them; return the id of the execution."""
    execution_id = await given_new_items(site, stream, *found, **job)
    await site.operations.update_search_index()
    return execution_id


async def given_new_items(site: Site, stream: str, *found: Item, **job: Any) -> str:
    """Store items as a worker does, and number their events; return the id of the execution."""
    lease = await given_lease(site.resources, **job)
    await site.resources.keeping.keep(lease, Batch(found, {"n": 1}, stream=stream))
    await settle(site.resources, lease, Done())

    async def nowhere(_: Sequence[Event]) -> None: ...

    await site.resources.keeping.relay(nowhere, limit=1000)
    return lease.execution_id
