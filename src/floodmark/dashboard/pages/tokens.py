"""Tokens of the API and sessions of the dashboard: list, add, revoke, end. A new token is shown once."""

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from floodmark.api.access import access_of
from floodmark.dashboard.actions import arguments_of, first, read_form
from floodmark.dashboard.forms import Refused, show_again
from floodmark.dashboard.page import forget_shared, html, page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError
from floodmark.operations.declared import Operations

ROLES = (
    ("read", "reads everything except tokens and secrets: jobs, executions, items, the audit log"),
    ("operate", "also pauses, resumes, runs, cancels and retries; sets watermarks and limits; drains; tests accounts"),
    ("admin", "also changes jobs, triggers, accounts, secrets and tokens, and sees secrets in params"),
)
_TYPED = ("name", "role", "expires_in")
# In this order: browsers name those that they resemble.
_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"))
_MORE_SYSTEMS = (("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"))


@page("/tokens", "tokens.html", role="admin", live=("change",), shared=False, methods=("GET", "POST"))
async def show_tokens(view: View) -> Mapping[str, Any] | Response:
    """List tokens and sessions, or add a token."""
    if view.request.method != "POST":
        return await _values(view)
    fields = await read_form(view.request)
    typed = {name: first(fields, name) for name in _TYPED}
    try:
        minted = await view.operations.call(Operations.add_token, arguments_of(Operations.add_token, fields))
    except FloodmarkError as error:
        return show_again(view, "tokens.html", {**await _values(view), "typed": typed}, Refused.of(error))
    access_of(view.request.app).forget()
    forget_shared(view.request)
    # Not by a redirect: the token must not be in a cookie or an address.
    return html(view, "tokens.html", {**await _values(view), "minted": minted})


async def _values(view: View) -> dict[str, Any]:
    tokens = await view.operations.tokens(cursor=view.query("cursor"), limit=50)
    sessions = await view.operations.sessions(cursor=view.query("sessions"), limit=50)
    is_first = not tokens.items and view.query("cursor") is None
    values = {"tokens": tokens, "sessions": sessions, "roles": ROLES, "is_first": is_first, "browser": browser_name}
    return {**values, "typed": dict.fromkeys(_TYPED, ""), "minted": None, "refused": None}


def browser_name(agent: str) -> str:
    """Return the browser and the system that a User-Agent names: "Firefox on Linux"."""
    browser = next((name for mark, name in _BROWSERS if mark in agent), "")
    system = next((name for mark, name in (*_SYSTEMS, *_MORE_SYSTEMS) if mark in agent), "")
    if not browser:
        found = re.match(r"[\w.-]{1,40}", agent)
        return found[0] if found else "unknown"
    return f"{browser} on {system}" if system else browser


PAGES = (show_tokens,)
