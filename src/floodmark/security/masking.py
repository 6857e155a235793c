"""Masks secrets in texts and values, for everything that is shown: responses, logs, audit log, errors, notifications.

In case of doubt it masks.
"""

import re
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from floodmark.errors import InvalidInput

MASK = "***"

# As part of a name: REDIS_PASSWORD, api_token, session_string, X-Api-Key.
_NAMES = (
    "password|passwd|passphrase|pwd|token|secret|session|authorization|credential|(?:api|access|private|auth)[_-]?key"
)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
# Names that are secrets only as the whole name.
_WHOLE_NAMES = frozenset({"key", "auth", "cookie", "cookies", "pass", "pw"})
# A part of each name above: most texts have none of them, and this check is fast.
_HINTS = ("pass", "pwd", "token", "secret", "session", "auth", "credential", "key", "cookie", "bearer")
_VALUE = r"""(?:\*\*\*|"[^"]{0,512}"|'[^']{0,512}'|[^\s&]+)"""
# `password=x`, `password: x`, `"token": "x"`, `X-Api-Key: x`. "session: 3" is prose; `Authorization` is a header.
# Every repetition that can fail is bounded: no text is slow.
_ASSIGNED = _NAMES.replace("authorization", r"authorization_\w{1,32}")
_DESCRIBED = _ASSIGNED.replace("session|", "")
_ASSIGNMENT = re.compile(
    rf"""((?:{_ASSIGNED})\w{{0,32}}(?:["']\s?:|\s?=)\s?|(?:{_DESCRIBED})["']?\s?:\s?)(?!//){_VALUE}""",
    re.IGNORECASE | re.ASCII,
)
# Headers whose value has several words: the quoted text, or the rest of the line, is secret.
_HEADER = re.compile(
    r"""(\b(?:(?:proxy-)?authorization["']?\s?[:=]|(?:set-)?cookie["']?\s?:)\s?)"""
    r"""(?:(["'])[^"'\r\n]{1,4096}|((?:basic|bearer|token)\s)(?!fm_\.)[^\s"'`]{1,4096}|(?!\s*bearer\s+fm_\.)[^\r\n"'][^\r\n]{0,4096})""",
    re.IGNORECASE | re.ASCII,
)
_BEARER = re.compile(r"(\bbearer\s)[\w.~+/-]{16,}=*", re.IGNORECASE | re.ASCII)
# A token of our own API, wherever it stands; its id may be shown.
_TOKEN = re.compile(r"(fm_[0-9a-f]{16}_)[0-9a-f]{1,64}", re.ASCII)
# A token of a Telegram bot; the number in front is its public id.
_BOT_TOKEN = re.compile(r"(?<!\d)(\d{6,12}):[\w-]{30,64}", re.ASCII)
_SPACES = re.compile(r"(\s+)")
# Shorter segments of a URL are words such as `api`: masking them would make errors unreadable.
_SHORTEST_PIECE = 8


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether a value under this name must not be shown."""
    return _SECRET_NAME.search(name) is not None


def mask_values(value: Any) -> Any:
    """Mask values under secret names at any depth, as in the params of a job; mask other texts with `mask_text`."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {name: MASK if _hides(name, inner) else mask_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(inner) for inner in value]
    return value


def _hides(name: object, value: Any) -> bool:
    """Return whether a value must be masked: an empty value is not a secret."""
    text = str(name)
    return (is_secret_name(text) or text.lower() in _WHOLE_NAMES) and value is not None and value != ""


def mask_answer(value: Any) -> Any:
    """Mask the plain values of a response: `mask_values` for every `params`, `mask_text` for all other texts.

    Items, which are under `data`, are not masked.
    """
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {name: _mask_field(name, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_answer(inner) for inner in value]
    return value


def _mask_field(name: Any, value: Any) -> Any:
    if name == "params":
        return mask_values(value)
    return value if name == "data" else mask_answer(value)


def restore_masked(value: Any, before: Any = None, *, where: str = "params") -> Any:
    """Return the value with every masked secret replaced by its value in `before`; refuse any other mask.

    So a job that was read with masked secrets can be sent back: a mask is never stored.
    """
    if isinstance(value, str) and MASK in value:
        if value == before:
            return value
        if isinstance(before, str) and value in (mask_text(before), MASK):
            return before
        if value == MASK and before is not None:
            return before
        if value == MASK or _is_masked(value):
            raise InvalidInput(
                f"{where[:80]} holds {value[:80]!r}, the mask of a secret",
                hint="send the secret itself, or leave this value as it was read",
            )
    if isinstance(value, dict):
        known = before if isinstance(before, dict) else {}
        return {name: restore_masked(inner, known.get(name), where=f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        known_list = before if isinstance(before, list | tuple) and len(before) == len(value) else [None] * len(value)
        return [restore_masked(inner, old, where=where) for inner, old in zip(value, known_list, strict=True)]
    return value


def _is_masked(text: str) -> bool:
    """Return whether the masks are where `mask_text` would put them."""
    return mask_text(text.replace(MASK, "x")) == text


def mask_text(text: str) -> str:
    """Return the text without secrets: passwords in URLs, values assigned to secret names, headers, and tokens."""
    if "fm_" in text:
        text = _TOKEN.sub(rf"\1{MASK}", text)
    if ":" in text:
        text = _BOT_TOKEN.sub(rf"\1:{MASK}", text)
    if _may_hold_secret(text.lower()):
        text = _HEADER.sub(_mask_header, text)
        text = _BEARER.sub(rf"\1{MASK}", text)
        text = _ASSIGNMENT.sub(rf"\1{MASK}", text)
    if "@" in text and "://" in text:
        # Word by word: one expression over the whole text could be made to take quadratic time.
        text = "".join(_mask_word(word) for word in _SPACES.split(text))
    return text


def mask_url(url: str, text: str) -> str:
    """Mask a URL that is a secret, and its parts except the host; return printable text."""
    split = urlsplit(url)
    pieces = [*split.path.split("/"), *(value for _, value in parse_qsl(split.query))]
    secrets = [url, split.path.rstrip("/"), split.query, *(piece for piece in pieces if len(piece) >= _SHORTEST_PIECE)]
    for secret in filter(None, secrets):
        text = text.replace(secret, MASK)
    return mask_text("".join(letter if letter.isprintable() else " " for letter in text))


def _may_hold_secret(lowered: str) -> bool:
    # A loop: a generator costs twice as much, and every log line comes through here.
    for hint in _HINTS:  # noqa: SIM110 - see above
        if hint in lowered:
            return True
    return False


def _mask_header(found: re.Match[str]) -> str:
    """Return the name of the header, the quote or the scheme before its value, and a mask."""
    name, quote, scheme = found.groups(default="")
    return f"{name}{quote}{scheme}{MASK}"


def _mask_word(word: str) -> str:
    if "@" not in word or "://" not in word:
        return word
    head, *tails = word.split("://")
    shown = [head]
    for tail in tails:
        shown.append(_mask_user(tail, is_web=shown[-1].lower().endswith(("http", "https"))))
    return "://".join(shown)


def _mask_user(tail: str, *, is_web: bool) -> str:
    """Mask the password before the last `@`; in web URLs a user name without a password is a token."""
    user_info, at, rest = tail.rpartition("@")
    user, colon, _ = user_info.partition(":")
    if not at or "/" in user:
        return tail
    if colon:
        return f"{user}:{MASK}@{rest}"
    return f"{MASK}@{rest}" if is_web else tail
