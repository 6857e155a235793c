"""One report over all scanned domains: its findings, what has changed, and its files."""

import csv
import hashlib
import io
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pypdfium2
import pytest
from msgspec.structs import replace

from api.serving import served
from command_line import CommandLine
from cookies.conftest import patient
from cookies.kept import NOON, a_cookie, a_scan, keep_scans
from dashboard.site import serving_site
from floodmark.client import Client
from floodmark.exports.portfolio.printer import ChromiumPrinter
from floodmark.exports.portfolio.request import PortfolioRequest
from floodmark.exports.portfolio.writing import write_portfolio
from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.sources.cookies.findings import Alias, ScanRecord
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("B14")

HOSTILE = '=HYPERLINK("https://evil.test","x")<script>alert(1)</script>'
TRACKING: dict[str, Any] = {
    "purpose": "marketing",
    "vendor": "Trackers",
    "lifetime_seconds": 31_536_000,
    "set_by": "script",
    "set_by_url": "https://tracker.test/tag.js",
}


def a_site(domain: str, *names: str, **fields: Any) -> ScanRecord:
    cookies = [a_cookie("session", purpose="necessary", domain=domain)]
    return replace(
        a_scan(*cookies, *(a_cookie(name, domain=domain, **TRACKING) for name in names)), domain=domain, **fields
    )


async def keep_site(resources: Resources, domain: str, *scans: ScanRecord) -> None:
    """Keep scans of a domain."""
    job = f"cookies-{domain.replace('.', '-')}"
    await keep_scans(resources, *scans, stream=f"cookies:{domain}", target=domain, name=job)


async def keep_portfolio(resources: Resources) -> None:
    alias = Alias(
        host="m.b.test", chain=("b.eulerian.net",), site="eulerian.net", vendor="Eulerian", purpose="marketing"
    )
    await keep_site(resources, "a.test", a_site("a.test"), a_site("a.test"))
    await keep_site(resources, "b.test", a_site("b.test", "ads"), a_site("b.test", HOSTILE, "ads", aliases=(alias,)))
    await keep_site(resources, "c.test", a_site("c.test", "ads"), a_site("c.test"))


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


async def test_every_domain_is_compared_with_the_last_report(resources: Resources) -> None:
    await keep_portfolio(resources)
    here = LocalOperations(resources, Actor(who="someone"))
    rows = {row.domain: row async for row in here.each_cookie_portfolio(limit=2)}
    assert list(rows) == ["a.test", "b.test", "c.test"]
    assert [row.severity for row in rows.values()] == [None, "high", None]
    assert [finding.code for finding in rows["b.test"].findings] == ["set_before_consent", "cloaked_third_party"]
    assert {finding.state for finding in rows["b.test"].findings} == {"first"}
    assert rows["b.test"].listed[0].set_by_url == "https://tracker.test/tag.js"
    assert rows["b.test"].listed[0].phases == ("before", "accept")

    since = NOON + timedelta(hours=1)
    earlier = {row.domain: row async for row in here.each_cookie_portfolio(since=since)}
    assert [finding.state for finding in earlier["b.test"].findings] == ["new", "new"]
    assert earlier["c.test"].gone == (
        "Cookies before consent: 1 cookie for statistics or marketing was set before consent.",
    )
    assert earlier["b.test"].changes[0].startswith("1 new cookie before consent: =HYPERLINK")
    assert not earlier["a.test"].has_changed

    scans = {row.stream: row.scan for row in rows.values()}
    async with served(resources) as api, Client(api.base) as client:
        made = await client.record_portfolio_report(scans, format="csv", findings=2, sha256="0" * 64)
        assert (made.domains, made.findings, made.format) == (3, 2, "csv")
        assert await client.portfolio_reports() == await here.portfolio_reports() == [made]
        now = {row.domain: row async for row in client.each_cookie_portfolio()}
        assert now == {row.domain: row async for row in here.each_cookie_portfolio()}
    assert [finding.state for finding in now["b.test"].findings] == ["known", "known"]
    assert not any(row.has_changed for row in now.values())
    second = await here.record_portfolio_report({"cookies:a.test": "scan-1"}, format="html")
    assert second.report_id > made.report_id
    assert (await here.audit(limit=1)).items[0].action == "portfolio.recorded"


@pytest.fixture
def line(tmp_path: Path, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, DATABASE_URL=sqlite_copy)


@pytest.fixture
async def kept(sqlite: Opened) -> None:
    async with sqlite() as resources:
        await keep_portfolio(resources)


