"""The guarantees of every search index."""

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.search.documents import SearchableItem, SearchDocument, document_of
from floodmark.search.matching import matches
from floodmark.search.port import MOST_STREAM_TOKENS, IndexHit, SearchFilter, SearchIndex
from floodmark.search.query import parse_query

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

ReadEarlier = Callable[[Sequence[tuple[str, str, int]]], Awaitable[list[SearchableItem]]]

# Words of several scripts. Some begin with others, and some are parts of others.
_SENTENCE = (
    "fire Fire FIRES smoke harbour harbor café cafe 9 2026 don't ice-cream straße пожар дым Ёлка москва שלום עולם حريق"
    " دخان हिन्दी में 東京 東京都 京都 東 大阪城 火 火事 소방서 서울 서울역 ไฟไหม้ ไฟ 🔥 👍"
)
_WORDS = _SENTENCE.split()


class SearchIndexContract:
    """The guarantees of every search index. Subclass it and provide `index` and `elsewhere`.

    `elsewhere` is the same index in another process. An index that needs earlier revisions to replace a document gets
    them by `earlier`.
    """

    @pytest.fixture
    def written(self) -> list[SearchableItem]:
        """Every revision that was added."""
        return []

    @pytest.fixture
    def earlier(self, written: list[SearchableItem]) -> ReadEarlier:
        """Reads earlier revisions."""

        async def read(revisions: Sequence[tuple[str, str, int]]) -> list[SearchableItem]:
            return [item for item in written if (item.stream, item.key, item.revision) in set(revisions)]

        return read

    @pytest.fixture
    async def add(self, index: SearchIndex, written: list[SearchableItem]) -> "Add":
        """Adds items to a new index."""
        state = await index.begin("1", 0)

        async def add(*items: SearchableItem) -> list[SearchDocument]:
            nonlocal state
            documents = [document_of(item) for item in items]
            after = replace(state, position=state.position + len(items), is_filling=False)
            assert await index.add(documents, state, after)
            written.extend(items)
            state = after
            return documents

        return add

    async def test_without_an_index_nothing_is_found(self, index: SearchIndex) -> None:
        """That there is none is visible in its state."""
        assert await index.read_state() is None
        assert await index.find(parse_query("fire")) == []
        assert await index.rank(parse_query("fire")) == []
        assert await index.list_streams() == await index.list_fields() == []

    async def test_queries_find_items(self, index: SearchIndex, add: "Add") -> None:
        """Words, phrases, beginnings of words, fields, in any script."""
        await add(
            an_item(1, {"text": "Fire in the harbour", "author": ["Ann Bee", "Carl"]}),
            an_item(2, {"text": "Fire and smoke: CAFÉ"}, deleted=True),
            an_item(3, {"text": "東京タワー、京都"}),
            an_item(4, {"title": "Fire drill", "text": "Drill on Monday"}),
        )
        expected = {
            "fire": "4 2 1",
            "FIRE harbour": "1",
            "fire OR 東京": "4 3 2 1",
            "fire -smoke": "4 1",
            "fire -(smoke OR drill)": "1",
            '"the harbour"': "1",
            '"harbour the"': "",
            '"fire in the"': "1",
            "har*": "1",
            '"the harb"*': "1",
            "京都": "3",
            "都": "3",
            "東京タワー": "3",
            "東京タワ": "3",
            "京タ": "3",
            "タ京": "",
            "cafe": "2",
            "title:fire": "4",
            'title:"fire drill"': "4",
            "title:smoke": "",
            "title:dri*": "4",
            "tit*": "",
            "author:ann": "1",
            'author:"ann bee"': "1",
            'author:"bee carl"': "",
            "is:deleted": "2",
            "fire -is:deleted": "4 1",
            '"drill drill"': "",
        }
        found = {query: " ".join(keys_of(await index.find(parse_query(query)))) for query in expected}
        assert found == expected

    async def test_newest_items_come_first(self, index: SearchIndex, add: "Add") -> None:
        """By their time, also if older items are added later, and page by page."""
        await add(*(an_item(number) for number in (5, 6, 7, 8)))
        await add(*(an_item(number) for number in (3, 1, 9, 2, 4)))
        fire = parse_query("fire")
        first = await index.find(fire, limit=4)
        second = await index.find(fire, before=first[-1].id, limit=4)
        third = await index.find(fire, before=second[-1].id, limit=4)
        assert keys_of([*first, *second, *third]) == [str(number) for number in range(9, 0, -1)]

    async def test_without_words_all_items_are_found(self, index: SearchIndex, add: "Add") -> None:
        """By time, page by page, of some streams or of a period, each in its newest revision."""
        await add(*(an_item(number, stream=f"test:{'ab'[number % 2]}") for number in range(1, 9)))
        await add(an_item(3, {"text": "smoke"}, stream="test:b", revision=2))
        first = await index.find(None, limit=5)
        assert keys_of(first) == ["8", "7", "6", "5", "4"]
        assert keys_of(await index.find(None, before=first[-1].id)) == ["3", "2", "1"]
        streams = SearchFilter(streams=frozenset({"test:b", "test:none"}), until=NOON + timedelta(minutes=6))
        assert keys_of(await index.find(None, streams)) == ["5", "3", "1"]
        many = frozenset({"test:a", *(f"test:{number}" for number in range(2 * MOST_STREAM_TOKENS))})
        await add(*(an_item(number, stream=f"test:{number}") for number in range(20, 20 + MOST_STREAM_TOKENS)))
        few = SearchFilter(streams=many, until=NOON + timedelta(minutes=10))
        assert keys_of(await index.find(None, few)) == ["8", "6", "4", "2"]
        assert keys_of(await index.find(None, few, limit=2)) == ["8", "6"]

    async def test_a_changed_item_is_found_by_its_new_words_only(self, index: SearchIndex, add: "Add") -> None:
        """Its time may change, too."""
        await add(an_item(1, {"text": "fire"}), an_item(2, {"text": "fire"}))
        await add(an_item(1, {"text": "smoke"}, revision=2, at=NOON + timedelta(hours=1)))
        assert keys_of(await index.find(parse_query("fire"))) == ["2"]
        [hit] = await index.find(parse_query("smoke"))
        assert (hit.stream, hit.key, hit.revision) == ("test:a", "1", 2)
        state = await index.read_state()
        assert state is not None
        assert state.documents == 2

    async def test_a_changed_item_needs_no_earlier_revision(
        self, index: SearchIndex, add: "Add", written: list[SearchableItem]
    ) -> None:
        """Even if the earlier revision is no longer stored, or is another one, its words are not found."""
        await add(an_item(1, {"text": "fire"}), an_item(2, {"text": "fire"}))
        written[:] = [an_item(2, {"text": "something else"})]
        await add(an_item(1, {"text": "smoke"}, revision=2), an_item(2, {"text": "smoke"}, revision=2))
        await add(an_item(3, {"text": "fire"}))
        assert keys_of(await index.find(parse_query("fire"))) == ["3"]
        assert keys_of(await index.find(parse_query("smoke"))) == ["2", "1"]

    async def test_an_earlier_or_known_revision_changes_nothing(self, index: SearchIndex, add: "Add") -> None:
        """While the index is filled, events are processed that are older than the items."""
        await add(an_item(1, {"text": "smoke"}, revision=3))
        await add(an_item(1, {"text": "fire"}, revision=2), an_item(2))
        await add(an_item(1, {"text": "fire"}, revision=3))
        assert keys_of(await index.find(parse_query("smoke"))) == ["1"]
        assert keys_of(await index.find(parse_query("fire"))) == ["2"]

    async def test_searches_are_limited_to_streams(self, index: SearchIndex, add: "Add") -> None:
        """To one, to a few, to many, or to one that the index does not have."""
        count = MOST_STREAM_TOKENS + 10
        names = [f"test:{number:03}" for number in range(count)]
        await add(*(an_item(number, stream=name) for number, name in enumerate(names)))
        fire = parse_query("fire")

        async def find(streams: Sequence[str]) -> list[str]:
            within = SearchFilter(streams=frozenset(streams))
            return [hit.stream for hit in await index.find(fire, within, limit=1000)]

        assert await find(["test:007"]) == ["test:007"]
        assert await find(["test:007", "test:009", "test:none"]) == ["test:009", "test:007"]
        assert await find(names[3:]) == names[:2:-1]
        assert await find(["test:none"]) == await find([]) == []
        ranked = await index.rank(fire, SearchFilter(streams=frozenset(names[3:])), limit=1000)
        assert sorted(hit.stream for hit in ranked) == names[3:]
        assert sorted(await index.list_streams()) == names
        assert sorted(await index.list_streams(f"{names[0][:-1]}*")) == [
            name for name in names if name.startswith(names[0][:-1])
        ]
        assert await index.list_streams("%") == await index.list_streams("_" * len(names[0])) == []

    async def test_searches_are_limited_to_a_time(self, index: SearchIndex, add: "Add") -> None:
        """From the first moment until before the last, to the second; also in the year 1 and the year 9999."""
        first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        await add(an_item(0, at=first), *(an_item(number) for number in range(1, 10)), an_item(99, at=last))
        fire = parse_query("fire")

        async def find(since: datetime | None, until: datetime | None) -> list[str]:
            return keys_of(await index.find(fire, SearchFilter(since=since, until=until)))

        assert await find(NOON + timedelta(minutes=8), None) == ["99", "9", "8"]
        assert await find(None, NOON + timedelta(minutes=2, seconds=-1)) == ["1", "0"]
        assert await find(NOON + timedelta(minutes=3), NOON + timedelta(minutes=5, seconds=-1)) == ["4", "3"]
        assert await find(first, None) == ["99", *map(str, range(9, -1, -1))]
        assert await find(NOON + timedelta(minutes=5), NOON + timedelta(minutes=3)) == []

    async def test_many_items_of_one_second_are_all_found(self, index: SearchIndex, add: "Add") -> None:
        """In the order in which they were added, and within their time."""
        count = 2500
        for start in range(0, count, 500):
            await add(*(an_item(number, at=NOON) for number in range(start, start + 500)))
        await add(an_item(count, at=NOON + timedelta(days=1)), an_item(count + 1, at=NOON - timedelta(days=1)))
        fire = parse_query("fire")
        within = SearchFilter(since=NOON, until=NOON + timedelta(seconds=1))
        found = [int(hit.key) for hit in await index.find(fire, within, limit=5000)]
        assert found == list(range(count - 1, -1, -1))
        every = [int(hit.key) for hit in await index.find(fire, limit=5000)]
        assert every == [count, *found, count + 1]

    async def test_the_state_moves_with_the_documents(self, index: SearchIndex, elsewhere: SearchIndex) -> None:
        """A process that builds from an outdated state changes nothing."""
        begun = await index.begin("1", 7)
        assert begun.is_filling
        assert await elsewhere.read_state() == begun
        after = replace(begun, position=9, event_id="test:a/1/1", is_filling=False)
        assert await index.add([document_of(an_item(1))], begun, after)
        assert not await elsewhere.add([document_of(an_item(2))], begun, after)
        found = await elsewhere.read_state()
        assert found is not None
        assert (found.position, found.event_id, found.documents, found.is_filling) == (9, "test:a/1/1", 1, False)
        assert keys_of(await elsewhere.find(parse_query("fire"))) == ["1"]

    async def test_a_new_beginning_empties_the_index(self, index: SearchIndex, elsewhere: SearchIndex) -> None:
        """A process that still builds the former index changes nothing."""
        begun = await index.begin("1", 0)
        assert await index.add([document_of(an_item(1, {"text": "fire", "place": "quay"}))], begun, begun)
        again = await elsewhere.begin("2", 5)
        assert again.build != begun.build
        assert not await index.add([document_of(an_item(2))], begun, begun)
        assert await index.read_state() == again
        assert await index.find(parse_query("fire")) == []
        assert await index.list_streams() == await index.list_fields() == []

    async def test_progress_without_documents_is_stored(self, index: SearchIndex) -> None:
        """The last page of items may be empty."""
        begun = await index.begin("1", 0)
        page = replace(begun, filled_to=("test:a", "ж"))
        assert await index.add([], begun, page)
        assert await index.add([], page, replace(begun, is_filling=False))
        found = await index.read_state()
        assert found is not None
        assert not found.is_filling

    async def test_fields_are_listed(self, index: SearchIndex, add: "Add") -> None:
        """So that a field that no item has is an error, and not an empty result."""
        await add(an_item(1, {"text": "fire", "Place": "quay", "link": "https://example.org/"}))
        assert sorted(await index.list_fields()) == ["place", "url"]

    async def test_the_best_matches_come_first(self, index: SearchIndex, add: "Add") -> None:
        """Words of the title count most, and repeated words count more than others."""
        filler = "many other words in a long text about the weather and the ferry " * 4
        await add(
            an_item(1, {"title": "Fire", "text": f"in the harbour {filler}"}),
            an_item(2, {"text": f"fire fire fire fire harbour {filler}"}),
            an_item(3, {"text": f"a fire was seen from the harbour {filler}"}),
        )
        assert keys_of(await index.rank(parse_query("fire")))[-1] == "3"
        assert keys_of(await index.rank(parse_query("fire harbour"), limit=2)) != ["3", "2"]
        assert keys_of(await index.rank(parse_query("title:fire"))) == ["1"]
        assert keys_of(await index.rank(parse_query("fire -title:fire"))) == ["2", "3"]

    async def test_both_ends_of_a_long_text_are_bounded(self, index: SearchIndex, add: "Add") -> None:
        """Words beyond the bounds are not found, and the item is marked. Repeated words keep their places."""
        repeated = "ab cd " * 1000
        await add(
            an_item(1, {"text": "fire " + "word " * 20_000 + "smoke"}),
            an_item(2, {"text": repeated + "fire smoke"}),
            an_item(3, {"text": " ".join(f"{number}{'字' * 60}" for number in range(12_000)) + " smoke"}),
            an_item(4, {"text": "x" * 1_000_000}),
            an_item(5, {"text": "fire\0\ud800 smoke"}),
            an_item(6, None),
            an_item(7, ["fire", {"deep": [["smoke"]]}]),
        )
        assert keys_of(await index.find(parse_query("fire"))) == ["7", "5", "2", "1"]
        assert keys_of(await index.find(parse_query("smoke"))) == ["7", "5", "2"]
        assert keys_of(await index.find(parse_query('"fire smoke"'))) == ["5", "2"]
        assert keys_of(await index.find(parse_query('"cd fire"'))) == []
        assert keys_of(await index.find(parse_query("is:cut"))) == ["4", "3", "2", "1"]
        assert keys_of(await index.find(parse_query("xxxx*"))) == ["4"]

    @pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.release) for seed in range(2, 30))])
    async def test_an_index_finds_what_a_scan_finds(self, index: SearchIndex, add: "Add", seed: int) -> None:
        """For random queries on random texts in many scripts, some of them changed."""
        chance = random.Random(seed)  # noqa: S311 - no secret
        documents: dict[str, SearchDocument] = {}
        for revision in (1, 2):
            chosen = range(120) if revision == 1 else chance.sample(range(120), 30)
            items = [an_item(number, _random_data(chance), revision=revision) for number in chosen]
            documents |= {document.key: document for document in await add(*items)}
        for _ in range(80):
            text = _random_query(chance)
            try:
                query = parse_query(text)
            except InvalidInput:
                continue
            expected = {key for key, document in documents.items() if matches(query, document.runs)}
            found = await index.find(query, limit=1000)
            assert set(keys_of(found)) == expected, text
            assert [hit.id for hit in found] == sorted((hit.id for hit in found), reverse=True)


