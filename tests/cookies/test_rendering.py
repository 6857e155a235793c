"""Pages of crawls in a real browser: what their scripts show is collected, and the guard holds."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from floodmark.model.notes import notes_of
from floodmark.sources.cookies.pool import Pool
from floodmark.sources.web.extract import SCRIPTED
from floodmark.testing.web import Site
from web_desk import LONG, working

pytest_plugins = ("backends",)

SHELL = """<!doctype html><html><head><title>Shop</title></head><body><div id=app></div><script>
const show = html => { document.querySelector("#app").innerHTML = html; };
%s
</script></body></html>"""


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


def settings(site: Site, chromium: Path) -> dict[str, Any]:
    return {"floodmark_chromium": chromium, "web_render_timeout": timedelta(seconds=60), "cookies_sandbox": False}


def script(site: Site, path: str, code: str) -> None:
    site.put(path, SHELL % code, content_type="text/html; charset=windows-1252", has_etag=True)


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_what_scripts_show_is_collected(site: Site, sqlite_copy: str, chromium: Path) -> None:
    """Without a browser the notes name the option. With it content and links are read, in spite of an ETag."""
    links = "<a href=/list>list</a><a href=/moved>m</a><a href=/private>p</a><a href=/empty>e</a>"
    load = f"setTimeout(() => fetch('/text').then(r => r.text()).then(t => show(`<p>${{t}} </p>{links}`)), 100)"
    script(site, "/", load)
    site.put("/text", f"Öl und mehr. {LONG}", content_type="text/plain; charset=utf-8")
    script(site, "/list", "setTimeout(() => show('<ul><li>a</li><li>b</li></ul>' + 'Words. '.repeat(30)), 200)")
    script(site, "/list?rows=1", "setTimeout(() => show('<ul><li>a</li><li>b</li></ul>'), 200)")
    script(site, "/moved", "location.replace('/list')")
    script(site, "/private", "fetch('http://169.254.169.254/').then(r => show('reached')).catch(e => show('refused'))")
    script(site, "/empty", "")
    async with working(site, sqlite_copy, **settings(site, chromium)) as desk:
        unread = await desk.run(await desk.job(f"{site.url}/list", sitemaps=False))
        assert SCRIPTED.endswith("--render")
        assert SCRIPTED in str(unread.error_message)
        job = await desk.job(render=True, sitemaps=False)
        first = await desk.run(job)
        found = {path: row["data"]["text"] for path, row in (await desk.items(job)).items()}
        assert set(found) == {"/", "/list", "/private"}
        assert found["/"].startswith("Öl und mehr.")
        assert found["/list"].startswith("a\nb\nWords.")
        assert "reached" not in found["/private"]
        notes = await desk.notes(job)
        assert notes["/moved"] == f"its script leads to {site.url}/list"
        assert notes["/empty"] == "has no text, even after its scripts have run"
        assert first.result["failed"] == 0
        agents = {seen.headers["User-Agent"] for seen in site.seen if seen.path == "/text"}
        assert all("Chrome/" in agent and "floodmark/" in agent for agent in agents)

        site.put("/text", f"Nothing else has changed but this. {LONG}", content_type="text/plain")
        second = await desk.run(job)
        assert (second.result["changed"], second.result["failed"]) == (1, 0)

        rows = await desk.job(f"{site.url}/list?rows=1", render=True, wait_for="li", select="li", max_pages=1)
        await desk.run(rows)
        assert {row["data"]["text"] for row in (await desk.items(rows)).values()} == {"a", "b"}
        site.remove("/text")


@pytest.mark.spec("B15")
@pytest.mark.release
async def test_an_endless_script_costs_one_page(site: Site, sqlite_copy: str, chromium: Path) -> None:
    script(site, "/", "show('<a href=/endless>e</a><a href=/late>l</a>')")
    script(site, "/endless", "while (true) {}")
    script(site, "/late", f"show({'Late. ' * 30!r})")
    quick = {**settings(site, chromium), "web_render_timeout": timedelta(seconds=5)}
    async with working(site, sqlite_copy, **quick) as desk:
        job = await desk.job(render=True, sitemaps=False, wait_for="#never", concurrency=1)
        run = await desk.run(job)
        assert "its scripts do not end" in run.result["troubles"][f"{site.url}/endless"]
        assert "/late" in await desk.collected(job)
        assert any("did not show in time what --wait-for names" in note for note in notes_of(run.result))


@pytest.mark.spec("B15")
@pytest.mark.release
async def test_browsers_of_crawls_are_limited_and_end_with_the_worker(
    site: Site, sqlite_copy: str, chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[Pool] = []
    opened = Pool.__init__

    def remember(pool: Pool, *arguments: Any) -> None:
        pools.append(pool)
        opened(pool, *arguments)

    monkeypatch.setattr(Pool, "__init__", remember)
    for path in ("/", "/a", "/b", "/c"):
        script(site, path, f"show('<a href=/a>a</a><a href=/b>b</a><a href=/c>c</a>' + 'I am {path}. '.repeat(30))")
    async with working(site, sqlite_copy, **settings(site, chromium)) as desk:
        job = await desk.job(render=True, sitemaps=False, concurrency=4)
        assert (await desk.run(job)).result["new"] == 4
        assert sum(pool.started for pool in pools) == 1
    assert not any(pool._free for pool in pools)
