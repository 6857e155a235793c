"""The installation: its fleet, its health, its audit."""

from typing import Annotated, Any

from floodmark.model.audit import AuditRow
from floodmark.model.fleet import Finding, FleetInfo, FleetMetrics, Health, Overview
from floodmark.model.page import Page

from .declaration import Each, Envelope, Query, get, post
from .words import Cursor, Limit, Text

_FLEET, _INSTALLATION = "Scheduler", "Installation"
_DRAINING = Envelope("DrainingOut", "Whether workers take work.", "draining")


def _is_well(findings: list[Finding]) -> bool:
    return all(finding.ok for finding in findings)


class FleetOperations:
    """Look at the fleet, and drain it."""

    @get("/scheduler/health", tag=_FLEET, operation_id="scheduler_health", model=Health)
    async def health(self) -> dict[str, Any]:
        """Show the health of the fleet.

        Database, Redis, the scheduler by its last tick, and the workers. Always 200; `status` tells.
        """

    @get("/scheduler/workers", tag=_FLEET, operation_id="list_workers")
    async def fleet(self) -> FleetInfo:
        """List the processes of the fleet.

        Everyone heard of within a day, the living first.
        """

    @get("/scheduler/metrics", tag=_FLEET, operation_id="scheduler_metrics")
    async def fleet_metrics(self) -> FleetMetrics:
        """Show the numbers of the fleet.

        Queue, slots, and how the executions of the last day went.
        """

    @post("/scheduler/drain", tag=_FLEET, envelope=_DRAINING)
    async def drain(self) -> bool:
        """Drain the workers.

        Let workers finish what they have and take no more, until they are resumed. For deployments.
        """

    @post("/scheduler/resume", tag=_FLEET, operation_id="resume", envelope=_DRAINING)
    async def undrain(self) -> bool:
        """Resume the workers.

        Undo a drain.
        """

    @get("/overview", tag=_FLEET, operation_id="show_overview")
    async def overview(self) -> Overview:
        """Show everything at a glance.

        Leader, workers, queue, what runs, waits and failed, limits, freshness. Cheap enough to be asked every second.
        """


class InstallationOperations:
    """Examine the installation, and read its audit."""

    @get(
        "/doctor",
        role="operate",
        tag=_INSTALLATION,
        operation_id="examine",
        envelope=Envelope(
            "DoctorOut",
            "How an installation is.",
            "findings",
            "In the order in which one would mend it.",
            {"ok": (bool, _is_well, "Whether everything is well.")},
        ),
    )
    async def doctor(self) -> list[Finding]:
        """Examine the installation.

        Does everything answer, does everything hold? The same as `floodmark doctor`; it reads a lot, so ask seldom.
        """

    @get("/audit", tag=_INSTALLATION, operation_id="list_audit")
    async def audit(
        self,
        *,
        what: Annotated[Text | None, Query(description="Only of this object.", examples=["job:news"])] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[AuditRow]:
        """Show who changed what.

        Every change, newest first, with what was there before and after.
        """

    each_audit_row = Each(audit)
