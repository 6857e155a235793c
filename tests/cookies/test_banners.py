"""Consent banners in a real browser: the right button is found, and nothing else is ever pressed."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import asdict
from playwright.async_api import Page, async_playwright

from floodmark.sources.cookies.banners import Kind, answer_banner, find_banner
from floodmark.sources.cookies.browser import FLAGS
from floodmark.sources.cookies.managers import languages, managers
from floodmark.sources.cookies.phase import observer_script, reader_script
from floodmark.testing.web.serving import serve_app

pytestmark = pytest.mark.spec("E8")

TOKEN = "_observer"
FIXED = 'style="position:fixed;bottom:0"'
WORDS = "by its words"
SHADOW = """<div id=usercentrics-root></div><script>
document.getElementById("usercentrics-root").attachShadow({mode: "open"}).innerHTML =
  "<button data-testid=uc-accept-all-button>Alles klar</button><button data-testid=uc-deny-all-button>Nein</button>";
</script>"""
CLOSED = """<div id=host></div><script>
document.getElementById("host").attachShadow({mode: "closed"}).innerHTML = `<div style="position:fixed;bottom:0">
  Wir verwenden Cookies. <div style="cursor:pointer">Alle akzeptieren</div><div
style="cursor:pointer">Ablehnen</div></div>`;
</script>"""
FRAMED = """<iframe id=sp_message_iframe_1 srcdoc="<p>We value your privacy</p><button
class='sp_choice_type_11'>Yes, I'm happy
</button><button class='sp_choice_type_13'>No</button>"></iframe>"""
WORDS_IN_FRAME = """<iframe srcdoc="<p>This site uses cookies</p><button>Accept all</button>"></iframe>"""
DIVS = f"""<div {FIXED} id=bar>Tento web používá soubory cookie.
<div class="btn primary">Přijmout vše</div><span style="cursor:pointer">Odmítnout vše</span></div>"""
NEWSLETTER = f"""<div {FIXED} class=newsletter-consent role=dialog>Get our newsletter. By clicking you accept our
privacy policy
and our <a href=/cookies>cookie policy</a>. <input type=email placeholder=Mail><button>I agree</button><button>No
thanks</button></div>"""
NEWSLETTER_AND_BANNER = f"""{NEWSLETTER}<div style="position:fixed;top:0">We use cookies to count visitors.
<button>OK</button></div>"""
TERMS = f"""<div {FIXED} role=dialog>Please agree to our <a href=/terms>Terms of use</a>
and our <a href=/c>Cookie policy</a>.
<button>I agree</button></div>"""
AGE = f"""<div {FIXED} role=dialog>Are you at least 18 years old? We remember it in a cookie. <button>Yes,
I agree</button></div>"""
POLICY = """<main><h1>Cookie policy</h1><p>We use cookies. <button>Accept</button></p></main>"""
LINKS = f"""<div {FIXED}>We use cookies. <a href="/accept-our-terms">Accept</a> <button>Allow all</button></div>"""

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
    (SHADOW, "Usercentrics v2", "Alles klar", "Nein"),
    (CLOSED, WORDS, "Alle akzeptieren", "Ablehnen"),
    (DIVS, WORDS, "Přijmout vše", "Odmítnout vše"),
    (
        "<div id=didomi-host><div id=didomi-notice><button id=didomi-notice-agree-button>Agree</button>"
        "<span class=didomi-continue-without-agreeing>Continue without agreeing</span></div></div>",
        "Didomi",
        "Agree",
        "Continue without agreeing",
    ),
    (
        "<div id=qc-cmp2-container><div id=qc-cmp2-ui><div class=qc-cmp2-summary-buttons>"
        "<button id=disagree-btn>Disagree</button>"
        "<button mode=primary id=accept-btn>Agree</button></div></div></div>",
        "Quantcast Choice / InMobi Choice",
        "Agree",
        "Disagree",
    ),
    (FRAMED, "Sourcepoint", "Yes, I'm happy", "No"),
    (
        "<div id=truste-consent-track><button id=truste-consent-button>I see</button>"
        "<button id=truste-consent-required>Required only</button></div>",
        "TrustArc banner",
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
    (
        "<div class=cky-consent-container><button data-cky-tag=accept-button>Go</button>"
        "<button data-cky-tag=reject-button>Stop</button></div>",
        "CookieYes",
        "Go",
        "Stop",
    ),
    # Makers' names of buttons that say something else: the words decide.
    (
        "<div id=cc--main><div id=cm></div><div>We use cookies</div></div><script>document.documentElement.className="
        "'show--consent';document.getElementById('cm').innerHTML='Cookies <button id=c-p-bn>Accept all</button>"
        "<button id=c-s-bn>Reject all</button>'</script>",
        "vanilla-cookieconsent v2",
        "Accept all",
        "Reject all",
    ),
    (
        "<div id=cmplz-cookiebanner-container><div class=cmplz-cookiebanner><button class=cmplz-accept>Go</button>"
        "<button class=cmplz-deny>Stop</button></div></div>",
        "Complianz",
        "Go",
        "Stop",
    ),
    (
        f"<div {FIXED}>Nous utilisons des cookies<button>Tout accepter</button>"
        "<a href=#>Continuer sans accepter →</a></div>",
        WORDS,
        "Tout accepter",
        "Continuer sans accepter →",
    ),
    (
        "<div class=gdpr-box>Мы используем файлы cookie <button>Настроить</button> <button>Принять все</button></div>",
        WORDS,
        "Принять все",
        None,
    ),
    (
        f"<div {FIXED}>Cookies? <button>OK</button> <button>Accept all cookies</button></div>",
        WORDS,
        "Accept all cookies",
        None,
    ),
    (WORDS_IN_FRAME, WORDS, "Accept all", None),
    (NEWSLETTER_AND_BANNER, WORDS, "OK", None),
    (LINKS, WORDS, "Allow all", None),
    # Hidden, or about something else.
    (
        "<div id=onetrust-banner-sdk style='display:none'><button id=onetrust-accept-btn-handler>Fine</button></div>",
        "",
        None,
        None,
    ),
    (NEWSLETTER, "", None, None),
    (TERMS, "", None, None),
    (AGE, "", None, None),
    (POLICY, "", None, None),
    (f"<div {FIXED}>Your order was sent <button>OK</button></div>", "", None, None),
    ("<p>All about cookies</p><form><button>Accept</button></form>", "", None, None),
]


