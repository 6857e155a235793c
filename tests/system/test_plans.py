"""Hot statements are planned once, while their tables may be empty: the plan must be good for a large one, too."""

from typing import Any

import pytest

from floodmark.repositories import events
from floodmark.sinks import letters
from floodmark.store.database import PostgresDatabase
from floodmark.store.planned import Planned
from floodmark.store.postgres import keeping
from floodmark.store.postgres_connection import Connection
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)

A_POST: tuple[Any, ...] = (
    "s",
    1,
    "{}",
    "{}",
    ["k"],
    [None],
    [b"{}"],
    ["h"],
    [False],
    None,
    None,
    "e",
    "s",
    "s",
    None,
    None,
)


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


@pytest.mark.spec("G4", "B7")
@pytest.mark.parametrize(
    ("planned", "arguments"),
    [
        (events._EVENTS, (10, 20)),
        (events._EVENTS_OF_STREAM, (10, 20, "s")),
        (letters._TO_SEND, ("archive", 10)),
        (events._NEXT, (10,)),
        (events._BOUNDS, ()),
        (events._NEWEST_SENT, ()),
    ],
    ids=["events", "events of a stream", "letters", "next", "bounds", "newest"],
)
async def test_events_are_read_by_their_positions_and_items_one_by_one(
    postgres_only: Opened, planned: Planned, arguments: tuple[Any, ...]
) -> None:
    """Readers ask all the time: a plan that was made for empty tables would later read all of them each time."""

    async def explained(connection: Connection) -> str:
        return str(await (await connection.prepare(planned.postgresql)).explain(*arguments))

    async with postgres_only() as resources:
        assert isinstance(resources.database, PostgresDatabase)
        plan = await resources.database.hot("explain", explained)
    assert "Seq Scan" not in plan
    assert "ix_outbox_position" in plan or "sink_letters" in plan
    if "items" in planned.postgresql:
        # Once for each event, and by all columns of the key.
        assert plan.count("'Index Name': 'pk_items'") == plan.count("'Index Name': 'pk_item_revisions'") == 1
        table = "sink_letters" if "sink_letters" in planned.postgresql else "outbox"
        assert f"((items.stream = {table}.stream) AND (items.key = {table}.key))" in plan
