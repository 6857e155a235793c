"""The API reference, rendered from the OpenAPI document of this server."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from floodmark.api.addresses import base_url
from floodmark.api.routing import PREFIX
from floodmark.dashboard.page import page
from floodmark.dashboard.reference import Reference, build_reference, curl_line, find_text, matching, prose
from floodmark.dashboard.rendering import render
from floodmark.dashboard.view import View
from floodmark.operations.declaration import operations_of
from floodmark.operations.declared import Operations

# The rendered parts of the addresses at which we are reached; a caller can send any.
_MOST_RENDERED = 8


@page("/docs", "docs.html", shared=False)
async def show_docs(view: View) -> Mapping[str, Any]:
    """Show every operation, or those in which the words of the query occur."""
    known, text = _find_reference(view.request), (view.query("text") or "")[:200]
    reference = await known.reference
    found = matching(reference, text) if text else reference
    return {
        "about": prose(reference.about),
        "count": sum(len(group.operations) for group in reference.groups),
        "text": text,
        "base": base_url(view.request),
        "document": view.url(f"{PREFIX}/openapi.json"),
        "content": await _content(view, found) if text else await known.content(view, found),
    }


class _KnownReference:
    """The reference of this server and its rendered forms. They are made once, in threads: they take a second."""

    def __init__(self, app: Any) -> None:
        self._building = asyncio.ensure_future(asyncio.to_thread(_build, app))
        self._rendered: OrderedDict[str, Markup] = OrderedDict()

    @property
    def reference(self) -> Awaitable[Reference]:
        """The reference. It goes on being built if its first reader leaves."""
        return asyncio.shield(self._building)

    async def content(self, view: View, reference: Reference) -> Markup:
        """Return the rendered reference for the address of a caller."""
        key = f"{base_url(view.request)} {view.needs_token}"
        if key not in self._rendered:
            self._rendered[key] = await _content(view, reference)
            while len(self._rendered) > _MOST_RENDERED:
                self._rendered.popitem(last=False)
        return self._rendered[key]


def _find_reference(request: Request) -> _KnownReference:
    state = request.app.state
    if not hasattr(state, "reference"):
        state.reference = _KnownReference(request.app)
    found: _KnownReference = state.reference
    return found


def _build(app: Any) -> Reference:
    roles: dict[str, str | None] = {one.operation_id: one.role for one in operations_of(Operations)}
    return build_reference(app.openapi(), {**_OTHERS, **roles})


async def _content(view: View, reference: Reference) -> Markup:
    base, has_token = base_url(view.request), view.needs_token
    curl = partial(curl_line, base=base, has_token=has_token)
    values = {"prose": prose, "find_text": find_text, "curl": curl}
    text = await asyncio.to_thread(render, "docs_content.html", view=view, reference=reference, **values)
    return Markup(text)  # noqa: S704 - rendered by our own template, with escaped values


# The roles of routes that are no operations. Probes need no token; webhooks need one unless they are signed.
_OTHERS = {
    **dict.fromkeys(("show_health", "show_readiness", "show_liveness")),
    "deliver": "operate",
    "deliver_to": "operate",
}
PAGES = (show_docs,)
