"""Handlers of the fleet, the health of the installation, and the audit log."""

from typing import Any

import msgspec
from msgspec.structs import asdict

from floodmark.coordination.signals.port import Topic
from floodmark.model.audit import AuditRow
from floodmark.model.execution import Statistics
from floodmark.model.fleet import Finding, FleetInfo, FleetMetrics, Overview, QueueDepth, SettingShown
from floodmark.model.job import Priority
from floodmark.model.minutes import MinuteReport
from floodmark.model.page import Page, last_key, page_of
from floodmark.operations.doctor import doctor_of
from floodmark.operations.fleet import FleetOperations, InstallationOperations
from floodmark.operations.health import health_details, scheduler_status
from floodmark.operations.overview import MOST_SHOWN, OverviewReader

from .base import Handlers


class FleetHandlers(FleetOperations, Handlers):
    """The fleet, by the database."""

    async def health(self) -> dict[str, Any]:
        return await health_details(self.resources)

    async def fleet(self) -> FleetInfo:
        return FleetInfo(
            draining=await self.store.fleet.is_draining(),
            leader=await self.find_leader(),
            workers=await self.store.fleet.workers(),
        )

    async def fleet_metrics(self) -> FleetMetrics:
        fleet, repositories = await self.fleet(), self.store
        workers = [info for info in fleet.workers if info.alive and info.role == "worker"]
        return FleetMetrics(
            queue_depth=QueueDepth(**await self._depth()),
            workers=len(workers),
            slots=sum(info.slots for info in workers),
            busy=sum(info.busy for info in workers),
            draining=fleet.draining,
            leader=fleet.leader,
            last_day=msgspec.convert(await repositories.executions.get_execution_statistics(1), Statistics),
            last_position=await repositories.events.last_position(),
        )

    async def drain(self) -> bool:
        async with self.transaction(Topic.WORKERS):
            await self.store.fleet.drain()
            await self.record("workers.drained", "workers", after={"draining": True})
        return True

    async def undrain(self) -> bool:
        async with self.transaction(Topic.WORKERS):
            await self.store.fleet.resume()
            await self.record("workers.resumed", "workers", after={"draining": False})
        return False

    async def overview(self) -> Overview:
        repositories = self.store
        reader = OverviewReader(self.resources.database, self.resources.clock, repositories)
        executions, depth = await reader.executions(), await self._depth()
        freshness, measured_at = await reader.freshness()
        tick, now = await self.store.fleet.last_tick_and_now()
        breakers = await repositories.breakers.page(limit=MOST_SHOWN)
        return Overview(
            **asdict(executions),
            leader=await self.find_leader(),
            scheduler=scheduler_status(tick, now),
            draining=await self.store.fleet.is_draining(),
            workers=await self.store.fleet.workers(),
            queue=depth,
            limits=await repositories.limits.page(limit=MOST_SHOWN),
            breakers=[row for row in breakers if row.state != "closed"],
            freshness=freshness,
            measured_at=measured_at,
            failures=await reader.failures(),
        )

    async def minutes(self, hours: float = 6, *, rows: int = 400) -> MinuteReport:
        return await self.store.minutes.read(hours, rows)

    async def _depth(self) -> dict[str, int]:
        depth = await self.resources.queue.depth()
        return {priority.name.lower(): depth.get(priority, 0) for priority in Priority}


class InstallationHandlers(InstallationOperations, Handlers):
    """The installation and its audit."""

    async def doctor(self) -> list[Finding]:
        return await doctor_of(self.resources).check()

    async def settings(self) -> list[SettingShown]:
        return [SettingShown(**row._asdict()) for row in self.resources.settings.rows()]

    async def audit(self, *, what: str | None = None, cursor: str | None = None, limit: int = 50) -> Page[AuditRow]:
        rows = await self.store.audit.page(what=what, before=last_key("audit", cursor, int), limit=limit + 1)
        return page_of(rows, limit, "audit", lambda row: [row.seq])
