"""Consent banners: whose they are, and which of their buttons gives or refuses consent.

First those that are known by the names that their makers give to the buttons, then any that says it in words, in
several languages. Looked for in every frame and in open shadow roots.
"""

import asyncio
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, to_builtins

from .findings import Banner

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Frame, Page

Kind = Literal["accept", "reject"]

_CLICK_MS = 3000.0
_MOST_FRAMES = 50


class Known(Struct, frozen=True):
    """A maker of banners, and the selectors of the two buttons."""

    name: str
    accept: tuple[str, ...]
    reject: tuple[str, ...]


KNOWN = (
    Known(
        "OneTrust",
        ("#onetrust-accept-btn-handler", "#accept-recommended-btn-handler"),
        (
            "#onetrust-reject-all-handler",
            ".ot-pc-refuse-all-handler",
            ".onetrust-close-btn-handler.banner-close-button",
        ),
    ),
    Known(
        "Cookiebot",
        (
            "#CybotCookiebotDialogBodyLevelButtonLevelOptinAllowAll",
            "#CybotCookiebotDialogBodyLevelButtonAccept",
            "#CybotCookiebotDialogBodyButtonAccept",
        ),
        ("#CybotCookiebotDialogBodyButtonDecline", "#CybotCookiebotDialogBodyLevelButtonLevelOptinDeclineAll"),
    ),
    Known(
        "Usercentrics",
        ("[data-testid='uc-accept-all-button']", "[data-action-type='accept']", "#uc-btn-accept-banner"),
        ("[data-testid='uc-deny-all-button']", "[data-action-type='deny']", "#uc-btn-deny-banner"),
    ),
    Known(
        "Didomi",
        ("#didomi-notice-agree-button",),
        ("#didomi-notice-disagree-button", ".didomi-continue-without-agreeing"),
    ),
    Known(
        "Quantcast Choice",
        ("#qc-cmp2-ui #accept-btn", "#qc-cmp2-ui .qc-cmp2-summary-buttons button[mode='primary']"),
        ("#qc-cmp2-ui #disagree-btn", "#qc-cmp2-ui .qc-cmp2-header-links button"),
    ),
    Known(
        "Sourcepoint", ("button.sp_choice_type_11",), ("button.sp_choice_type_13", "button.sp_choice_type_REJECT_ALL")
    ),
    Known(
        "TrustArc",
        ("#truste-consent-button", ".trustarc-agree-btn", "a.acceptAllButtonLower", ".pdynamicbutton a.call"),
        (
            "#truste-consent-required",
            ".trustarc-declineall-btn",
            "a.declineAllButtonLower",
            ".pdynamicbutton a.required",
        ),
    ),
    Known(
        "Klaro",
        (".klaro .cm-btn-accept-all", ".klaro .cookie-notice .cm-btn-success", ".klaro .cm-btn-success"),
        (".klaro .cn-decline", ".klaro .cm-btn-decline", ".klaro .cm-btn-danger"),
    ),
    Known(
        "CookieYes",
        (".cky-btn-accept", "#cookie_action_close_header"),
        (".cky-btn-reject", "#cookie_action_close_header_reject"),
    ),
    Known("Complianz", (".cmplz-btn.cmplz-accept",), (".cmplz-btn.cmplz-deny",)),
    Known(
        "Borlabs",
        (".brlbs-btn-accept-all", "#BorlabsCookieBox [data-cookie-accept-all]"),
        (".brlbs-btn-accept-only-essential", "#BorlabsCookieBox [data-cookie-refuse]"),
    ),
    Known("iubenda", (".iubenda-cs-accept-btn",), (".iubenda-cs-reject-btn",)),
    Known("Osano", (".osano-cm-accept-all", ".osano-cm-accept"), (".osano-cm-denyAll", ".osano-cm-deny")),
    Known("Cookie Consent", (".cc-window .cc-allow", ".cc-window .cc-dismiss"), (".cc-window .cc-deny",)),
    Known(
        "CookieConsent (vanilla)",
        ("#cc-main button[data-role='all']", "#cm #c-p-bn"),
        ("#cc-main button[data-role='necessary']", "#cm #c-s-bn"),
    ),
    Known(
        "consentmanager", ("#cmpbox .cmpboxbtnyes", "#cmpwelcomebtnyes"), ("#cmpbox .cmpboxbtnno", "#cmpwelcomebtnno")
    ),
    Known("Axeptio", ("#axeptio_btn_acceptAll",), ("#axeptio_btn_dismiss",)),
    Known("tarteaucitron", ("#tarteaucitronPersonalize2",), ("#tarteaucitronAllDenied2",)),
    Known("Termly", ("[data-tid='banner-accept']",), ("[data-tid='banner-decline']",)),
    Known("Shopify", ("#shopify-pc__banner__btn-accept",), ("#shopify-pc__banner__btn-decline",)),
)

