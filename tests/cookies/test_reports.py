"""Reports of scans that were kept: on the command line, over the API, and from Python."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from api.serving import Api, served
from command_line import CommandLine
from cookies.kept import a_cookie, a_scan, keep_scans
from floodmark.client import Client
from floodmark.errors import Conflict, NotFound
from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.sources.cookies.findings import ScanRecord
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("E8")

PICTURE = b"\x89PNG\r\n\x1a\n and so on"


def older() -> ScanRecord:
    return a_scan(a_cookie("session", purpose="necessary"))


def newer() -> ScanRecord:
    third = {"domain": ".tracker.test", "party": "third", "purpose": "marketing", "vendor": "Trackers"}
    found = a_scan(
        a_cookie("session", purpose="necessary"),
        a_cookie("[bold]\x1b[31m", **third, lifetime_seconds=31_535_998),
        *(a_cookie(name, **third) for name in ("a", "b")),
    )
    return replace(found, phases=(replace(found.phases[0], picture=PICTURE), *found.phases[1:]))


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.mark.thorough
async def test_reports_are_told_over_the_api(resources: Resources) -> None:
    await keep_scans(resources, older(), newer())
    async with served(resources) as api:
        last = (await api.get("reports/cookies/Example.com")).json()
        assert (last["scan"], last["earlier"], last["stream"]) == ("scan-2", "scan-1", "cookies:example.com")
        assert last["report"]["summary"] == (
            "before consent: 4 cookies, 3 of them of third parties; "
            "after accepting: 4 cookies, 3 of them of third parties"
        )
        first = (await api.get("reports/cookies/cookies-example-com?scan=scan-1")).json()
        assert (first["scan"], first["earlier"]) == ("scan-1", None)

        page = await api.get("reports/cookies/example.com/html")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "sandbox" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        picture = await api.get("reports/cookies/example.com/files/before.png")
        assert (picture.content, picture.headers["content-type"]) == (PICTURE, "image/png")

        told = (await api.get("reports/cookies/example.com/difference")).json()
        assert told["summary"][0].startswith("3 new cookies before consent: ")
        await _refused(api)


async def _refused(api: Api) -> None:
    for path, status, says in (
        ("reports/cookies/nothing.test", 404, "there is no scan of nothing.test yet"),
        ("reports/cookies/example.com?scan=scan-9", 404, "there is no scan 'scan-9' of example.com"),
        ("reports/cookies/example.com/files/..%2Fsecret", 404, "the report has no file"),
        ("reports/cookies/example.com/difference?scan=scan-1", 409, "there is only one scan of example.com"),
    ):
        refused = await api.get(path)
        assert (refused.status_code, refused.json()["detail"][: len(says)]) == (status, says)
        assert refused.json()["hint"]


async def test_here_and_from_far_away_tell_the_same(sqlite: Opened) -> None:
    async with sqlite() as resources:
        await keep_scans(resources, older(), newer())
        here = LocalOperations(resources, Actor(who="someone"))
        async with served(resources) as api, Client(api.base) as client:
            assert await client.cookie_report("example.com") == await here.cookie_report("example.com")
            assert await client.cookie_file("example.com", "before.png") == PICTURE
            compared = await client.cookie_difference("example.com", "scan-1", against="scan-2")
            assert compared == await here.cookie_difference("example.com", "scan-1", "scan-2")
            assert [len(phase.gone_cookies) for phase in compared.phases] == [3, 3]
            with pytest.raises(NotFound, match="there is no scan"):
                await client.cookie_report("nothing.test")
            with pytest.raises(Conflict, match="only one scan"):
                await client.cookie_difference("example.com", "scan-1")


@pytest.fixture
def line(tmp_path: Path, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, DATABASE_URL=sqlite_copy)


@pytest.fixture
async def kept(sqlite: Opened) -> None:
    async with sqlite() as resources:
        await keep_scans(resources, older(), newer())


def test_the_last_report_is_shown(kept: None, line: CommandLine, tmp_path: Path) -> None:
    shown = line.good("report", "cookies", "example.com").out
    assert shown.startswith("Scan complete: 1 finding  example.com\n1. 3 cookies for statistics or marketing were set")
    assert "Before consent: 4 cookies, 3 of third parties" in shown
    assert 'After accepting: 4 cookies, 3 of third parties; pressed "Fine" (OneTrust)' in shown
    assert "marketing  Trackers  1 year" in shown
    assert "\x1b" not in shown, "names of cookies do not steer the terminal"
    assert "scan-2" in shown

    compared = line.good("report", "cookies", "example.com", "--diff").out
    assert "- 3 new cookies before consent: " in compared
    assert line.good("report", "cookies", "example.com", "--json").json["earlier"] == "scan-1"
    same = ("report", "cookies", "example.com", "--diff", "--scan", "scan-1", "--against", "scan-1")
    assert "Nothing has changed." in line.good(*same).out

    line.good("report", "cookies", "example.com", "--out", "found")
    sums = (tmp_path / "found" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    files = {name: digest for digest, name in (row.split("  ") for row in sums)}
    assert set(files) == {"report.html", "report.json", "before.png"}
    for name, digest in files.items():
        assert hashlib.sha256((tmp_path / "found" / name).read_bytes()).hexdigest() == digest
    assert json.loads((tmp_path / "found" / "report.json").read_bytes())["domain"] == "example.com"


def test_the_page_is_opened(kept: None, line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", opened.append)
    line.good("report", "cookies", "cookies-example-com", "--open")

    [url] = opened
    page = Path(url.removeprefix("file://"))
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_cannot_be_reported_is_refused(kept: None, line: CommandLine) -> None:
    line.refused("report", "cookies", "nothing.test", says="there is no scan of nothing.test yet")
    line.refused("report", "cookies", "example.com", "--diff", "--open", says="--diff prints a comparison")
    line.refused("report", "cookies", "example.com", "--against", "scan-1", says="--against needs --diff")


def test_a_scan_is_added(line: CommandLine) -> None:
    added = line.good(
        *("add", "cookies", "https://Example.com/", "--daily", "02:00", "--tz", "Europe/Berlin", "--deep"),
        *("--max-pages", "50", "--depth", "5", "--page-retries", "3", "--custom-page", "/a", "--custom-page", "/b"),
        *("--accept-selector", "#yes", "--json"),
    ).json
    assert (added["name"], added["target"], added["domain"]) == ("cookies-example-com", "example.com", "example.com")
    assert (added["frequency"], added["timezone"]) == ("daily", "Europe/Berlin")
    assert added["params"] == {
        "allow_deep_scan": True,
        "maxPages": 50,
        "scanDepth": 5,
        "maxRetries": 3,
        "customPages": ["/a", "/b"],
        "accept_selector": "#yes",
    }
    line.refused("add", "cookies", "example.com", says="cookies-example-com already collects example.com")
    line.refused("add", "cookies", "example.com/page", says="is a page, but a scan needs a domain")
    line.refused("add", "cookies", "example.org", "--custom-page", "https://a.test/", says="is not a page of")
