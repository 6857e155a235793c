"""Kinds of notifications, and parsers of the settings that configure them."""

import re
from typing import Literal, get_args
from urllib.parse import urlsplit

Kind = Literal["dead_letter", "account_lost", "stale_source"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_NONE = "none"
_ADDRESS = re.compile(r"[^\s@,<>()\"]{1,64}@[^\s@,<>()\"]{1,253}")
_BOT_TOKEN = re.compile(r"(\d{1,20}):[\w-]{10,100}", re.ASCII)


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Parse `dead_letter,account_lost`, or `none`; ValueError names the wrong part."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if words == [_NONE]:
        return ()
    for word in words:
        if word not in KINDS:
            raise ValueError(f"{word!r} is not one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in words)


def addresses_of(text: str) -> tuple[str, ...]:
    """Parse `ada@example.com, ops@example.com`; ValueError names the wrong part."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not _ADDRESS.fullmatch(word):
            raise ValueError(f"{word!r} is not an e-mail address")
    if not words:
        raise ValueError("there is no address")
    return tuple(words)


def bot_id(token: str) -> int:
    """Return the id of a Telegram bot from its token; the ValueError does not contain the token."""
    found = _BOT_TOKEN.fullmatch(token)
    if found is None:
        raise ValueError("it is not a token of a bot, such as 123456:ABC-DEF")
    return int(found[1])


def smtp_server(url: str) -> tuple[str, int | None]:
    """Return host and port of `smtp://user:password@host:587`; the ValueError does not contain the password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the address of the mail server cannot be read") from None
    if not host or parts.path.strip("/") or parts.query:
        raise ValueError("it is more, or less, than smtp://user:password@host:port")
    return host, port