# A first layer without a button to reject; which buttons are pressed, and what the choice is then.
SWITCHES = """<div {fixed}>We use cookies. <button>Accept all</button>
<button onclick="document.getElementById('more').hidden = false">Cookie settings</button></div>
<div id=more role=dialog hidden style="position:fixed;top:0;background:white">Choose <label><input type=checkbox
checked disabled>Needed</label>
<label><input type=checkbox checked class=optional>Statistics</label><div role=switch aria-checked=true
style="width:9px;height:9px"
onclick="this.setAttribute('aria-checked', 'false')" class=optional></div><button>Accept all</button>
<button onclick="document.title = [...document.querySelectorAll('.optional')].map((e) =>
e.checked ?? e.ariaChecked).join()">
Save my choices</button></div>"""
LATE_REJECT = """<div {fixed} class=cookie-bar>Nous utilisons des cookies <button>Tout accepter</button>
<button onclick="setTimeout(() => {{ document.getElementById('more').hidden = false }}, 400)">Paramétrer</button></div>
<dialog id=more open hidden>Vos choix<div class=btn onclick="document.title = 'refused'">Tout refuser</div></dialog>"""
# The button works a second after it is shown.
LATE_SETTINGS = """<div {fixed}>We use cookies. <button>Accept all</button><button id=open>Cookie settings</button>
</div><div id=more role=dialog hidden style="position:fixed;top:0;background:white">Choose which cookies we may set
<button onclick="document.title = 'refused'">Reject all</button></div><script>
const show = () => {{ document.getElementById("more").hidden = false }};
setTimeout(() => {{ document.getElementById("open").onclick = show }}, 1000)</script>"""
SECOND_LAYERS = [
    (SWITCHES, ("Cookie settings", "Save my choices"), "false,false"),
    (LATE_REJECT, ("Paramétrer", "Tout refuser"), "refused"),
    (LATE_SETTINGS, ("Cookie settings", "Cookie settings", "Reject all"), "refused"),
]


