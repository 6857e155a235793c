"""Detects pages that block programs."""

import re

_STATUSES = {
    401: "login required",
    403: "access denied",
    407: "login required",
    429: "too many requests",
    451: "blocked for legal reasons",
}
_TITLES = re.compile(
    r"just a moment|attention required|access denied|are you a robot|are you human|captcha|pardon our interruption"
    r"|request unsuccessful|security check|bot verification|verify you are (?:a )?human|zugriff verweigert|forbidden",
    re.IGNORECASE,
)
_TEXTS = re.compile(
    r"(?:solve|complete|enter|fill in) (?:the|this|a) captcha|captcha (?:challenge|required|verification|check)"
    r"|verify (?:that )?you are (?:a )?human|not a robot|access denied|unusual traffic|automated access"
    r"|bot detection|enable javascript and cookies to continue|kein roboter",
    re.IGNORECASE,
)
# A longer page that mentions a captcha may be a real one.
_SHORT = 1500


def why_blocked(status: int | None, title: str, text: str) -> str | None:
    """Return why this is not the page that a visitor would see; None if it is."""
    if status in _STATUSES:
        return f"status {status}: {_STATUSES[status]}"
    if found := _TITLES.search(title):
        return f'its title says "{found[0].lower()}"'
    if len(text) < _SHORT and (found := _TEXTS.search(text)):
        return f'it says "{found[0].lower()}"'
    return None
