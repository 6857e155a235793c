"""What people ask of a large installation is read by an index, however many jobs and executions there are."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import event

from floodmark.errors import NotFound
from floodmark.model.audit import Actor
from floodmark.model.execution import State
from floodmark.operations.jobs import JobFilter
from floodmark.operations.local import LocalOperations
from floodmark.search.stream_choice import StreamChoice
from floodmark.sources.cookies.portfolio_store import PortfolioScans
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources

pytestmark = pytest.mark.spec("B17")

READS: dict[str, Callable[[Resources, LocalOperations], Awaitable[Any]]] = {
    "a mistyped job": lambda _, operations: operations.job("nwes"),
    "a mistyped stream": lambda _, operations: operations.watermark("nwes"),
    "history of a job": lambda _, operations: operations.executions(job="nwes"),
    "history by state": lambda _, operations: operations.executions(states=[State.CANCELLED, State.SKIPPED]),
    "stale jobs": lambda _, operations: operations.jobs(JobFilter(stale=True)),
    "paused jobs": lambda _, operations: operations.jobs(JobFilter(state="paused")),
    "disabled jobs": lambda _, operations: operations.jobs(JobFilter(state="disabled")),
    "dead letters": lambda _, operations: operations.letters(),
    "streams": lambda _, operations: operations.streams(),
    "streams of a tag": lambda resources, _: StreamChoice(resources.database, resources.clock).among(
        ["web:a", "b"], tag="news", source="web"
    ),
    "streams of scans": lambda resources, _: PortfolioScans(resources.database).streams("", 100),
}
# Where a scan in the order of another index would be no better.
INDEXED = {
    "stale jobs": "sqlite_autoindex_jobs",
    "paused jobs": "ix_jobs_paused",
    "disabled jobs": "ix_jobs_disabled",
    "streams of scans": "ix_watermarks_cookie_scans",
}
# Nothing is read of these but what an index says.
LARGE = ("jobs", "executions", "items", "watermarks")


@pytest.mark.parametrize("name", READS)
async def test_no_large_table_is_read_from_end_to_end(sqlite: Opened, name: str) -> None:
    async with sqlite() as resources:
        asked: list[tuple[str, Any]] = []
        engine = resources.database.engine.sync_engine

        def listen(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            asked.append((statement, parameters))

        event.listen(engine, "before_cursor_execute", listen)
        with suppress(NotFound):
            await READS[name](resources, LocalOperations(resources, Actor(who="test")))
        event.remove(engine, "before_cursor_execute", listen)
        async with resources.database.reading() as connection:
            plans = [
                row.detail
                for statement, parameters in asked
                for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]
    assert plans
    assert not set(plans).intersection(f"SCAN {table}" for table in LARGE), plans
    if name in INDEXED:
        assert any(INDEXED[name] in plan for plan in plans), plans
        # A union of two short lists is sorted.
        assert ("USE TEMP B-TREE FOR ORDER BY" in plans) == ("COMPOUND QUERY" in plans), plans
