"""A scheduler dies at any step of the search index: the next one goes on, and the index is as if nothing had been."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from chaos.fleet import Fleet
from chaos.process import Order
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.process.failpoints import SEARCH_POINTS
from floodmark.search.documents import SearchDocument, document_of
from floodmark.search.matching import matches
from floodmark.search.query import parse_query
from floodmark.store.port import Event
from floodmark.testing.factories import Opened, given_lease, settle
from floodmark.wiring.resources import Resources

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SIGKILLED = -9
PATIENCE = 180.0
# Each victim goes on where the one before was killed: at the beginning, in the pages of items, then in the events.
FILLING = ("search.begun", "search.written", "search.committed", "search.removed@2")
FOLLOWING = ("search.removed", "search.written", "search.committed")
QUERIES = ("fire", "ice", '"fire number"', "number7*", "fire -number", "ice OR number11")


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


async def collect(resources: Resources, found: Sequence[Item]) -> None:
    lease = await given_lease(resources)
    await resources.keeping.keep(lease, Batch(found, stream="test:a"))
    await settle(resources, lease, Done())

    async def nowhere(_: Sequence[Event]) -> None: ...

    while await resources.keeping.relay(nowhere, limit=1000):
        pass


def an_item(number: int, text: str) -> Item:
    return Item(str(number), {"text": f"{text} number{number}"}, NOON + timedelta(seconds=number % 7))


@pytest.mark.spec("B5", "G1")
@pytest.mark.timeout(900)
@pytest.mark.thorough
async def test_a_kill_at_any_step_leaves_a_correct_index(opened: Opened, fleet: Fleet) -> None:
    assert {point.partition("@")[0] for point in (*FILLING, *FOLLOWING)} == set(SEARCH_POINTS)
    async with opened() as resources:
        await collect(resources, [an_item(number, "fire") for number in range(1300)])
        settings = {
            "database_url": resources.settings.database_url,
            "execution_lease": "1",
            "scheduler_leader_ttl": "1",
        }

        async def let_die(point: str) -> None:
            name, _, hit = point.partition("@")
            fleet.start(
                Order(
                    name="victim",
                    settings=settings,
                    folder=str(fleet.folder),
                    scheduler=True,
                    worker=False,
                    failpoint=f"{name}:kill@{hit or 1}",
                )
            )
            assert await fleet.ended("victim", PATIENCE) == SIGKILLED, fleet.tails()

        for point in FILLING:
            await let_die(point)
        for number, point in enumerate(FOLLOWING):
            await collect(
                resources, [an_item(number, "ice"), an_item(100 + number, "ice"), an_item(2000 + number, "fire")]
            )
            await let_die(point)
        indexer = resources.search.indexer(resources.events, rests=False)
        while await indexer.step() is not None:
            pass

        documents = await scan(resources)
        for query in map(parse_query, QUERIES):
            expected = {key for key, document in documents.items() if matches(query, document.runs)}
            hits = await resources.search.index.find(query, limit=5000)
            assert len(hits) == len(expected)
            assert {hit.key for hit in hits} == expected
        state = await resources.search.index.read_state()
        assert state is not None
        assert state.documents == len(documents) == 1303


async def scan(resources: Resources) -> dict[str, SearchDocument]:
    """Every item, without the index."""
    found: dict[str, SearchDocument] = {}
    after = None
    while page := await resources.search.items.page(after, 1000):
        found |= {item.key: document_of(item) for item in page}
        after = page[-1].stream, page[-1].key
    return found
