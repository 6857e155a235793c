"""Hot statements are planned once, while their tables may be empty: the plan must be good for a large one, too."""

from typing import Any

import pytest

from floodmark.store.database import PostgresDatabase
from floodmark.store.postgres import keeping
from floodmark.store.postgres_connection import Connection
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)

A_POST: tuple[Any, ...] = ("s", 1, "{}", "{}", ["k"], [None], [b"{}"], ["h"], [False], None, None, "e", "s", "s", None)


@pytest.mark.spec("G8")
@pytest.mark.parametrize(
    ("statement", "arguments"), [(keeping._KEEP, A_POST), (keeping._NUMBER, (10,))], ids=["keep", "relay"]
)
async def test_an_item_is_looked_up_by_its_key(
    postgres_only: Opened, statement: str, arguments: tuple[Any, ...]
) -> None:
    """Not by its stream: that would be read from end to end for each item that is kept."""

    async def planned(connection: Connection) -> str:
        return str(await (await connection.prepare(statement)).explain(*arguments))

    async with postgres_only() as resources:
        assert isinstance(resources.database, PostgresDatabase)
        plan = await resources.database.hot("explain", planned)
    assert "pk_items" in plan
    assert "ix_items_stream_occurred_at" not in plan
