"""Previews: what a job would collect, before anything is stored."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from api.serving import Api, served
from floodmark import Floodmark
from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings
from floodmark.testing.web import Entry, Site, no_answer, redirect, rss

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10")]


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        site.robots("User-agent: *\nDisallow: /private")
        site.page("/", "Ships come and go.", title="Harbour <b>", links=["/a", "https://elsewhere.example/"])
        site.always("/old", redirect("/", 301))
        yesterday = datetime.now(UTC) - timedelta(days=1)
        entries = [Entry(id=str(n), link=f"/{n}", title=f"Ship {n}", at=yesterday + timedelta(n)) for n in range(30)]
        site.xml("/news", rss(entries, title="Ships"))
        yield site


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return Settings(database_url=request.getfixturevalue(request.param), http_allow_hosts="127.0.0.1")


@pytest_asyncio.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    app = Floodmark(settings)
    async with app.open() as resources, served(resources, sources=app.sources(imports=False)) as api:
        yield api


async def look(api: Api, target: str, **options: Any) -> dict[str, Any]:
    answer = await api.post("preview", json={"target": target, **options})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_feed_is_found_behind_any_address(api: Api, site: Site) -> None:
    found = await look(api, f"{site.url}/news")
    assert (found["source"], found["title"], found["count"]) == ("feed", "Ships", 30)
    assert [item["title"] for item in found["items"]] == [f"Ship {n}" for n in range(29, 19, -1)]
    assert found["collects"].startswith("The entries of a feed: 30 entries now")
    assert (await api.get("jobs")).json()["items"] == []
    assert (await api.get("streams")).json()["items"] == []


async def test_a_page_shows_its_text_and_its_links(api: Api, site: Site) -> None:
    found = await look(api, f"{site.url}/old")
    assert (found["source"], found["title"], found["items"][0]["text"]) == (
        "web",
        "Harbour <b>",
        "Harbour <b>\nShips come and go.",
    )
    assert found["collects"].endswith("It links to 1 page of the site.")
    assert found["sources"][0] == "web"


async def test_a_job_that_collects_it_already_is_named(api: Api, site: Site) -> None:
    await api.job("ships", source="feed", target=f"{site.url}/news")
    assert (await look(api, f"{site.url}/news"))["jobs"] == ["ships"]
    assert (await look(api, f"{site.url}/"))["jobs"] == []
    listed = (await api.get("jobs", params={"target": f"{site.url}/news"})).json()["items"]
    assert [job["name"] for job in listed] == ["ships"]


async def test_what_keeps_a_target_from_being_collected_is_said(api: Api, site: Site) -> None:
    site.forget()
    assert "robots.txt" in (await look(api, f"{site.url}/private"))["note"]
    assert site.paths() == ["/robots.txt"]
    assert "404" in (await look(api, f"{site.url}/nothing"))["note"]
    site.always("/slow", no_answer())
    impatient = LocalOperations(api.resources, Actor(who="tests"), deadline=timedelta(seconds=0.2))
    assert (await impatient.preview(f"{site.url}/slow")).note == "it has not answered within 0.2 s"
    unseen = await look(api, f"{site.url}/slow", fetch=False)
    assert (unseen["note"], unseen["items"]) == (None, [])


async def test_a_channel_without_an_account_says_how_to_add_one(api: Api) -> None:
    found = await look(api, "https://t.me/Example_News/7")
    assert (found["source"], found["target"], found["schedule"]) == ("telegram", "@example_news", "every 5 min")
    assert found["missing"] == "No Telegram account is set up yet. Add one: floodmark accounts add NAME --phone +..."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "hello world"}, "is not a target of any source"),
        ({"target": "http://10.0.0.1/"}, "10.0.0.1 is not a public address"),
        ({"target": "example.com", "source": "nonsense"}, "there is no source 'nonsense'"),
        ({"target": "hello world", "source": "telegram"}, "is not the name of a channel"),
    ],
)
async def test_a_wrong_target_is_refused(api: Api, given: dict[str, str], message: str) -> None:
    answer = await api.post("preview", json=given)
    assert answer.status_code == 400
    assert message in answer.json()["detail"]
