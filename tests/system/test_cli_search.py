"""`floodmark search` and `floodmark index` as they are typed, here and on a server."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import delete

from api_process import api_process
from command_line import CommandLine
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.settings import Settings
from floodmark.store.port import Event
from floodmark.store.tables import outbox
from floodmark.testing.factories import given_lease, settle
from floodmark.wiring.resources import open_resources

pytestmark = pytest.mark.spec("B5", "V4")

POSTS = (
    Item("1", {"title": "Ice on the river", "text": "Fire brigade \x1b[31mwarns", "link": "https://example.org/1"}),
    Item("2", {"title": "The ferry is back", "text": "東京タワー, <b>smoke</b> and [bold]fire[/]"}),
    Item("3", {"text": "fire drill"}, deleted=True),
)


def collect(folder: Path, *items: Item, relays: bool = True, forgets: bool = False) -> None:
    """Store items of a job as a worker does; with `forgets`, as long ago that their events are deleted."""

    async def work() -> None:
        settings = Settings(database_url=f"sqlite:///{folder}/.floodmark/floodmark.db")
        async with open_resources(settings) as resources:
            lease = await given_lease(resources, stream="news", tags=["daily"])
            await resources.keeping.keep(lease, Batch(items))
            await settle(resources, lease, Done())

            async def nowhere(_: Sequence[Event]) -> None: ...

            if relays:
                await resources.keeping.relay(nowhere, limit=100)
            if forgets:
                async with resources.database.writing() as connection:
                    await connection.execute(delete(outbox))

    asyncio.run(work())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path)


@pytest.fixture(params=["here", "there"])
def cli(request: pytest.FixtureRequest, here: CommandLine, tmp_path: Path) -> Iterator[CommandLine]:
    """Commands on the database itself, and through a server, with an index of three posts."""
    collect(tmp_path, *POSTS)
    if request.param == "here":
        yield here
        return
    with api_process(f"sqlite:///{tmp_path}/.floodmark/floodmark.db") as url:
        here.settings = {"FLOODMARK_URL": url}
        assert "There is no search index yet, so nothing is found." in here.good("search", "fire").err
        assert "3 items can be searched." in here.good("index", "update").out
        yield here


@pytest.mark.thorough
def test_items_are_found_and_shown(cli: CommandLine) -> None:
    found = cli.good("search", "fire", "-q")
    assert found.err == ""
    assert "news  3  " in found.out
    assert "deleted" in found.out
    assert "<b>smoke</b> and [bold]fire[/]" in found.out
    assert "Fire brigade \\u001b[31mwarns" in found.out
    assert "https://example.org/1" in found.out
    assert [hit["key"] for hit in cli.good("search", "fire", "--json").json] == ["3", "2", "1"]
    assert [hit["key"] for hit in cli.good("search", "fire -is:deleted", "--json").json] == ["2", "1"]
    [tower] = cli.good("search", "東京", "--json").json
    assert {"text": "東京", "is_match": True} in tower["snippet"]
    limited = cli.good("search", "fire", "--limit", "1")
    assert "Show more: --limit 2" in limited.out
    assert "Nothing found." in cli.good("search", "earthquake").out
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert cli.good("search", "fire", "--since", today, "--until", today, "--json").json
    assert cli.good("search", "fire", "--until", "1d", "--json").json == []
    filters = ("--stream", "ne*", "--tag", "daily", "--since", "1d", "--until", "2100-01-01", "--rank")
    assert len(cli.good("search", "fire", "OR", "ferry", *filters, "--json").json) == 3


def test_items_are_listed_without_words(cli: CommandLine) -> None:
    assert [hit["key"] for hit in cli.good("search", "--json", "--tag", "daily").json] == ["3", "2", "1"]
    assert [hit["key"] for hit in cli.good("latest", "--json", "--limit", "2").json] == ["3", "2"]
    assert "The ferry is back" in cli.good("latest").out


def test_mistakes_are_explained(here: CommandLine, tmp_path: Path) -> None:
    collect(tmp_path, *POSTS)
    here.refused("search", "colour:red", says="no item has a field 'colour'")
    here.refused("search", '"fire', says="has no end")
    here.refused("search", "--", "-fire", says="needs a word to search for")
    here.refused("search", "x" * 3000, says="characters")
    here.refused("search", "fire", "--tag", "none", says="no job has the tag 'none'")
    here.refused("search", "fire", "--since", "noon", says="neither a duration nor a date")
    assert "'fire -drill'" in here.refused("search", "fire", "-drill", says="No such option").err
    here.refused("search", "--rank", says="without words")


def test_the_index_is_shown_and_rebuilt(cli: CommandLine) -> None:
    cli.good("index", "update")
    assert "ready" in cli.good("index").out
    shown = cli.good("index", "show", "--json").json
    assert (shown["condition"], shown["items"], shown["is_followed"]) == ("ready", 3, False)
    assert cli("index", "rebuild").code != 0
    assert "3 items can be searched." in cli.good("index", "rebuild", "--yes").out


@pytest.mark.thorough
def test_without_a_scheduler_a_search_catches_up(here: CommandLine, tmp_path: Path) -> None:
    """Also on an installation from before there was an index; what it cannot find it names."""
    nothing = here.good("search", "fire")
    assert "Nothing found." in nothing.out
    assert nothing.err == ""
    assert "none yet: nothing was collected" in here.good("index").out
    assert not (tmp_path / ".floodmark").exists()

    collect(tmp_path, *POSTS, forgets=True)
    found = here.good("search", "fire", "--json")
    assert len(found.json) == 3
    assert found.err == ""

    collect(tmp_path, Item("4", {"text": "fire"}), relays=False)
    behind = here.good("search", "fire", "--json")
    assert len(behind.json) == 3
    assert "1 newer item cannot be found yet" in behind.err
    assert "Start `floodmark up`" in behind.err
    assert "behind: newer items are missing" in here.good("index").out


def test_a_search_without_search_says_so(here: CommandLine, tmp_path: Path) -> None:
    collect(tmp_path, *POSTS)
    here.settings["SEARCH_ENABLED"] = "false"
    here.refused("search", "fire", says="SEARCH_ENABLED is false", code=1)
    assert "off: SEARCH_ENABLED is false" in here.good("index").out
