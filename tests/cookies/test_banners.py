"""Consent banners as their makers build them, in a real browser: the right button is found, and no other."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from floodmark.sources.cookies.banners import Kind, find, press
from floodmark.sources.cookies.browser import FLAGS

pytestmark = pytest.mark.spec("E8")

FIXED = 'style="position:fixed;bottom:0"'
SHADOW = """<div id=usercentrics-root></div><script>
document.getElementById("usercentrics-root").attachShadow({mode: "open"}).innerHTML =
  "<button data-testid=uc-accept-all-button>Alles klar</button><button data-testid=uc-deny-all-button>Nein</button>";
</script>"""
FRAMED = """<iframe srcdoc="<p>We value your privacy</p><button class='sp_choice_type_11'>Yes, I'm happy</button>
<button class='sp_choice_type_13'>No</button>"></iframe>"""
WORDS_IN_FRAME = """<iframe srcdoc="<p>This site uses cookies</p><button>Accept all</button>"></iframe>"""

# A page; the banner it has and its two buttons; None: there is none to be found.
PAGES: list[tuple[str, str, str | None, str | None]] = [
    (
        "<div id=onetrust-banner-sdk><button id=onetrust-accept-btn-handler>Fine</button>"
        "<button id=onetrust-reject-all-handler>No way</button></div>",
        "OneTrust",
        "Fine",
        "No way",
    ),
    (
        "<div id=CybotCookiebotDialog><a id=CybotCookiebotDialogBodyLevelButtonLevelOptinAllowAll>All</a>"
        "<a id=CybotCookiebotDialogBodyButtonDecline>None</a></div>",
        "Cookiebot",
        "All",
        "None",
    ),
    (SHADOW, "Usercentrics", "Alles klar", "Nein"),
    (
        "<button id=didomi-notice-agree-button>Agree</button>"
        "<span class=didomi-continue-without-agreeing>Continue without agreeing</span>",
        "Didomi",
        "Agree",
        "Continue without agreeing",
    ),
    (
        "<div id=qc-cmp2-ui><div class=qc-cmp2-summary-buttons><button id=disagree-btn>Disagree</button>"
        "<button mode=primary id=accept-btn>Agree</button></div></div>",
        "Quantcast Choice",
        "Agree",
        "Disagree",
    ),
    (FRAMED, "Sourcepoint", "Yes, I'm happy", "No"),
    (
        "<button id=truste-consent-button>I see</button><button id=truste-consent-required>Required only</button>",
        "TrustArc",
        "I see",
        "Required only",
    ),
    (
        "<div class=klaro><div class=cookie-notice><button class='cm-btn cm-btn-success'>That's ok</button>"
        "<button class='cm-btn cn-decline'>I decline</button></div></div>",
        "Klaro",
        "That's ok",
        "I decline",
    ),
    ("<button class=cky-btn-accept>Go</button><button class=cky-btn-reject>Stop</button>", "CookieYes", "Go", "Stop"),
    (
        "<button class='cmplz-btn cmplz-accept'>Go</button><button class='cmplz-btn cmplz-deny'>Stop</button>",
        "Complianz",
        "Go",
        "Stop",
    ),
    (
        f"<div {FIXED}>Nous utilisons des cookies<button>Tout accepter</button>"
        "<a href=#>Continuer sans accepter →</a></div>",
        "by its words",
        "Tout accepter",
        "Continuer sans accepter →",
    ),
    (
        "<div class=gdpr-box>Мы используем файлы cookie <button>Настроить</button> <button>Принять все</button></div>",
        "by its words",
        "Принять все",
        None,
    ),
    (
        f"<div {FIXED}>Cookies? <button>OK</button> <button>Accept all cookies</button></div>",
        "by its words",
        "Accept all cookies",
        None,
    ),
    (WORDS_IN_FRAME, "by its words", "Accept all", None),
    # Hidden, or about something else.
    ("<button id=onetrust-accept-btn-handler style='display:none'>Fine</button>", "", None, None),
    (f"<div {FIXED}>Your order was sent <button>OK</button></div>", "", None, None),
    ("<p>All about cookies</p><form><button>Accept</button></form>", "", None, None),
]


async def test_the_buttons_of_banners_are_found(chromium: Path, tmp_path: Path) -> None:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = await browser.new_page()
        for html, name, accept, reject in PAGES:
            await page.set_content(f"<!doctype html><meta charset=utf-8><body><h1>A page</h1>{html}")
            assert await found(page, "accept") == (accept and (name, accept)), html
            assert await found(page, "reject") == (reject and (name, reject)), html

        await page.set_content(
            f"<div {FIXED}>Cookies <button onclick='document.title=\"pressed\"'>Accept all</button></div>"
            "<div style='position:fixed;inset:0;z-index:9'>In the way</div>"
        )
        button = await find(page, "accept")
        assert button is not None
        await press(button)
        assert await page.title() == "pressed", "also when something lies over it"
        await browser.close()


async def found(page: Page, kind: Kind) -> Any:
    button = await find(page, kind)
    return button and (button.banner.name, button.banner.button)
