"""Consent managers as their makers publish them, and a page for each that uses it.

`managers/package-lock.json` pins versions and hashes; they are installed once, into the cache of this user.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from skipping import not_tested

HERE = Path(__file__).parent / "managers"


def installed() -> Path:
    """The folder `node_modules` of the managers; without npm or its registry a loud skip, and in CI a failure."""
    digest = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "floodmark" / f"managers-{digest}"
    if not cache.exists():
        npm = shutil.which("npm")
        if npm is None:
            not_tested("npm is not installed, which brings the consent managers (Debian: apt-get install npm).")
        _install(npm, cache)
    return cache / "node_modules"


def _install(npm: str, cache: Path) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=cache.parent))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, made / name)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=peer"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        if done.returncode:
            not_tested(f"npm could not install the consent managers: {done.stderr.strip()[-500:]}")
        try:
            made.rename(cache)
        except OSError:
            # Another process was first.
            assert cache.exists()
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Case(NamedTuple):
    """A page, and what a visitor does on it."""

    package: str
    maker: str
    html: str
    state: str
    """An expression that tells the choice."""
    accepted: object
    rejected: object
    layer: int
    """On which layer it can be rejected."""


VANILLA = """<link rel=stylesheet href=/vanilla-cookieconsent/dist/cookieconsent.css>
<script src=/vanilla-cookieconsent/dist/cookieconsent.umd.js></script><script>
CookieConsent.run({categories: {necessary: {enabled: true, readOnly: true}, analytics: {enabled: true}, ads: {}},
  language: {default: "en", translations: {en: {
    consentModal: {title: "We use cookies", description: "To count visitors.", acceptAllBtn: "Accept all",
      %s showPreferencesBtn: "Manage preferences"},
    preferencesModal: {title: "Cookie preferences", acceptAllBtn: "Accept all",
%s savePreferencesBtn: "Save preferences",
      sections: [{title: "Analytics", linkedCategory: "analytics"}, {title: "Ads", linkedCategory: "ads"}]}}}}});
</script>"""
VANILLA_2 = """<link rel=stylesheet href=/vanilla-cookieconsent-2/dist/cookieconsent.css>
<script src=/vanilla-cookieconsent-2/dist/cookieconsent.js></script><script>
window.cc = initCookieConsent(); cc.run({current_lang: "en", languages: {en: {
  consent_modal: {title: "We use cookies", description: "To count visitors.",
    primary_btn: {text: "Accept all", role: "accept_all"}, secondary_btn: {text: "Settings", role: "settings"}},
  settings_modal: {title: "Cookie settings", save_settings_btn: "Save settings", accept_all_btn: "Accept all",
    reject_all_btn: "Reject all", blocks: [{title: "Needed", toggle: {value: "necessary", enabled: true,
readonly: true}},
    {title: "Analytics", toggle: {value: "analytics", enabled: true, readonly: false}}]}}}});
</script>"""
OSANO = """<link rel=stylesheet href=/cookieconsent/build/cookieconsent.min.css>
<script src=/cookieconsent/build/cookieconsent.min.js></script>
<script>cookieconsent.initialise({type: "opt-in", palette: {popup: {background: "#000"},
button: {background: "#f1d600"}}})</script>
"""
KLARO = """<script>window.klaroConfig = {version: 1, elementID: "klaro", acceptAll: true, hideDeclineAll: %s,
lang: "en",
  translations: {en: {privacyPolicyUrl: "/privacy", purposes: {analytics: {title: "Analytics"}}}},
  services: [{name: "matomo", title: "Matomo", purposes: ["analytics"], default: true}]};</script>
<script defer src=/klaro/dist/klaro.js></script>"""
TARTEAUCITRON = """<script src=/tarteaucitronjs/tarteaucitron.js></script><script>
tarteaucitronForceLanguage = "en";
tarteaucitron.init({orientation: "middle", DenyAllCta: %s, AcceptAllCta: true, highPrivacy: true, showIcon: false,
  mandatory: true, cookieName: "tarteaucitron", googleConsentMode: false, bingConsentMode: false,
pianoConsentMode: false});
tarteaucitron.services.counter = {key: "counter", type: "analytic", name: "Counter", needConsent: true, cookies: [],
  uri: "", js() {}, fallback() {}};
