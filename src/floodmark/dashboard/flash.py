"""A message for the next page: what an action has done, or why it was refused. It travels in a cookie."""

import base64
import binascii
from typing import Any, Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from .csrf import sent_cookie, set_cookie

_COOKIE = "floodmark_flash"
_SECONDS = 60
# In bytes, of each text: browsers drop a cookie of more than 4096 bytes.
_LONGEST = 1200


class Flash(Struct, frozen=True):
    """One message."""

    kind: Literal["done", "failed"]
    text: str
    hint: str = ""

    def clear(self, request: Request, response: Response) -> None:
        """Show it once."""
        set_cookie(request, response, _COOKIE, "", seconds=0)


def set_flash(request: Request, response: Response, kind: Any, text: str, hint: str = "") -> None:
    """Show a message on the next page."""
    encoded = base64.urlsafe_b64encode(msgspec.json.encode(Flash(kind, _cut(text), _cut(hint)))).decode()
    set_cookie(request, response, _COOKIE, encoded, seconds=_SECONDS)


def take_flash(request: Request) -> Flash | None:
    """Return the message for this page."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(sent_cookie(request, _COOKIE)), type=Flash)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None


def _cut(text: str) -> str:
    return text.encode()[:_LONGEST].decode(errors="ignore")
