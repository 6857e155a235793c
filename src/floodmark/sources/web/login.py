"""Logs in to a site by its form, as a browser does without scripts, and returns the cookies of the session.

The login page is requested, its form with a password is filled in and sent, and redirects within the site are followed.
Cookies are kept for the run only, and are sent to the site only.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from floodmark.errors import Permanent
from floodmark.extensions.services import Services
from floodmark.outbound.client import REDIRECTED, HttpAnswer

from .charsets import decode_text
from .nesting import TooNested, check_nesting
from .request_headers import read_pair
from .urls import Scope, normalize_url, origin_of

if TYPE_CHECKING:
    from .params import WebParams

_MOST_FIELDS, _MOST_COOKIES, _LONGEST_COOKIE, _MOST_REDIRECTS = 100, 50, 4000, 5
_LOGOUT = re.compile(r"[/?=_-](?:log|sign)[_-]?(?:out|off)\b|abmelden|deconnexion", re.IGNORECASE)
_USER_TYPES = ("email", "text", "tel", "")


class LoginForm(Struct, frozen=True, kw_only=True):
    """The form of a login page. `fields` has the values of hidden inputs, such as a token against forged requests."""

    action: str
    user_field: str
    password_field: str
    fields: dict[str, str]


async def log_in(services: Services, scope: Scope, params: "WebParams") -> dict[str, str]:
    """Return the cookies of a new session; raise `Permanent` if the site refuses the login."""
    user, password = read_pair(params.login, services.section)
    url = params.login_url
    jar: dict[str, str] = {}
    page = await services.http.get(url, follow=False)
    add_cookies(jar, page)
    form = find_form(page, url)
    if form is None:
        raise Permanent(
            f"{url} has no form with a user and a password (status {page.status})",
            hint="see it with: floodmark try; forms that scripts make cannot be filled in",
        )
    if not is_safe(form.action, scope):
        raise Permanent(f"the form of {url} would send the password to {origin_of(form.action)}")
    fields = {**form.fields, form.user_field: user, form.password_field: password}
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": origin_of(url),
        "Referer": url,
        **cookie_header(jar),
    }
    answer = await services.guarded_http.send("POST", form.action, body=urlencode(fields).encode(), headers=headers)
    add_cookies(jar, answer)
    answer = await _follow(services, scope, answer, form.action, jar)
    if answer.status >= 400 or (answer.status == 200 and find_form(answer, form.action) is not None) or not jar:
        raise Permanent(
            f"the login at {url} failed (status {answer.status})",
            hint=f"check the secret {params.login.upper()}, and that the site needs no further step",
        )
    return jar


async def _follow(services: Services, scope: Scope, answer: HttpAnswer, url: str, jar: dict[str, str]) -> HttpAnswer:
    for _ in range(_MOST_REDIRECTS):
        to = normalize_url(answer.headers.get("Location", ""), url) if answer.status in REDIRECTED else None
        if to is None or not is_safe(to, scope):
            break
        url, answer = to, await services.http.get(to, headers=cookie_header(jar), follow=False)
        add_cookies(jar, answer)
    return answer


def is_safe(url: str, scope: Scope) -> bool:
    """Return whether secrets of a job may be sent to a URL: on its site, and with TLS if its start has it."""
    return scope.is_inside(url) and (url.startswith("https:") or not scope.start.startswith("https:"))


def ends_session(url: str) -> bool:
    """Return whether a link would log out."""
    return _LOGOUT.search(url) is not None


def find_form(answer: HttpAnswer, url: str) -> LoginForm | None:
    """Return the first form with a user and a password. Pure."""
    html = decode_text(answer.body, answer.charset)
    try:
        check_nesting(html)
    except TooNested:
        return None
    for node in LexborHTMLParser(html).css("form"):
        inputs = [found for found in node.css("input[name]")[:_MOST_FIELDS] if found.attributes.get("name")]
        password = next((_name(found) for found in inputs if _type(found) == "password"), None)
        user = next((_name(found) for found in inputs if _type(found) in _USER_TYPES), None)
        action = normalize_url(node.attributes.get("action") or url, url)
        if password is not None and user is not None and action is not None:
            kept = {_name(found): found.attributes.get("value") or "" for found in inputs if _is_kept(found)}
            return LoginForm(action=action, user_field=user, password_field=password, fields=kept)
    return None


def _is_kept(node: LexborNode) -> bool:
    """Return whether a browser would send the value of an input without any choice of its user."""
    kind = _type(node)
    return kind == "hidden" or (kind == "checkbox" and "checked" in node.attributes)


def _name(node: LexborNode) -> str:
    return node.attributes.get("name") or ""


def _type(node: LexborNode) -> str:
    return (node.attributes.get("type") or "").strip().lower()


def add_cookies(jar: dict[str, str], answer: HttpAnswer) -> None:
    """Add the cookies that a response sets; an empty or expired one is removed."""
    for line in answer.headers.getall("Set-Cookie", ()):
        pair, *rest = line[:_LONGEST_COOKIE].split(";")
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name or not pair.isprintable():
            continue
        if not value.strip() or any(part.strip().lower() in {"max-age=0", "max-age=-1"} for part in rest):
            jar.pop(name, None)
        elif name in jar or len(jar) < _MOST_COOKIES:
            jar[name] = value.strip()


def cookie_header(jar: Mapping[str, str], own: str = "") -> dict[str, str]:
    """Return the header of cookies, after those that the job names itself."""
    pairs = [*([own] if own else []), *(f"{name}={value}" for name, value in jar.items())]
    return {"Cookie": "; ".join(pairs)} if pairs else {}