Add = Callable[..., Awaitable[list[SearchDocument]]]


def an_item(
    number: int,
    data: Any = ...,
    *,
    stream: str = "test:a",
    revision: int = 1,
    at: datetime | None = None,
    deleted: bool = False,
) -> SearchableItem:
    """Return an item about a fire; higher numbers are newer, by a minute each."""
    when = NOON + timedelta(minutes=number) if at is None else at
    return SearchableItem(stream, str(number), revision, when, {"text": "fire"} if data is ... else data, deleted)


def keys_of(hits: Sequence[IndexHit]) -> list[str]:
    """Return the keys of hits, in their order."""
    return [hit.key for hit in hits]


def _random_data(chance: random.Random) -> dict[str, Any]:
    def text(most: int) -> str:
        words = [chance.choice(_WORDS) for _ in range(chance.randint(0, most))]
        return "".join(word + chance.choice((" ", " ", ", ", "", "-")) for word in words)

    data: dict[str, Any] = {"text": text(12)}
    if chance.random() < 0.4:
        data["title"] = text(4)
    if chance.random() < 0.4:
        data["author"] = [text(2) for _ in range(chance.randint(1, 3))]
    return data


def _random_query(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth < 3 and kind < 0.45:
        joined = chance.choice((" ", " OR ", " -", " AND "))
        parts = [_random_query(chance, depth + 1) for _ in range(chance.randint(2, 3))]
        return f"({joined.join(parts)})"
    word = chance.choice(_WORDS)
    if kind < 0.6:
        return '"{}"'.format(" ".join(chance.choice(_WORDS) for _ in range(chance.randint(1, 3))))
    if kind < 0.7:
        return f"{word[: chance.randint(1, len(word))]}*"
    if kind < 0.8:
        return f"{chance.choice(('title', 'author'))}:{word}"
    return word[: chance.randint(1, len(word))] if kind < 0.85 else word