# The clearest first, in small letters and without punctuation.
WORDS: dict[Kind, tuple[str, ...]] = {
    "accept": (
        *("accept all cookies", "accept all", "allow all cookies", "allow all", "agree to all", "yes to all"),
        *("accept cookies", "allow cookies", "i accept all", "accept and continue", "accept and close"),
        *("i accept", "i agree", "agree", "accept", "allow", "consent", "yes i agree", "agree and continue"),
        *("alle cookies akzeptieren", "alle akzeptieren", "allen zustimmen", "alle zulassen", "alle annehmen"),
        *("cookies akzeptieren", "akzeptieren und weiter", "akzeptieren", "zustimmen", "einverstanden"),
        *("ich stimme zu", "annehmen", "zustimmen und weiter", "alles akzeptieren"),
        *("tout accepter", "accepter tout", "accepter tous les cookies", "accepter et continuer", "j'accepte"),
        *("accepter", "accepter et fermer", "autoriser tous les cookies", "tout autoriser"),
        *("aceptar todo", "aceptar todas", "aceptar todas las cookies", "aceptar cookies", "aceptar", "acepto"),
        *("accetta tutto", "accetta tutti", "accetta tutti i cookie", "accetto", "accetta", "accetta e continua"),
        *(
            "alles accepteren",
            "alle cookies accepteren",
            "alles toestaan",
            "cookies accepteren",
            "accepteren",
            "akkoord",
        ),
        *("aceitar tudo", "aceitar todos", "aceitar todos os cookies", "aceitar", "concordo", "aceito"),
        *("akceptuj wszystkie", "zaakceptuj wszystkie", "akceptuję", "zgadzam się", "akceptuj", "zaakceptuj wszystko"),
        *("acceptera alla", "godkänn alla", "tillåt alla", "acceptera", "godkänn", "acceptera alla cookies"),
        *("accepter alle", "tillad alle", "tillad alle cookies", "accepter alle cookies", "godkend alle"),
        *("godta alle", "aksepter alle", "tillat alle", "godta", "godta alle informasjonskapsler"),
        *("hyväksy kaikki", "hyväksy kaikki evästeet", "salli kaikki", "hyväksy"),
        *("přijmout vše", "přijmout všechny", "souhlasím", "povolit vše", "prijať všetko", "súhlasím"),
        *("összes elfogadása", "elfogadom", "mindet elfogadom", "az összes elfogadása"),
        *("acceptă tot", "accept toate", "acceptă toate", "sunt de acord", "приемам всички", "приемам"),
        *("αποδοχή όλων", "αποδέχομαι", "συμφωνώ", "prihvati sve", "sprejmi vse", "prihvaćam"),
        *("принять все", "принять", "согласен", "прийняти всі", "прийняти", "погоджуюся"),
        *(
            "tümünü kabul et",
            "kabul et",
            "kabul ediyorum",
            "すべて同意する",
            "すべて許可",
            "同意する",
            "모두 동의",
            "全部接受",
            "接受全部",
            "同意",
        ),
        *("ok", "okay", "got it", "i understand", "verstanden", "in ordnung", "entendido", "compris", "ho capito"),
    ),
    "reject": (
        *("reject all cookies", "reject all", "decline all", "deny all", "refuse all", "disagree to all"),
        *("reject", "decline", "deny", "refuse", "disagree", "i do not accept", "do not accept", "no thanks"),
        *("only necessary", "necessary only", "use necessary cookies only", "only essential", "essential only"),
        *("only necessary cookies", "necessary cookies only", "strictly necessary only", "continue without accepting"),
        *("accept only essential cookies", "accept only necessary", "essential cookies only", "reject cookies"),
        *(
            "alle ablehnen",
            "alles ablehnen",
            "ablehnen",
            "nur notwendige",
            "nur notwendige cookies",
            "nur erforderliche",
        ),
        *("nur essenzielle cookies akzeptieren", "nur technisch notwendige", "verweigern", "weiter ohne zustimmung"),
        *("ohne einwilligung fortfahren", "nur notwendige akzeptieren", "nur essenzielle"),
        *(
            "tout refuser",
            "refuser tout",
            "refuser",
            "continuer sans accepter",
            "je refuse",
            "refuser tous les cookies",
        ),
        *(
            "rechazar todo",
            "rechazar todas",
            "rechazar",
            "rechazar todas las cookies",
            "solo necesarias",
            "rechazar cookies",
        ),
        *("rifiuta tutto", "rifiuta tutti", "rifiuta", "solo necessari", "continua senza accettare"),
        *(
            "alles weigeren",
            "alles afwijzen",
            "weigeren",
            "alleen noodzakelijk",
            "afwijzen",
            "alleen noodzakelijke cookies",
        ),
        *("rejeitar tudo", "rejeitar todos", "rejeitar", "recusar", "recusar tudo", "apenas necessários"),
        *("odrzuć wszystkie", "odrzuć wszystko", "odrzuć", "nie zgadzam się", "tylko niezbędne"),
        *("avvisa alla", "neka alla", "endast nödvändiga", "neka", "avvisa", "bara nödvändiga"),
        *("afvis alle", "kun nødvendige", "afvis", "avvis alle", "kun nødvendige cookies", "bare nødvendige"),
        *("hylkää kaikki", "vain välttämättömät", "hylkää", "odmítnout vše", "odmítnout", "odmietnuť všetko"),
        *("összes elutasítása", "elutasítom", "respinge tot", "respinge toate", "отказвам", "отхвърляне на всички"),
        *("απόρριψη όλων", "απόρριψη", "odbij sve", "zavrni vse", "отклонить все", "отклонить", "відхилити всі"),
        *("tümünü reddet", "reddet", "すべて拒否", "拒否する", "모두 거부", "全部拒绝", "拒绝"),
    ),
}


