"""Headers that a job adds to its requests, with secrets that it refers to by name. Pure.

`{secret:SHOP}` in a value is the stored secret SHOP, or the setting WEB_SECRET_SHOP of the worker. Jobs, the API and
the dashboard only have the name.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from floodmark.errors import InvalidInput, Permanent
from floodmark.model.secrets import is_secret_label
from floodmark.security.masking import is_secret_name

_MAX_HEADERS, _LONGEST = 20, 2000
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]{1,60})\s*:\s*([^\r\n\0]+)")
_SECRET = re.compile(r"\{secret:([A-Za-z0-9_]{1,60})\}")
# These belong to the connection or to the crawl itself.
_CONNECTION = ("accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding", "upgrade")
_OWN = frozenset({*_CONNECTION, "if-modified-since", "if-none-match", "range"})
_HINT = "as in --header 'Accept-Language: de' or --header 'Authorization: Bearer {secret:SHOP}'"


def parse_headers(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the names and values of headers, or raise `InvalidInput`. A secret in plain text is refused."""
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list | tuple) or len(listed) > _MAX_HEADERS:
        raise InvalidInput(f"headers is not a list of at most {_MAX_HEADERS} headers", hint=_HINT)
    return tuple(_parse_header(str(text)) for text in listed)


def _parse_header(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        raise InvalidInput("a header is not written as NAME: VALUE in one line", hint=_HINT)
    name, value = found[1], found[2].strip()
    if name.lower() in _OWN:
        raise InvalidInput(f"the header {name} is set by the crawl itself", hint="leave it out")
    if not value.isascii():
        raise InvalidInput(f"the header {name} has other characters than ASCII", hint="escape them, as in %C3%A9")
    if is_secret_name(name) and not _SECRET.search(value):
        raise InvalidInput(
            f"the value of {name} would be stored for everyone to read",
            hint=f"store it with: floodmark secrets set SHOP, and write --header '{name}: ... {{secret:SHOP}}'",
        )
    return name, value


def parse_secret_name(value: Any, option: str) -> str:
    """Return the name of a secret, such as one with a user and a password; empty if there is none."""
    text = str(value or "").strip()
    if text and not is_secret_label(text):
        raise InvalidInput(
            f"{option} is not the name of a secret",
            hint=f"store it with: floodmark secrets set SHOP, and write --{option.replace('_', '-')} SHOP",
        )
    return text


def secrets_in(headers: tuple[tuple[str, str], ...]) -> set[str]:
    """Return the names of the secrets that headers refer to."""
    return {name for _, value in headers for name in _SECRET.findall(value)}


def read_pair(name: str, section: Mapping[str, str]) -> tuple[str, str]:
    """Return the user and the password of a secret; raise `Permanent` if this worker does not have it."""
    user, colon, password = read_secret(name, section).partition(":")
    if not colon:
        raise Permanent(
            f"the secret {name.upper()} is not written as user:password",
            hint=f"correct it: floodmark secrets set {name.upper()}",
        )
    return user, password


def fill_headers(headers: tuple[tuple[str, str], ...], basic_auth: str, section: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with their secrets; raise `Permanent` if this worker does not have one of them."""
    filled = {name: _SECRET.sub(lambda found: read_secret(found[1], section), value) for name, value in headers}
    if basic_auth:
        pair = ":".join(read_pair(basic_auth, section))
        filled["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    for name, value in filled.items():
        if not value.isprintable() or not value.isascii():
            raise Permanent(f"the header {name} has a secret with characters that no header can have")
    return filled


def read_secret(name: str, section: Mapping[str, str]) -> str:
    """Return a secret; raise `Permanent` if there is none of this name."""
    found = section.get(f"secret_{name.lower()}")
    if not found:
        raise Permanent(
            f"there is no secret {name.upper()}",
            hint=f"store it with: floodmark secrets set {name.upper()}",
        )
    return found
