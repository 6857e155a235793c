"""Secrets that jobs refer to by name: their names, and forms to set and remove them. Values are never shown."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from floodmark.api.addresses import is_private
from floodmark.dashboard.actions import first, read_form, require_private
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError


@page("/secrets", "secrets.html", role="admin", live=("change",), shared=False, methods=("GET", "POST"))
async def show_secrets(view: View) -> Mapping[str, Any] | Response:
    """List the names of secrets, or set one."""
    if view.request.method != "POST":
        return await _values(view)
    fields = await read_form(view.request)
    name = first(fields, "name").strip()
    try:
        require_private(view.request)
        done = await view.operations.set_secret(name, first(fields, "value"))
    except FloodmarkError as error:
        # Without the value: a page must not contain it.
        return show_again(view, "secrets.html", {**await _values(view), "typed": name}, Refused.of(error))
    said = "replaced" if done.replaced else "stored"
    return go_to(view, view.url("/secrets"), f"The secret {done.secret.name} was {said}.")


async def _values(view: View) -> dict[str, Any]:
    found = await view.operations.secrets(cursor=view.query("cursor"), limit=50)
    return {"secrets": found, "typed": "", "refused": None, "is_open": is_private(view.request)}


PAGES = (show_secrets,)
