"""Proof that a form was sent from one of our pages: a random cookie, and the same value in the form.

Another site can neither read the cookie nor set it. `Edge` also refuses requests whose Origin is not our own.
"""

import base64
import binascii
import hmac
import secrets

from starlette.requests import Request
from starlette.responses import Response

from floodmark.api.addresses import cookie_name, is_https
from floodmark.api.problems import HttpError

COOKIE, FIELD = "floodmark_csrf", "csrf"
_BYTES = 16
# Stands for the secret in a rendered page, which several browsers may share. It is never sent, so no content has it.
CSRF_PLACE = secrets.token_urlsafe(_BYTES)
_KNOWN = "floodmark.csrf"


def csrf_secret(request: Request) -> bytes:
    """Return the secret of this browser; a new one if it has none yet."""
    known = request.scope.get(_KNOWN)
    if known is None:
        known = _sent_secret(request) or secrets.token_bytes(_BYTES)
        request.scope[_KNOWN] = known
    assert isinstance(known, bytes)
    return known


def renew_csrf(request: Request) -> None:
    """Give the browser another secret: it belongs to another person from now on."""
    request.scope[_KNOWN] = secrets.token_bytes(_BYTES)


def fill_csrf(text: str, secret: bytes) -> str:
    """Return the text of a page with the secret in its forms.

    It is different in every response: a compressed page must not reveal it.
    """
    mask = secrets.token_bytes(_BYTES)
    return text.replace(CSRF_PLACE, base64.urlsafe_b64encode(mask + _xor(mask, secret)).decode())


def check_csrf(request: Request, field: str) -> None:
    """Raise 403 unless the form has the secret of this browser."""
    secret = _sent_secret(request)
    found = _decode(field, 2 * _BYTES)
    if secret is None or found is None or not hmac.compare_digest(_xor(found[:_BYTES], found[_BYTES:]), secret):
        raise HttpError(
            403, "this form is too old, or is not from this dashboard", hint="load the page again, and retry"
        )


def set_csrf_cookie(request: Request, response: Response) -> None:
    """Send the secret to a browser that has none."""
    secret = csrf_secret(request)
    if _sent_secret(request) != secret:
        set_cookie(request, response, COOKIE, base64.urlsafe_b64encode(secret).decode())


def set_cookie(request: Request, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
    """Set a cookie that scripts and other sites cannot use; with `seconds=0` remove it."""
    response.set_cookie(
        cookie_name(request, name),
        value,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="lax",
        secure=is_https(request),
    )


def sent_cookie(request: Request, name: str) -> str:
    """Return a cookie that `set_cookie` has set; empty if there is none."""
    return request.cookies.get(cookie_name(request, name), "")


def _sent_secret(request: Request) -> bytes | None:
    return _decode(sent_cookie(request, COOKIE))


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _decode(text: str, length: int = _BYTES) -> bytes | None:
    try:
        found = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return found if len(found) == length else None
