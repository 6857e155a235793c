"""Floodmark at work on loopback sites, and the questions tests ask of it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Table, select

from floodmark import Floodmark, Job
from floodmark.model.audit import Actor
from floodmark.model.execution import Execution
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events, InternalEvent
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings
from floodmark.sources.web.tables import pages
from floodmark.store.tables import item_revisions, items
from floodmark.testing.eventually import eventually
from floodmark.testing.serving import served
from floodmark.testing.web import Site
from floodmark.wiring.resources import Resources, open_resources

ENDED = ("done", "dead", "cancelled", "skipped")
LONG = "This is said at some length, so that nobody takes it for another page by chance. " * 4
# Short where a test would otherwise wait for it.
QUICK: dict[str, Any] = {
    "hostname": "test",
    "web_domain_delay": timedelta(),
    "backoff_base_seconds": 0.01,
    "execution_retry_base": timedelta(milliseconds=10),
    "rate_limit_strategy": "fixed",
}


class Desk:
    """One process of an installation, and what can be asked of it."""

    def __init__(self, resources: Resources, site: Site) -> None:
        self.resources, self.site = resources, site
        self.operations = LocalOperations(resources, Actor(who="tester", via="test"))
        self.seen: list[InternalEvent] = []

    async def job(self, target: str | None = None, *, source: str = "web", **params: Any) -> Job:
        """A job that runs when it is told to; for the site, unless told otherwise."""
        when = When(schedule_type=ScheduleType.EVENT)
        target = target or f"{self.site.url}/"
        return await self.operations.add_job(JobSpec(source=source, target=target, when=when, params=params))

    async def run(self, job: Job) -> Execution:
        """Run a job and wait until that has ended."""
        return await self.reaches(await self.ask(job), *ENDED)

    async def ask(self, job: Job) -> str:
        """Ask for a run; the id of its execution."""
        return (await self.operations.run_job(job.name)).execution_id

    async def reaches(self, execution_id: str, *states: str) -> Execution:
        """Wait until an execution is in one of these states."""

        async def check() -> Execution:
            seen = await self.operations.execution(execution_id)
            assert seen.state in states, f"{seen.state}: {seen.reason or seen.error_message}"
            return seen

        return await eventually(check)

    async def items(self, job: Job) -> dict[str, dict[str, Any]]:
        """What is kept, by path."""
        return {self.path(row["key"]): row for row in await self._rows(items, job)}

    async def collected(self, job: Job) -> set[str]:
        """The paths of the pages that are kept and not gone."""
        return {path for path, row in (await self.items(job)).items() if not row["deleted"]}

    async def earlier(self, job: Job, path: str) -> list[Any]:
        """What an item was before."""
        return [row["data"] for row in await self._rows(item_revisions, job) if self.path(row["key"]) == path]

    async def notes(self, job: Job) -> dict[str, str]:
        """Why pages made no item, by path."""
        return {self.path(row["url"]): row["note"] for row in await self._rows(pages, job) if row["note"]}

    async def watermark(self, job: Job) -> Any:
        """How far it is collected."""
        return (await self.operations.watermark(job.stream)).value

    def path(self, url: str) -> str:
        """An address without that of the site."""
        return url.removeprefix(self.site.url)

    def happened(self, kind: type[InternalEvent]) -> list[Any]:
        """The events of a kind, oldest first."""
        return [event for event in self.seen if type(event) is kind]

    async def _rows(self, table: Table, job: Job) -> list[dict[str, Any]]:
        async with self.resources.database.reading() as connection:
            rows = await connection.execute(select(table).where(table.c.stream == job.stream))
            return [dict(row) for row in rows.mappings()]


@asynccontextmanager
async def working(
    site: Site,
    database_url: str,
    *,
    listen: tuple[type[InternalEvent], ...] = (),
    foreign: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Desk]:
    """Scheduler and worker in this process, as `floodmark up` starts them, until the block ends."""
    events = Events()
    chosen = Settings(**{"database_url": database_url, **QUICK, **site.settings(), **settings})
    app = Floodmark(chosen.with_foreign(foreign or {}), events=events)
    async with served(app) as (resources, _):
        desk = Desk(resources, site)
        for kind in listen:
            events.listen(kind, desk.seen.append)
        yield desk


@asynccontextmanager
async def opened(site: Site, **settings: Any) -> AsyncIterator[Desk]:
    """The same stores, and nothing runs."""
    async with open_resources(Settings(**{**QUICK, **site.settings(), **settings})) as resources:
        yield Desk(resources, site)
