"""Scans in a real browser, of hosts that are really there: what they find, and what they say when they do not."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from os import getpid
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from cookies.conftest import patient
from cookies.dns import serving_names
from cookies.shop import YEAR, Shop
from floodmark.errors import Permanent, Transient
from floodmark.model.batch import Batch
from floodmark.model.clock import SystemClock
from floodmark.sources.cookies.browser_process import descendants
from floodmark.sources.cookies.pool import Pool
from floodmark.sources.cookies.source import CookiesSource, browser_rules
from floodmark.sources.port import Target
from floodmark.testing.contracts.source import a_context
from unit.test_tcf import tc_string

pytestmark = [pytest.mark.spec("E8"), pytest.mark.asyncio(loop_scope="module")]

PNG = b"\x89PNG\r\n\x1a\n"
# In every phase: by header, by script, and by the frame of somebody else, with third-party cookies allowed.
ALWAYS = {"PHPSESSID", "_ga", "tp_chips", "tp_js", "tp_none"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scanner(shop: Shop) -> AsyncIterator[CookiesSource]:
    """One browser for all of this file."""
    async with (
        serving_names({"metrics.portal.test": "portal.sc.omtrdc.net"}) as (_, port),
        CookiesSource(patient(cookies_dns_server=f"127.0.0.1:{port}"), SystemClock()) as made,
    ):
        yield made


def a_target(shop: Shop, host: str, **params: Any) -> Target:
    domain = shop.domain(host)
    return Target(name=domain, stream=f"cookies:{domain}", params={"insecure": True, **params})


async def batch_of(scanner: CookiesSource, target: Target) -> Batch:
    [batch] = [batch async for batch in scanner.collect(target, None, a_context())]
    return batch


async def scanned(scanner: CookiesSource, shop: Shop, host: str, **params: Any) -> dict[str, Any]:
    batch = await batch_of(scanner, a_target(shop, host, **params))
    [item] = batch.items
    report: dict[str, Any] = item.data
    return report


def names(phase: dict[str, Any]) -> set[str]:
    return {cookie["name"] for cookie in phase["cookies"]}


async def test_each_phase_has_exactly_its_cookies(scanner: CookiesSource, shop: Shop) -> None:
    target = a_target(shop, "shop.test", customPages=["/about"])
    batch = await batch_of(scanner, target)
    report = batch.items[0].data
    before, accept, reject = report["phases"]

    assert report["result"] == "scan complete"
    assert [phase["result"] for phase in report["phases"]] == ["complete"] * 3
    assert names(before) == ALWAYS
    assert names(accept) == ALWAYS | {"consent", "_fbp", "ads"}
    assert names(reject) == ALWAYS | {"consent"}
    assert (accept["banner"]["name"], accept["banner"]["steps"]) == ("by its words", ("Alle akzeptieren",))
    assert (reject["banner"]["layer"], reject["banner"]["steps"]) == (1, ("Alle ablehnen",))
    paths = [visit["url"].rpartition(str(shop.port))[2] for visit in accept["visits"]]
    assert paths == ["/", "/about"], "named pages are visited in every phase, and without leave no link is followed"

    cookies = {cookie["name"]: cookie for cookie in accept["cookies"]}
    assert {name for name, cookie in cookies.items() if cookie["party"] == "third"} == {
        "ads",
        "tp_chips",
        "tp_js",
        "tp_none",
    }
    assert {name for name, cookie in cookies.items() if cookie["set_by"] == "header"} == {
        "PHPSESSID",
        "ads",
        "tp_chips",
        "tp_none",
    }
    assert {name for name, cookie in cookies.items() if cookie["blocked_by_default"]} == {"ads", "tp_js", "tp_none"}
    session, trace = cookies["PHPSESSID"], cookies["tp_none"]
    assert (session["http_only"], session["secure"], session["same_site"]) == (True, True, "Lax")
    assert (session["expires"], session["lifetime_seconds"], session["purpose"]) == (None, None, "necessary")
    assert (session["size"], session["value_sha256"]) == (12, hashlib.sha256(b"abc").hexdigest())
    assert (trace["domain"], trace["path"], trace["same_site"]) == ("tracker.test", "/", "None")
    assert (trace["set_from"], trace["purpose"], trace["vendor"]) == ("tracker.test", "unknown", None)
    assert YEAR - 120 <= trace["lifetime_seconds"] <= YEAR
    assert cookies["tp_chips"]["partition"] == "https://shop.test"
    assert (cookies["_ga"]["purpose"], cookies["_ga"]["vendor"]) == ("statistics", "Google Analytics")
    assert (cookies["_fbp"]["purpose"], cookies["consent"]["purpose"]) == ("marketing", "unknown")

    origin = f"https://shop.test:{shop.port}"
    theirs = f"https://tracker.test:{shop.port}"
    assert [(entry["origin"], entry["area"], entry["key"], entry["size"]) for entry in before["storage"]] == [
        (origin, "local", "theme", 9),
        (origin, "session", "tab", 4),
        (theirs, "local", "visitor", 8),
    ]
    assert [entry["party"] for entry in before["storage"]] == ["first", "first", "third"]
    assert list(before["contacts"]) == [
        {"host": "tracker.test", "site": "tracker.test", "requests": 2, "types": {"document": 1, "image": 1}}
    ]
    assert accept["contacts"][0]["types"] == {"document": 1, "image": 2, "script": 1}

    blobs = {blob.sha256: blob for blob in batch.blobs}
    files = {name: blobs[entry["sha256"]] for name, entry in report["manifest"].items()}
    assert set(files) == {"report.json", "report.html", "before.png", "accept.png", "reject.png"}
    assert all(hashlib.sha256(blob.content).hexdigest() == blob.sha256 for blob in batch.blobs)
    assert all(files[f"{name}.png"].content.startswith(PNG) for name in ("before", "accept", "reject"))
    assert files["before.png"].content != files["accept.png"].content, "the banner is gone"
    told = json.loads(files["report.json"].content)
    assert {**told, "manifest": report["manifest"]} == json.loads(json.dumps(report))
    page = files["report.html"].content.decode()
    assert page.count("data:image/png;base64,") == 3
    assert "<script" not in page
    assert "GA1.1.1" not in page + files["report.json"].content.decode(), "values are not kept"


@pytest.mark.thorough
async def test_a_scan_sees_what_a_visitor_sees(scanner: CookiesSource, shop: Shop) -> None:
    """A banner that hides from programs, comes late, in a closed shadow root, and is rejected behind its settings."""
    watching = CookiesSource(patient(cookies_banner_wait=timedelta(seconds=30)), SystemClock())
    watching.pool = scanner.pool
    report = await scanned(watching, shop, "visitor.test")
    before, accept, reject = report["phases"]

    assert report["result"] == "scan complete"
    assert not report["is_recognisable"]
    assert {agent.partition("Chrome/")[0][-4:] for agent in shop.agents} == {"ko) "}, "not HeadlessChrome"
    assert names(before) == {"_ga"}, "nothing was pressed, least of all the newsletter's button"
    assert (accept["banner"]["steps"], accept["banner"]["layer"]) == (("Alle akzeptieren",), 1)
    assert names(accept) == {"_ga", "choice"}
    assert (reject["banner"]["steps"], reject["banner"]["layer"]) == (("Einstellungen", "Auswahl speichern"), 2)
    assert reject["banner"]["switched_off"] == 1

    origin = f"https://visitor.test:{shop.port}"
    assert [(entry["area"], entry["key"], entry["detail"]) for entry in before["storage"]] == [
        ("cache", "pages", "1 stored response"),
        ("indexeddb", "visitors", "version 3, object stores: people"),
    ]
    counted, later = before["cookies"][0], {cookie["name"]: cookie for cookie in reject["cookies"]}["_gid"]
    assert (counted["set_by"], counted["set_by_url"]) == ("script", f"{origin}/count.js")
    assert before["began_at"] <= counted["set_at"] <= before["began_at"] + 30
    assert later["set_at"] >= reject["banner"]["answered_at"]
    assert [(finding["code"], finding["cookies"]) for finding in report["findings"]] == [
        ("set_before_consent", ("_ga",)),
        ("set_after_rejecting", ("_gid",)),
        ("kept_after_rejecting", ("_ga",)),
        ("reject_on_second_layer", ()),
    ]
    [evidence] = report["findings"][0]["evidence"]
    assert report["findings"][1]["evidence"][0].startswith(
        f"_gid (Google Analytics, statistics; first party, visitor.test): set by an inline script of {origin}/ at "
    )
    setter = f"set by the script {origin}/count.js on {origin}/ at "
    assert evidence.startswith(f"_ga (Google Analytics, statistics; first party, visitor.test): {setter}")
    assert evidence.endswith(" s after the visit began; kept for 1 year.")


@pytest.mark.release
async def test_an_operator_may_want_to_be_recognised(shop: Shop) -> None:
    shop.agents.clear()
    async with CookiesSource(
        patient(cookies_user_agent="ExampleScanner/1.0 (+https://example.com)"), SystemClock()
    ) as own:
        report = await scanned(own, shop, "visitor.test")

    assert report["result"] == "banner not found"
    assert report["is_recognisable"]
    assert any("hide from programs" in note for note in report["notes"])
    assert set(shop.agents) == {report["user_agent"]} == {"ExampleScanner/1.0 (+https://example.com)"}


@pytest.mark.release
async def test_links_are_followed_as_far_as_they_may(scanner: CookiesSource, shop: Shop) -> None:
    def visited(report: dict[str, Any]) -> list[tuple[str, int]]:
        visits = report["phases"][0]["visits"]
        return [(visit["url"].rpartition(str(shop.port))[2], visit["depth"]) for visit in visits]

    deep = await scanned(scanner, shop, "maze.test", allow_deep_scan=True, scanDepth=2, customPages=["/imprint"])
    assert visited(deep) == [("/", 0), ("/imprint", 0), ("/a", 1), ("/a/b", 2)]
    assert names(deep["phases"][0]) == {"page_", "page_imprint", "page_a", "page_a_b"}
    seen = {cookie["name"]: cookie["first_seen_on"] for cookie in deep["phases"][0]["cookies"]}
    assert seen["page_a_b"].endswith("/a/b")
    assert [entry["key"] for entry in deep["phases"][0]["storage"]] == ["odd\ufffd\ufffd"], "what no database takes"
    few = await scanned(scanner, shop, "maze.test", allow_deep_scan=True, scanDepth=9, maxPages=2)
    assert visited(few) == [("/", 0), ("/a", 1)]
    assert not [path for path in shop.asked if "pdf" in path or "logout" in path or "tracker" in path]


@pytest.mark.release
async def test_the_buttons_can_be_named(scanner: CookiesSource, shop: Shop) -> None:
    report = await scanned(scanner, shop, "plain.test", accept_selector="button", reject_selector=".no-such-thing")

    _, accept, reject = report["phases"]
    assert (accept["banner"]["name"], accept["banner"]["steps"]) == ("by accept_selector", ("OK",))
    assert names(accept) == {"pressed"}
    assert (reject["result"], reject["note"]) == (
        "banner not found",
        "reject_selector matches nothing: .no-such-thing",
    )


@pytest.mark.thorough
async def test_a_time_out_is_a_result(scanner: CookiesSource, shop: Shop) -> None:
    hasty = CookiesSource(patient(cookies_page_timeout=timedelta(seconds=12)), SystemClock())
    hasty.pool, context = scanner.pool, a_context()
    target = a_target(shop, "stuck.test", maxRetries=0)
    [batch] = [batch async for batch in hasty.collect(target, None, context)]

    [item] = batch.items
    assert item.data["result"] == context.result["result"] == "time-out"
    [before] = item.data["phases"]
    assert before["note"] == "not loaded after 12 s"
    # Also of a page that is not what it should be.
    assert "before.png" in item.data["manifest"]
    assert names(before) == {"early"}


@pytest.mark.thorough
async def test_a_site_that_cannot_be_reached_is_a_failure(scanner: CookiesSource, shop: Shop) -> None:
    """After as many tries as it may have; a flaky one that comes back in time is none."""
    with pytest.raises(Transient, match=r"flaky\.test:.* cannot be reached: status 500") as caught:
        await scanned(scanner, shop, "flaky.test", maxRetries=0)
    assert caught.value.hint
    report = await scanned(scanner, shop, "flaky.test", maxRetries=1)
    [visit] = report["phases"][0]["visits"]
    assert (visit["result"], visit["status"], visit["tries"]) == ("complete", 200, 2)

    with pytest.raises(Transient, match="cannot be reached: ERR_CERT_AUTHORITY_INVALID") as caught:
        await scanned(scanner, shop, "shop.test", maxRetries=0, insecure=False)
    assert "--insecure" in caught.value.hint


@pytest.mark.thorough
async def test_private_addresses_are_out_of_reach(scanner: CookiesSource, shop: Shop) -> None:
    report = await scanned(scanner, shop, "inside.test")

    refused = [note for note in report["notes"] if "request refused" in note]
    assert [note.partition(": ")[2].partition(" is")[0] for note in refused] == ["127.0.0.1", "169.254.169.254", "::1"]
    assert not [path for path in shop.asked if "secret" in path]
    # The same certificate and port; only nobody has named this host.
    with pytest.raises(Permanent, match=r"127\.0\.0\.1 is not a public address") as caught:
        await scanned(scanner, shop, "127.0.0.1")
    assert "HTTP_ALLOW_HOSTS" in caught.value.hint


@pytest.mark.thorough
async def test_third_party_cookies_are_seen_though_browsers_block_them(scanner: CookiesSource, shop: Shop) -> None:
    """What is said of a browser as it comes is what such a browser does. That there is no banner is a result."""
    report = await scanned(scanner, shop, "framed.test")
    assert report["result"] == "banner not found"
    assert [phase["result"] for phase in report["phases"]] == ["complete", "banner not found", "banner not found"]
    cookies = report["phases"][0]["cookies"]
    assert {cookie["name"] for cookie in cookies} == {"tp_chips", "tp_js", "tp_none"}

    usual, below = (
        Pool(replace(browser_rules(patient()), third_party_cookies=False, scans_each=1)),
        set(descendants(getpid())),
    )
    try:
        found = await usual.scan(scanner.order(a_target(shop, "framed.test")))
        assert set(descendants(getpid())) <= below, "it has made its only scan"
    finally:
        await usual.close()
    left = {cookie.name for cookie in found.phases[0].cookies}
    assert left == {cookie["name"] for cookie in cookies if not cookie["blocked_by_default"]} == {"tp_chips"}


@pytest.mark.thorough
async def test_one_execution_makes_one_item(scanner: CookiesSource, shop: Shop) -> None:
    """Also when it is run again after its scan was kept. Several can be asked for at once."""
    target = a_target(shop, "blocked.test")

    first, second = await asyncio.gather(batch_of(scanner, target), batch_of(scanner, target))
    report = first.items[0].data
    assert (report["result"], report["phases"][0]["note"]) == ("blocked page", "status 403: access denied")
    assert names(report["phases"][0]) == {"bouncer"}
    again = [batch async for batch in scanner.collect(target, first.watermark, a_context())]
    assert [item.key for item in first.items] == [item.key for item in second.items] == ["e"]
    assert again == []
    assert shop.asked["blocked.test /"] == 2
    assert scanner.pool.started == 1, "all scans of this file were made in one browser"


POLICY = """
[[rule]]
name = "_ga*"
max_days = 90

