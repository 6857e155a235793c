"""Statements of searches and of the index read rows by an index, however many there are."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event

from floodmark.search import postgres_find
from floodmark.search.stored_items import StoredItems
from floodmark.testing.factories import Opened

pytestmark = pytest.mark.spec("B5", "G6")

READS: dict[str, Callable[[StoredItems], Awaitable[Any]]] = {
    "after": lambda items: items.after(5, 100),
    "page": lambda items: items.page(("s", "k"), 100),
    "earlier": lambda items: items.earlier([("s", "k", 1), ("t", "l", 2)]),
    "newest": lambda items: items.newest([("s", "k"), ("t", "l"), ("t", "m")]),
    "measure": lambda items: items.measure(5),
    "find_event": lambda items: items.find_event(5),
    "count_after": lambda items: items.count_after(5),
}


@pytest.mark.parametrize("name", READS)
async def test_sqlite_reads_no_table_from_end_to_end(sqlite: Opened, name: str) -> None:
    async with sqlite() as resources:
        asked: list[tuple[str, Any]] = []
        engine = resources.database.engine.sync_engine

        def listen(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            asked.append((statement, parameters))

        event.listen(engine, "before_cursor_execute", listen)
        await READS[name](resources.search.items)
        event.remove(engine, "before_cursor_execute", listen)
        async with resources.database.reading() as connection:
            plans = [
                row.detail
                for statement, parameters in asked
                for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]
    assert plans
    assert not {"SCAN items", "SCAN item_revisions"}.intersection(plans), plans
    # The first row of all is found by its number.
    assert plans.count("SCAN outbox") <= sum("min(outbox.seq)" in statement for statement, _ in asked), plans


@pytest.mark.parametrize(
    ("statement", "index", "never"),
    [
        (postgres_find._FIND, "ix_search_documents_tokens", "pk_search_documents"),
        (postgres_find._FIND_NEWEST, "pk_search_documents", "ix_search_documents_tokens"),
    ],
    ids=["by tokens", "by ids"],
)
async def test_postgres_plans_do_not_depend_on_statistics(
    postgres_only: Opened, statement: str, index: str, never: str
) -> None:
    """The table is empty, and the plan is the one for a large table."""
    complete = postgres_find._Bounds(0, 2**60, "'fire'").complete(statement)
    async with postgres_only() as resources, resources.database.engine.begin() as connection:
        await connection.exec_driver_sql(postgres_find.OPEN)
        rows = await connection.exec_driver_sql(f"EXPLAIN {complete}", (0, 2**60, "'fire'", 20))
        plan = "\n".join(str(row[0]) for row in rows)
    assert index in plan, plan
    assert never not in plan, plan
