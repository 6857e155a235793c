"""The processes of the fleet."""

from collections.abc import Mapping
from typing import Any

from floodmark.dashboard.page import page
from floodmark.dashboard.view import View


@page("/workers", "workers.html", live=("worker", "change"))
async def show_workers(view: View) -> Mapping[str, Any]:
    """Show all processes, and who leads."""
    fleet, health = await view.operations.fleet(), await view.operations.health()
    working = [worker for worker in fleet.workers if worker.alive and worker.slots]
    return {
        "fleet": fleet,
        "health": health,
        "working": len(working),
        "slots": sum(worker.slots for worker in working),
        "busy": sum(worker.busy for worker in working),
    }


PAGES = (show_workers,)
