"""What may be shown of a text that can carry secrets. Masks too much rather than too little."""

import re
from functools import lru_cache
from typing import Any

MASK = "***"

# Read together with the spelling of keys elsewhere: REDIS_PASSWORD, api_token, session_string, X-Api-Key.
_NAMES = "password|passwd|passphrase|token|secret|session|authorization|credential|(?:api|access|private)[_-]?key"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
# `password=x`, `"token": "x"`, `Authorization: Bearer x`. What can fail to match is bounded: no text is slow.
_ASSIGNMENT = re.compile(
    rf"""((?:{_NAMES})\w{{0,32}}(?:["']\s?:|\s?=)\s?|authorization:\s?(?:\w{{1,32}}\s)?)"""
    r"""(?:"[^"]{0,512}"|'[^']{0,512}'|[^\s&]+)""",
    re.IGNORECASE | re.ASCII,
)
# A token of our own API, wherever it stands; its id may be shown.
_TOKEN = re.compile(r"(fm_[0-9a-f]{16}_)[0-9a-f]{1,64}", re.ASCII)
_SPACES = re.compile(r"(\s+)")


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a value under this name must not be shown."""
    return _SECRET_NAME.search(name) is not None


def mask_values(value: Any) -> Any:
    """What someone else has named, such as the params of a job: without the values under names of secrets.

    At any depth; and of every text what `mask_text` leaves of it.
    """
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {name: MASK if _hides(name, inner) else mask_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(inner) for inner in value]
    return value


def _hides(name: object, value: Any) -> bool:
    """Nothing is no secret, and that there is none may be shown."""
    text = str(name)
    is_secret = is_secret_name(text) or text.lower() in ("key", "auth", "cookie", "cookies")
    return is_secret and value is not None and value != ""


def mask_text(text: str) -> str:
    """The text without passwords of URLs, values assigned to secret names (`password=...`) and tokens of the API."""
    if "fm_" in text:
        text = _TOKEN.sub(rf"\1{MASK}", text)
    # Looked for first, because most texts have none of these and the search costs several microseconds.
    if "=" in text or '"' in text or "'" in text or "authorization:" in text.lower():
        text = _ASSIGNMENT.sub(rf"\1{MASK}", text)
    if "@" in text and "://" in text:
        # Word by word: one expression over the whole text could be made to take quadratic time.
        text = "".join(_mask_word(word) for word in _SPACES.split(text))
    return text


def _mask_word(word: str) -> str:
    if "@" not in word or "://" not in word:
        return word
    head, *tails = word.split("://")
    shown = [head]
    for tail in tails:
        shown.append(_mask_user(tail, is_web=shown[-1].lower().endswith(("http", "https"))))
    return "://".join(shown)


def _mask_user(tail: str, *, is_web: bool) -> str:
    """Hide the password before the last `@`; on the web a user without a password is a token."""
    user_info, at, rest = tail.rpartition("@")
    user, colon, _ = user_info.partition(":")
    if not at or "/" in user:
        return tail
    if colon:
        return f"{user}:{MASK}@{rest}"
    return f"{MASK}@{rest}" if is_web else tail