@pytest.mark.thorough
def test_files_for_people_and_programs(kept: None, line: CommandLine, tmp_path: Path) -> None:
    shown = line.good(
        "report", "cookies", "--all", "--since", "2026-06-01T13:00", "--out", "all.csv", "--no-record"
    ).out
    assert "3 domains; findings: 1 serious, 1 significant, 0 to be assessed" in shown
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text(encoding="utf-8"))))
    assert [(row["domain"], row["severity"], row["since_last_report"]) for row in rows] == [
        ("a.test", "No finding", ""),
        ("b.test", "Serious", "new"),
        ("b.test", "Significant", "new"),
        ("c.test", "No finding", ""),
    ]
    assert rows[1]["evidence"].startswith("'=HYPERLINK"), "no cell is a formula"

    line.good("report", "cookies", "--all", "--format", "xlsx", "--out", "all.xlsx")
    book = openpyxl.load_workbook(tmp_path / "all.xlsx")
    assert book.sheetnames == ["About", "Summary", "Findings", "Changes", "Cookies"]
    found = list(book["Findings"].values)
    assert [row[:3] for row in found[1:]] == [
        ("Serious", "b.test", "Cookies before consent"),
        ("Significant", "b.test", "Third party under a name of the site"),
    ]
    assert all(cell.data_type != "f" for sheet in book for row in sheet.iter_rows() for cell in row)

    written = line.good("report", "cookies", "--all", "--out", "all.html", "--evidence", "evidence", "--json").json
    assert (written["domains"], written["report_id"], written["changed"]) == (3, 2, 0)
    page = (tmp_path / "all.html").read_bytes()
    assert hashlib.sha256(page).hexdigest() == written["sha256"]
    text = page.decode()
    assert "Changes since report 1 of " in text
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert 'href="evidence/b.test/report.html"' in text
    assert (tmp_path / "evidence" / "b.test" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.glob(".*.part")] == []


def test_what_cannot_be_written_is_refused(line: CommandLine) -> None:
    line.refused("report", "cookies", "--all", says="--all writes a file, and none is named")
    line.refused("report", "cookies", "--all", "--out", "a.doc", says="'doc' is not a format")
    line.refused("report", "cookies", "--all", "--out", "a.csv", says="no domain was scanned yet")
    line.refused("report", "cookies", "a.test", "--all", "--out", "a.csv", says="--all is about every domain")
    line.refused("report", "cookies", says="no domain is named")
    line.refused("report", "cookies", "a.test", "--format", "csv", says="--format needs --all")


async def test_the_dashboard_shows_the_portfolio_and_sends_it(sqlite: Opened) -> None:
    async with serving_site(sqlite) as site:
        async with site.client(await site.token("admin")) as client:
            assert "No domain was scanned yet" in (await client.get("/portfolio")).text
        await keep_portfolio(site.resources)
        async with site.client(await site.token("read")) as client:
            shown = (await client.get("/portfolio")).text
            assert "Cookies before consent<br>Third party under a name of the site" in shown
            assert "/item/cookies%3Ab.test/scan-2" in shown
            sent = await client.get("/portfolio/file?format=csv")
            assert sent.headers["content-type"] == "text/csv; charset=utf-8"
            assert len(list(csv.DictReader(io.StringIO(sent.text)))) == 4
            assert (await client.get("/portfolio/file?format=doc")).status_code == 400
        assert await site.operations.portfolio_reports() == []
        async with site.client(await site.token("operate")) as client:
            hidden = re.search(r'name="([^"]*csrf[^"]*)" value="([^"]+)"', (await client.get("/portfolio")).text)
            assert hidden is not None
            form = {hidden[1]: hidden[2], "format": "html", "record": "true"}
            sent = await client.post("/portfolio/file", data=form)
            assert sent.text.startswith("<!doctype html>")
            assert "/api/v2/reports/cookies/cookies%3Ab.test/html?scan=scan-2" in sent.text
        [made] = await site.operations.portfolio_reports()
        assert (made.domains, made.findings) == (3, 2)
        assert made.sha256 == hashlib.sha256(sent.content).hexdigest()


@pytest.mark.thorough
async def test_a_pdf_is_printed_without_the_network(sqlite: Opened, chromium: Path, tmp_path: Path) -> None:
    async with sqlite() as resources:
        await keep_portfolio(resources)
        here, out = LocalOperations(resources, Actor(who="someone")), tmp_path / "all.pdf"
        request = PortfolioRequest(format="pdf", out=out, made_at=NOON)
        await write_portfolio(here, request, ChromiumPrinter(patient()))
    document = pypdfium2.PdfDocument(out)
    text = "".join(page.get_textpage().get_text_range() for page in document)
    assert "Cookie report" in text
    assert "Serious: 1 finding" in text
    document.close()
