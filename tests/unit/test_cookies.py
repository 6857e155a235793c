"""What a cookie scan decides without a browser: names, parties, purposes, differences, and the page of the report."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cookies.kept import NOON, a_cookie, a_scan
from floodmark.errors import InvalidInput
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.sources.cookies.blocked import why_blocked
from floodmark.sources.cookies.browser import BrowserMissing, find_chromium
from floodmark.sources.cookies.difference import difference
from floodmark.sources.cookies.findings import Banner, Contact, PhaseFound, ScanRecord, Stored, Visit
from floodmark.sources.cookies.params import complete_spec, custom_urls, normalize_domain, parse_params
from floodmark.sources.cookies.parties import party_of, registrable_domain
from floodmark.sources.cookies.purposes import PURPOSES, find_purpose, known_cookies
from floodmark.sources.cookies.report import make_report, scan_result, upgrade_report

pytestmark = pytest.mark.spec("E8")


def report_of(found: ScanRecord) -> dict[str, Any]:
    return make_report(found, began=NOON, seconds=1)[0]


@pytest.mark.parametrize(
    ("said", "domain"),
    [
        ("example.com", "example.com"),
        (" Example.COM. ", "example.com"),
        ("https://example.com/", "example.com"),
        ("example.com:443", "example.com"),
        ("http://example.com", "example.com"),
        ("example.com:8443", "example.com:8443"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2606:2800::1]:8443", "[2606:2800::1]:8443"),
        ("localhost", "localhost"),
    ],
)
def test_a_domain_has_one_form(said: str, domain: str) -> None:
    assert normalize_domain(said) == domain
    assert normalize_domain(domain) == domain


@pytest.mark.parametrize(
    "said",
    [
        *("", "two words", "example.com/page", "https://example.com/?a=1", "ftp://example.com", "user@example.com"),
        *("example.com:99999", "-.com", "1.2.3", "a" * 300, "exa mple.com", "file:///etc/passwd", "javascript:x"),
    ],
)
def test_what_is_no_domain_is_refused(said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        normalize_domain(said)
    assert caught.value.hint


def test_params_are_as_others_write_them() -> None:
    said = {"allow_deep_scan": True, "maxPages": 50, "scanDepth": 5, "maxRetries": 3, "customPages": ["/a", "b"]}
    params = parse_params({**said, "accept_selector": None, "description": "not for us"})

    assert (params.allow_deep_scan, params.max_pages, params.scan_depth, params.max_retries) == (True, 50, 5, 3)
    assert params.accept_selector is None
    assert custom_urls(params, "https://example.com/") == ["https://example.com/a", "https://example.com/b"]
    assert parse_params({"maxPages": "7"}).max_pages == 7, "as --param gives it"


@pytest.mark.parametrize(
    "wrong", [{"maxPages": 0}, {"scanDepth": -1}, {"maxPages": "many"}, {"customPages": "/a"}, {"accept_selector": ""}]
)
def test_params_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        parse_params(wrong)


def test_a_job_is_completed() -> None:
    spec = JobSpec(source="cookies", target="https://Example.com", when=When(schedule_type=ScheduleType.EVENT))

    made = complete_spec(spec)
    assert (made.target, made.domain, made.stream) == ("example.com", "example.com", None)
    assert complete_spec(replace(spec, tenant_id="t")).stream == "cookies:t:example.com"
    complete_spec(
        replace(spec, params={"customPages": ["/a", "https://www.example.com/b", "https://blog.example.com/"]})
    )
    for page in ("https://example.org/", "//example.org/a", "javascript:alert(1)"):
        with pytest.raises(InvalidInput, match="is not a page of example"):
            complete_spec(replace(spec, params={"customPages": [page]}))


def test_parties_are_told_by_the_registrable_domain() -> None:
    assert registrable_domain("www.shop.example.co.uk") == "example.co.uk"
    assert registrable_domain("someone.github.io") == "someone.github.io"
    assert registrable_domain("shop.test") == "shop.test"
    assert registrable_domain("127.0.0.1") == "127.0.0.1"
    assert party_of("cdn.example.com", "example.com") == "first"
    assert party_of("example.com.evil.net", "example.com") == "third"
    assert party_of("other.github.io", "someone.github.io") == "third"


def test_purposes_come_from_the_table_or_are_unknown() -> None:
    assert {row.purpose for row in known_cookies()} <= set(PURPOSES) - {"unknown"}
    assert len({(row.name, row.domain) for row in known_cookies()}) == len(known_cookies()), "each once"
    assert (find_purpose("_ga_ABC123", "example.com").purpose, find_purpose("_ga", ".example.com").vendor) == (
        "statistics",
        "Google Analytics",
    )
    assert find_purpose("IDE", ".doubleclick.net").purpose == "marketing"
    assert find_purpose("IDE", "example.com").purpose == "unknown", "a name that anybody may use"
    assert find_purpose("_gat", "notgoogle.com").about == "Slows down requests."
    assert find_purpose("xyz", "example.com").purpose == "unknown"
    assert (find_purpose("cc_cookie", "a.test").purpose, find_purpose("fides_consent", "a.test").vendor) == (
        "necessary",
        "Fides",
    )


@pytest.mark.parametrize(
    ("status", "title", "text", "is_blocked"),
    [
        (200, "Shop", "Welcome", False),
        (403, "Shop", "Welcome", True),
        (429, "", "", True),
        (404, "Not found", "No such page", False),
        (200, "Just a moment...", "", True),
        (200, "Attention Required! | Cloudflare", "", True),
        (200, "", "Please verify you are human to go on.", True),
        (200, "", "Our tutorial: how to add a captcha to your forms", False),
        (200, "", "Access denied. " + "Long text about the film of that name. " * 100, False),
    ],
)
def test_pages_for_programs_are_recognised(status: int, title: str, text: str, is_blocked: bool) -> None:
    assert (why_blocked(status, title, text) is not None) is is_blocked


def test_two_scans_are_compared() -> None:
    old = a_scan(
        a_cookie("kept", lifetime_seconds=86_400),
        a_cookie("gone"),
        a_cookie("longer", lifetime_seconds=3600),
        contacts=(Contact(host="a.test", site="a.test", requests=1, types={"image": 1}),),
    )
    new = a_scan(
        a_cookie("kept", lifetime_seconds=86_398, value_sha256="1" * 64),
        a_cookie("longer", lifetime_seconds=7200, secure=False),
        *(a_cookie(name, purpose="marketing") for name in ("x", "y", "z")),
        storage=(Stored(origin="https://example.com", area="local", key="k", size=1, party="first"),),
    )
    new = replace(new, phases=new.phases[:1])
    found = difference(report_of(old), report_of(new))

    assert found.summary == (
        "3 new cookies before consent: x (example.com, marketing), y (example.com, marketing), "
        "z (example.com, marketing)",
        "1 cookie gone before consent: gone (example.com, unknown)",
        "longer (example.com) changed before consent: secure True -> False, lifetime_seconds 3600 -> 7200",
        "1 host of third parties gone before consent: a.test",
        "1 new key in storage before consent: https://example.com local k",
        'after accepting: "not scanned", was "complete"',
        "3 cookies gone after accepting: kept (example.com, unknown), gone (example.com, unknown), "
        "longer (example.com, unknown)",
        "1 host of third parties gone after accepting: a.test",
    )
    assert difference(report_of(new), report_of(new)).summary == ()


def test_the_page_escapes_all_that_comes_from_elsewhere() -> None:
    evil = '"><script>alert(1)</script>'
    found = a_scan(
        a_cookie(evil, domain=evil, path=evil, about=evil, vendor=evil, set_from=evil, partition=evil),
        storage=(Stored(origin=evil, area="local", key=evil, size=1, party="third"),),
        contacts=(Contact(host=evil, site=evil, requests=1, types={evil: 1}),),
        note=evil,
        left_out=(evil,),
    )
    found = replace(found, domain=evil, final=evil, browser=evil, notes=(evil,))
    phase = replace(
        found.phases[1],
        banner=Banner(name=evil, button=evil),
        visits=(Visit(url=evil, result="complete", title=evil, note=evil),),
        picture=b"png",
    )
    report, blobs = make_report(replace(found, phases=(found.phases[0], phase)), began=NOON, seconds=1)

    [page] = [blob.content.decode() for blob in blobs if blob.media_type.startswith("text/html")]
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 15
    assert "default-src 'none'" in page
    assert report["manifest"]["accept.png"]["size"] == 3


def test_the_first_phase_that_has_something_to_tell_tells_it() -> None:
    def phases(*results: Any) -> list[PhaseFound]:
        names: Any = ("before", "accept", "reject")
        return [PhaseFound(phase=name, result=result) for name, result in zip(names, results, strict=False)]

    assert scan_result(phases("complete", "complete", "complete")) == "scan complete"
    assert scan_result(phases("complete", "complete", "no such button")) == "scan complete"
    assert scan_result(phases("complete", "banner not found", "banner not found")) == "banner not found"
    assert scan_result(phases("time-out")) == "time-out"


def test_findings_name_cookie_setter_time_and_phase() -> None:
    early = a_cookie(
        "_ga",
        purpose="statistics",
        vendor="Google Analytics",
        set_by="script",
        set_by_url="https://tags.test/a.js",
        set_from="tags.test",
        set_at=NOON.timestamp() + 1.5,
        first_seen_on="https://example.com/",
        lifetime_seconds=31_535_990,
    )
    found = a_scan(a_cookie(purpose="necessary"), early, a_cookie("x1"), began_at=NOON.timestamp())
    reject = PhaseFound(
        phase="reject", result="no such button", banner=Banner(name="A", button="More", steps=("More",))
    )
    report = report_of(replace(found, phases=(*found.phases, reject)))

    assert (report["result"], [finding["code"] for finding in report["findings"]]) == (
        "scan complete",
        ["set_before_consent", "no_way_to_reject", "unknown_before_consent"],
    )
    first, second, _ = report["findings"]
    assert first["text"] == "1 cookie for statistics or marketing was set before consent."
    assert list(first["evidence"]) == [
        "_ga (Google Analytics, statistics; first party, example.com): set by the script https://tags.test/a.js on "
        "https://example.com/ at 2026-06-01 12:00:01 UTC, 1.5 s after the visit began; kept for 1 year."
    ]
    assert list(second["evidence"]) == [
        'Accepting takes 1 step: "Fine".',
        'After pressing "More", no button to reject or to save a choice was found.',
    ]
    assert list(report).index("findings") < list(report).index("phases"), "they stand first"


def test_reports_of_the_first_schema_are_read_and_compared() -> None:
    """As they were stored: other results, no findings, fewer fields."""
    new = report_of(a_scan(a_cookie("_fbp", purpose="marketing")))
    old = {**new, "schema": "floodmark.cookies/1", "result": "ok"}
    for name in ("findings", "user_agent", "is_recognisable", "managers"):
        del old[name]
    fresh = ("set_by_url", "set_at")
    old["phases"] = [
        {
            **{name: value for name, value in phase.items() if name != "began_at"},
            "result": "ok",
            "banner": phase["banner"] and {"name": "OneTrust", "button": "Fine"},
            "visits": [{**visit, "result": "ok"} for visit in phase["visits"]],
            "cookies": [{k: v for k, v in cookie.items() if k not in fresh} for cookie in phase["cookies"]],
        }
        for phase in new["phases"]
    ]

    read = upgrade_report(old)
    assert read["result"] == "scan complete"
    assert [finding["code"] for finding in read["findings"]] == ["set_before_consent"]
    assert difference(read, new).summary == ()


def test_browsers_are_looked_for_in_order(tmp_path: Path) -> None:
    def program(*path: str) -> Path:
        made = tmp_path.joinpath(*path)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        made.chmod(made.stat().st_mode | stat.S_IXUSR)
        return made

    named, older = program("mine"), program("home", ".cache", "ms-playwright", "chromium-99", "chrome-linux", "chrome")
    newer = program("home", ".cache", "ms-playwright", "chromium-1200", "chrome-linux64", "chrome")
    debian, google = program("bin", "chromium"), program("bin", "google-chrome")
    environ = {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}

    order = [named, newer, older, debian, google]
    assert find_chromium(str(named), environ) == named
    for place, path in enumerate(order[1:], start=2):
        assert find_chromium(None, environ) == path
        path.unlink()
        if place == len(order):
            break
    with pytest.raises(BrowserMissing, match="which is not a program") as caught:
        find_chromium(str(tmp_path / "nothing"), environ)
    assert "FLOODMARK_CHROMIUM" in caught.value.hint


def test_without_a_browser_the_one_command_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.sources.cookies.browser._DEFAULT_PATHS", (tmp_path / "no",))
    with pytest.raises(BrowserMissing) as caught:
        find_chromium(None, {"HOME": str(tmp_path), "PATH": os.fspath(tmp_path)})
    assert caught.value.hint.endswith("python -m playwright install chromium")
