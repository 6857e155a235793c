"""The scans of all domains, and the reports that were made of them.

Tables: `watermarks` and `jobs` name the streams of scans, `items` has the scans; `portfolio_reports` has a row for each
report that was made, and `portfolio_scans` the scans in it. Reports beyond the newest 50 are deleted with the next one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import delete, exists, insert, select, text, tuple_, union

from floodmark.model.cookie_portfolio import PortfolioReport
from floodmark.store.database import Database
from floodmark.store.dialects import chunks
from floodmark.store.tables import items, jobs, watermarks

from .stored_reports import KeptScan
from .tables import OF_SCANS, portfolio_reports, portfolio_scans

# As the condition of the index is written: neither database uses it for anything else.
_IS_SCAN = text(OF_SCANS.replace("stream", "watermarks.stream"))
_KEPT_REPORTS = 50
# Reports that are in memory at the same time: each may have some megabytes.
READ_AT_ONCE = 5


class PortfolioScans(Struct, frozen=True):
    """Reads the scans of all domains, and records reports."""

    database: Database

    async def streams(self, after: str, limit: int) -> list[str]:
        """Return the streams of scans after one, in the order of the database."""
        name = watermarks.c.stream
        by_name = select(name).where(_IS_SCAN, name > after).order_by(name).limit(limit)
        # Jobs may give their stream any name. Without an order, so that the index of all streams is not read.
        has_run = exists(select(1).where(name == jobs.c.stream))
        by_job = select(jobs.c.stream).where(jobs.c.source == "cookies", jobs.c.stream > after, has_run)
        both = union(select(by_name.subquery()), by_job).subquery()
        query = select(both.c.stream).order_by(both.c.stream).limit(limit)
        async with self.database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def newest(self, streams: Sequence[str], until: datetime | None = None) -> dict[str, str]:
        """Return the key of the last scan of each stream, or of the last one until a time."""
        cell = items.c
        where = [cell.stream == watermarks.c.stream, cell.deleted.is_(False), cell.occurred_at.is_not(None)]
        if until is not None:
            where.append(cell.occurred_at <= until)
        last = select(cell.key).where(*where).order_by(cell.occurred_at.desc(), cell.key.desc()).limit(1)
        query = select(watermarks.c.stream, last.correlate(watermarks).scalar_subquery()).where(
            watermarks.c.stream.in_(streams)
        )
        async with self.database.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query) if row[1] is not None}

    async def read(self, keys: Mapping[str, str]) -> dict[str, KeptScan]:
        """Return scans by stream. Ask for few at a time."""
        cell = items.c
        query = select(cell.stream, cell.key, cell.occurred_at, cell.data).where(
            tuple_(cell.stream, cell.key).in_(list(keys.items())), cell.occurred_at.is_not(None)
        )
        async with self.database.reading() as connection:
            return {
                row.stream: KeptScan(scan=row.key, stream=row.stream, scanned_at=row.occurred_at, report=row.data)
                for row in await connection.execute(query)
            }

    async def reported(self, report_id: int, streams: Sequence[str]) -> dict[str, str]:
        """Return the keys of the scans of these streams that a report contains."""
        cell = portfolio_scans.c
        query = select(cell.stream, cell.scan).where(cell.report_id == report_id, cell.stream.in_(streams))
        async with self.database.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}

    async def reports(self, limit: int) -> list[PortfolioReport]:
        """Return the reports that were made, newest first."""
        query = select(portfolio_reports).order_by(portfolio_reports.c.report_id.desc()).limit(limit)
        async with self.database.reading() as connection:
            return [PortfolioReport(**row) for row in (await connection.execute(query)).mappings()]

    async def record(self, report: PortfolioReport, scans: Mapping[str, str]) -> PortfolioReport:
        """Store a report with its scans in the present transaction; return it with its number."""
        async with self.database.writing() as connection:
            values = {name: value for name, value in asdict(report).items() if name != "report_id"}
            adding = insert(portfolio_reports).values(values).returning(portfolio_reports.c.report_id)
            number = (await connection.execute(adding)).scalar_one()
            rows = [{"report_id": number, "stream": stream, "scan": scan} for stream, scan in scans.items()]
            for some in chunks(rows):
                await connection.execute(insert(portfolio_scans), list(some))
            for table in (portfolio_scans, portfolio_reports):
                await connection.execute(delete(table).where(table.c.report_id <= number - _KEPT_REPORTS))
        return replace(report, report_id=number)