class Button(Struct, frozen=True):
    """A button that was found, not yet pressed."""

    banner: Banner
    handle: "ElementHandle"


@lru_cache(maxsize=1)
def _finder() -> str:
    return files(__package__).joinpath("banners.js").read_text(encoding="utf-8")


async def find(page: "Page", kind: Kind, selector: str | None = None) -> Button | None:
    """The button that gives or refuses consent; None if there is none. With `selector` only what that selects."""
    for frame in page.frames[:_MOST_FRAMES]:
        found = await (_find_in(frame, kind) if selector is None else _select(frame, kind, selector))
        if found is not None:
            return found
    return None


async def _find_in(frame: "Frame", kind: Kind) -> Button | None:
    argument: dict[str, Any] = {"kind": kind, "banners": to_builtins(KNOWN), "words": list(WORDS[kind])}
    handle = await _unless_gone(frame.evaluate_handle(_finder(), argument))
    if handle is None:
        return None
    element = (await handle.get_property("element")).as_element()
    if element is None:
        return None
    name, text = await handle.evaluate("found => [found.name, found.text]")
    return Button(Banner(name=str(name), button=str(text)[:100]), element)


async def _select(frame: "Frame", kind: Kind, selector: str) -> Button | None:
    # One that is not visible is no button that a visitor could press.
    for element in (await _unless_gone(frame.query_selector_all(selector)) or [])[:20]:
        if await _unless_gone(element.is_visible()):
            text = await _unless_gone(element.evaluate("e => (e.innerText || e.value || '').trim()"))
            return Button(Banner(name=f"by {kind}_selector", button=str(text or "")[:100]), element)
    return None


async def press(button: Button) -> None:
    """Press it as a visitor would; by its script when something lies over it."""
    from playwright.async_api import Error  # noqa: PLC0415 - only in the browser's process

    try:
        await button.handle.click(timeout=_CLICK_MS)
    except Error:
        await button.handle.evaluate("e => e.click()")


async def _unless_gone(asked: Any) -> Any:
    """The answer of a frame; None if it went away, or may not be asked. Frames come and go."""
    from playwright.async_api import Error  # noqa: PLC0415 - only in the browser's process

    try:
        async with asyncio.timeout(_CLICK_MS / 1000):
            return await asked
    except TimeoutError:
        return None
    except Error as error:
        if "has been closed" in error.message or "crashed" in error.message:
            raise
        return None