(tarteaucitron.job = tarteaucitron.job || []).push("counter");</script>"""
OREJIME = """<link rel=stylesheet href=/orejime/dist/orejime-standard.css><script>
window.orejimeConfig = {purposes: [{id: "analytics", title: "Analytics", cookies: ["_ga"], default: true}],
  privacyPolicyUrl: "/privacy"};</script><script src=/orejime/dist/orejime-standard-en.js></script>"""
COOKIES_EU = """<template id=cookies-eu-banner-template><div id=cookies-eu-banner>By continuing to visit this site,
you accept
the use of cookies by Google Analytics. <a href=/more>Learn more</a> <button id=cookies-eu-reject>Reject</button>
<button id=cookies-eu-accept>Accept</button></div></template>
<script src=/cookies-eu-banner/dist/cookies-eu-banner.global.js></script>
<script>CookiesEuBanner.createCookiesBanner({onAccept() { window.isAccepted = true; }});</script>"""
PORSCHE = """<script type=module>
import("/@porscheofficial/cookie-consent-banner/dist/cookie-consent-banner/" + "cookie-consent-banner.esm.js");
</script><cookie-consent-banner btn-label-accept-and-continue="Agree and continue" %s
btn-label-select-all-and-continue="Select all and continue" btn-label-persist-selection-and-continue="Save selection"
content-settings-description="You can decide which cookies are used.">We use cookies to count visitors.
<a href="javascript:document.dispatchEvent(new Event('cookie_consent_details_show'))">individual settings</a>
</cookie-consent-banner><script>document.querySelector("cookie-consent-banner").availableCategories =
[{key: "required", label: "Needed", isMandatory: true}, {key: "analytics", label: "Analytics"}];</script>"""

_ESSENTIAL = "btn-label-only-essential-and-continue='Continue with technically required cookies only'"
_EU_STATE = "document.cookie.match(/hasConsent=(\\w+)/)?.[1]"
_OREJIME_STATE = "decodeURIComponent(document.cookie).match(/analytics.:(\\w+)/)?.[1]"
_PORSCHE_STATE = "decodeURIComponent(document.cookie).match(/categories=([^;]*)/)?.[1]"
_NECESSARY = 'acceptNecessaryBtn: "Reject all",'
_VANILLA_STATE = "CookieConsent.getUserPreferences().acceptedCategories.sort().join()"
_ALL, _NEEDED = "ads,analytics,necessary", "necessary"
_KLARO_STATE = "/klaro=/.test(document.cookie) && klaro.getManager().consents.matomo"
_TARTE_STATE = "document.cookie.match(/!counter=(\\w+)/)?.[1]"

CASES = (
    Case(
        "vanilla-cookieconsent",
        "vanilla-cookieconsent v3",
        VANILLA % (_NECESSARY, ""),
        _VANILLA_STATE,
        _ALL,
        _NEEDED,
        1,
    ),
    Case(
        "vanilla-cookieconsent",
        "vanilla-cookieconsent v3",
        VANILLA % ("", _NECESSARY),
        _VANILLA_STATE,
        _ALL,
        _NEEDED,
        2,
    ),
    Case("vanilla-cookieconsent", "vanilla-cookieconsent v3", VANILLA % ("", ""), _VANILLA_STATE, _ALL, _NEEDED, 2),
    Case(
        "vanilla-cookieconsent-2",
        "vanilla-cookieconsent v2",
        VANILLA_2,
        "cc.getUserPreferences().accept_type",
        "all",
        "necessary",
        2,
    ),
    Case(
        "cookieconsent",
        "Cookie Consent 3 (Osano open source)",
        OSANO,
        "document.cookie.match(/status=(\\w+)/)?.[1]",
        "allow",
        "deny",
        1,
    ),
    Case("klaro", "Klaro", KLARO % "false", _KLARO_STATE, True, False, 1),
    Case("klaro", "Klaro", KLARO % "true", _KLARO_STATE, True, False, 2),
    Case("tarteaucitronjs", "tarteaucitron", TARTEAUCITRON % "true", _TARTE_STATE, "true", "false", 1),
    Case("tarteaucitronjs", "tarteaucitron", TARTEAUCITRON % "false", _TARTE_STATE, "true", "false", 2),
    Case("orejime", "Orejime", OREJIME, _OREJIME_STATE, "true", "false", 1),
    Case("cookies-eu-banner", "by its words", COOKIES_EU, _EU_STATE, "true", "false", 1),
    *(
        Case(package, "by its words", PORSCHE % said, _PORSCHE_STATE, "required,analytics", "required", layer)
        for package in ("@porscheofficial/cookie-consent-banner",)
        for layer, said in ((1, _ESSENTIAL), (2, ""))
    ),
)