[[rule]]
max_days = 365
"""


@pytest.mark.spec("B14")
@pytest.mark.release
async def test_the_visitor_is_as_the_job_says(scanner: CookiesSource, shop: Shop) -> None:
    def made(purposes: set[int]) -> str:
        return tc_string(purposes=purposes, interests={2}, vendors=purposes, others=set())

    shop.tc_strings = made(set()), made({1, 2, 3}), made({1})
    told = {"locale": "de-DE", "browser_timezone": "Europe/Berlin", "gpc": True, "policy": POLICY}
    report = await scanned(scanner, shop, "portal.test", **told)

    assert report["result"] == "scan complete"
    before, accept, reject = report["phases"]
    assert before["visits"][0]["title"] == "de-DE Europe/Berlin true denied"
    assert shop.headers["accept-language"].startswith("de-DE")
    assert shop.headers["sec-gpc"] == "1"
    assert report["options"] == {"locale": "de-DE", "timezone": "Europe/Berlin", "gpc": "sent"}

    assert [list(phase["tcf"]["purposes_consent"]) for phase in (before, accept, reject)] == [[], [1, 2, 3], [1]]
    assert (accept["tcf"]["cmp_id"], accept["tcf"]["vendors_consent"]) == (300, 3)
    assert [(alias["host"], alias["vendor"]) for alias in report["aliases"]] == [
        ("metrics.portal.test", "Adobe Analytics")
    ]

    found = {finding["code"]: finding for finding in report["findings"]}
    assert set(found) >= {
        "set_before_consent",
        "set_despite_gpc",
        "consent_recorded_after_rejecting",
        "cloaked_third_party",
        "lifetime_over_policy",
    }
    assert "2 cookies for statistics or marketing were set all the same" in found["set_despite_gpc"]["text"]
    assert list(found["cloaked_third_party"]["evidence"]) == [
        "metrics.portal.test is an alias of portal.sc.omtrdc.net (Adobe Analytics, statistics); it set s_vi."
    ]
    assert any(
        "_ga (portal.test, statistics) is kept for 400 days (1 year); the policy allows 90 days for cookies named _ga*"
        in sentence
        for sentence in found["lifetime_over_policy"]["evidence"]
    )
    assert found["consent_recorded_after_rejecting"]["evidence"][0].startswith("Purpose 1: store and/or access")
