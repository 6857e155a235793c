"""The fleet, the health of the installation, and its audit log."""

from typing import Annotated, Any

from floodmark.model.audit import AuditRow
from floodmark.model.fleet import Finding, FleetInfo, FleetMetrics, Health, Overview, SettingShown
from floodmark.model.minutes import MinuteReport
from floodmark.model.page import Page

from .declaration import WHOLE_LIST, Each, Envelope, Query, get, post
from .words import Cursor, Limit, Text

# Older minutes are deleted.
LONGEST_HOURS = 28 * 24
_FLEET, _INSTALLATION = "Scheduler", "Installation"
_DRAINING = Envelope("DrainingOut", "Whether workers accept no new work.", "draining")


def _is_well(findings: list[Finding]) -> bool:
    return all(finding.ok for finding in findings)


class FleetOperations:
    """Show and drain the fleet."""

    @get("/scheduler/health", tag=_FLEET, operation_id="scheduler_health", model=Health)
    async def health(self) -> dict[str, Any]:
        """Show the health of the fleet. It covers database, Redis, scheduler and workers; always 200, see `status`."""

    @get("/scheduler/workers", tag=_FLEET, operation_id="list_workers")
    async def fleet(self) -> FleetInfo:
        """List the processes of the fleet. Processes seen within the last day, live ones first."""

    @get("/scheduler/metrics", tag=_FLEET, operation_id="scheduler_metrics")
    async def fleet_metrics(self) -> FleetMetrics:
        """Show metrics of the fleet. Queue, slots, and the outcome of the last day's executions."""

    @post("/scheduler/drain", tag=_FLEET, envelope=_DRAINING)
    async def drain(self) -> bool:
        """Drain the workers. They finish what they have and take no more until they are resumed. For deployments."""

    @post("/scheduler/resume", tag=_FLEET, operation_id="resume", envelope=_DRAINING)
    async def undrain(self) -> bool:
        """Resume the workers. This undoes a drain."""

    @get("/overview", tag=_FLEET, operation_id="show_overview")
    async def overview(self) -> Overview:
        """Show an overview. Leader, workers, queue, executions that run, wait or failed, limits, freshness.

        It is cheap enough to be asked every second.
        """

    @get("/minutes", tag=_FLEET, operation_id="show_minutes")
    async def minutes(
        self,
        hours: Annotated[float, Query("How many hours to look back.", gt=0, le=LONGEST_HOURS)] = 6,
        *,
        rows: Annotated[int, Query("The maximum number of rows.", ge=10, le=400)] = 400,
    ) -> MinuteReport:
        """Show what happened by the minute. Ended executions, items, how late executions started, the longest queue.

        The leader counts every few seconds and keeps four weeks. In a longer time each row has several minutes.
        """


class InstallationOperations:
    """Examine the installation, and read its audit log."""

    @get(
        "/doctor",
        role="operate",
        tag=_INSTALLATION,
        operation_id="examine",
        envelope=Envelope(
            "DoctorOut",
            "The result of all checks.",
            "findings",
            "Fix them in this order.",
            {"ok": (bool, _is_well, "Whether all checks passed.")},
        ),
    )
    async def doctor(self) -> list[Finding]:
        """Examine the installation. This is `floodmark doctor`; it reads a lot of data, so do not poll it."""

    @get("/settings", role="admin", tag=_INSTALLATION, operation_id="list_settings", envelope=WHOLE_LIST)
    async def settings(self) -> list[SettingShown]:
        """List the settings of this process. They have their values, origins and meanings; secrets are masked."""

    @get("/audit", tag=_INSTALLATION, operation_id="list_audit")
    async def audit(
        self,
        *,
        what: Annotated[Text | None, Query("Only of this object.", examples=["job:news"])] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[AuditRow]:
        """Show the audit log. Changes are sorted newest first, with the values before and after."""

    each_audit_row = Each(audit)