@pytest.mark.thorough
async def test_the_buttons_of_banners_are_found(shell: Path) -> None:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=shell, args=list(FLAGS))
        context = await browser.new_context()
        await context.add_init_script(script=observer_script(TOKEN))
        page = await context.new_page()
        for html, name, accept, reject in PAGES:
            # Init scripts run when a page is loaded, not when its content is replaced.
            await page.goto("about:blank")
            await page.set_content(f"<!doctype html><meta charset=utf-8><body><h1>A page</h1>{html}")
            assert await found(page, "accept") == (accept and (name, accept)), html
            assert await found(page, "reject") == (reject and (name, reject)), html

        await _second_layers(page)
        await _covered(page)
        await _selectors(page)
        await _workers(page)
        for language, words in languages().items():
            await _speaks(page, language, words)
        await browser.close()


async def _second_layers(page: Page) -> None:
    for html, steps, title in SECOND_LAYERS:
        await page.set_content(html.format(fixed=FIXED))
        banner = await answer_banner(page, await find_banner(page, TOKEN), "reject", TOKEN)
        assert (banner.steps, banner.layer, await page.title()) == (steps, 2, title)


async def _covered(page: Page) -> None:
    await page.set_content(
        f"<div {FIXED}>Cookies <button onclick='document.title=\"pressed\"'>Accept all</button></div>"
        "<div style='position:fixed;inset:0;z-index:9'>In the way</div>"
    )
    await answer_banner(page, await find_banner(page, TOKEN), "accept", TOKEN)
    assert await page.title() == "pressed", "also when something lies over it"


async def _selectors(page: Page) -> None:
    """Every selector of the table can be read by the browser."""
    fields = ("marks", "shown", "accept", "reject", "settings", "settings_reject", "settings_off", "settings_save")
    selectors = [one for manager in managers() for field in fields for one in asdict(manager)[field]]
    selectors += [manager.host for manager in managers() if manager.host]
    await page.evaluate("all => all.forEach((one) => document.querySelector(one))", selectors)


async def _workers(page: Page) -> None:
    """Service workers are seen. They need a certificate that is valid, or the machine itself."""

    async def serve(request: web.Request) -> web.Response:
        kind = "text/javascript" if request.path.endswith(".js") else "text/html"
        return web.Response(text="" if request.path.endswith(".js") else "<title>Worker</title>", content_type=kind)

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    async with serve_app(app) as port:
        start = f"http://127.0.0.1:{port}/"
        await page.goto(start)
        await page.evaluate("navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)")
        told = await page.evaluate(reader_script(), TOKEN)
        assert told["worker"] == [[f"{start}worker.js", f"for {start}"]]
        await page.goto("about:blank")


async def _speaks(page: Page, language: str, words: Any) -> None:
    about, accept, reject = words["about"][0], words["accept"][0], words["reject"][0]
    await page.set_content(
        f"<meta charset=utf-8><div {FIXED}>- {about} - {about} <button>{accept.capitalize()}!</button>"
        f"<button>{reject.upper() if language != 'tr' else reject}</button>"
        f"<button>{words['settings'][0]}</button></div>"
    )
    seen = await find_banner(page, TOKEN)
    assert set(seen.buttons) == {"accept", "reject", "settings"}, language


async def found(page: Page, kind: Kind) -> Any:
    seen = await find_banner(page, TOKEN)
    return (seen.name, seen.buttons[kind].text) if kind in seen.buttons else None


def test_every_maker_and_language_is_complete() -> None:
    assert len(managers()) >= 78
    assert len({manager.name for manager in managers()}) == len(managers())
    assert all(manager.host for manager in managers() if manager.inside != "page")
    assert len(languages()) >= 25
    clear = ("accept", "dismiss", "reject", "settings", "save")
    said = [(word, kind) for words in languages().values() for kind in clear for word in dict.fromkeys(words[kind])]
    assert len({word for word, _ in said}) == len(set(said)), "no words mean two things"
