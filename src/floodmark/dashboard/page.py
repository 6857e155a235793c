"""How a page is declared, built and rendered."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from floodmark.api.access import Recent, access_of
from floodmark.api.addresses import is_private, prefix_of, route_path
from floodmark.api.live import Kind
from floodmark.api.problems import HttpError, http_status_of
from floodmark.errors import FloodmarkError
from floodmark.model.problems import KINDS
from floodmark.model.tokens import Role, is_enough
from floodmark.security.masking import mask_text

from .csrf import set_csrf_cookie
from .flash import take_flash
from .rendering import render
from .view import NOBODY, PATH_SAFE, View

Build = Callable[[View], Awaitable[Mapping[str, Any] | Response]]

# Pages of equal callers share one result for this long, so that many open dashboards cost little more than one.
SHARED_SECONDS = 1.0
_MOST_SHARED = 200
_LEAST_ZIPPED = 1000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class DashboardPage(Struct, frozen=True, kw_only=True):
    """A page: its path, its template, and the function that returns the values of the template.

    live    the kinds of live events after which the page asks for itself again
    every   seconds after which it also does so without an event: what it shows is not announced by one
    shared  whether callers with the same role see the same page
    """

    path: str
    template: str
    build: Build
    role: Role = "read"
    live: Sequence[Kind] = ()
    every: float | None = None
    shared: bool = True
    methods: Sequence[str] = ("GET",)


def page(path: str, template: str, **options: Any) -> Callable[[Build], DashboardPage]:
    """Return the decorator that declares a page; the options are fields of `DashboardPage`."""
    return lambda build: DashboardPage(path=path, template=template, build=build, **options)


class PageRoute(Route):
    """A route that accepts %2F as a `/` within a part of the path, as the API does."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path as `Edge` leaves it, where %2F and %25 are not decoded yet."""
        match, child = super().matches(scope)
        params = child.get("path_params")
        if params:
            child["path_params"] = {
                name: unquote(value) if isinstance(value, str) else value for name, value in params.items()
            }
        return match, child


def route_of(declared: DashboardPage) -> Route:
    """Return the route of a page."""

    async def answer(request: Request) -> Response:
        return await answer_page(request, lambda: _render(declared, request))

    return PageRoute(declared.path, answer, methods=list(declared.methods), include_in_schema=False)


async def answer_page(request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
    """Return what `work` returns. Errors become pages; a caller without access is sent to sign in."""
    try:
        response = await work()
    except HttpError as error:
        if error.status == 401 and request.method == "GET":
            return _to_sign_in(request)
        response = _sign_in_again(request) if error.status == 401 else await _error_page(request, error)
    except FloodmarkError as error:
        response = await _error_page(request, error)
    set_csrf_cookie(request, response)
    return response


async def _render(declared: DashboardPage, request: Request) -> Response:
    view = await View.of(request)
    if not is_enough(view.role, declared.role):
        raise HttpError(403, f"this page needs the role {declared.role}, and you have the role {view.role}")
    built = await _build(declared, view)
    if isinstance(built, Response):
        return built
    return html(view, declared.template, built, live=declared.live, every=declared.every)


async def _build(declared: DashboardPage, view: View) -> Mapping[str, Any] | Response:
    """Build a page; equal requests within a second share the result."""
    request = view.request
    if not declared.shared or request.method != "GET":
        return await declared.build(view)
    shared = _shared(request)
    # The version of the live feed: a page that has heard of a change must not get what was read before it.
    version = request.app.state.live.version
    # With the prefix: a result may have links.
    key = repr(
        (version, declared.path, view.role, view.prefix, route_path(request.scope), request.scope["query_string"])
    )
    known = shared.get(key)
    if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
        known = shared.put(key, asyncio.ensure_future(declared.build(view)))
    # Shielded: others may wait for the same result when this caller goes away.
    return await asyncio.shield(known)


def _shared(request: Request) -> "Recent[asyncio.Future[Any]]":
    state = request.app.state
    if not hasattr(state, "dashboard_shared"):
        loop = asyncio.get_running_loop()
        state.dashboard_shared = Recent[asyncio.Future[Any]](loop.time, SHARED_SECONDS, _MOST_SHARED)
    found: Recent[asyncio.Future[Any]] = state.dashboard_shared
    return found


def forget_shared(request: Request) -> None:
    """Build every page again: an action has changed something."""
    _shared(request).clear()


def html(
    view: View,
    template: str,
    values: Mapping[str, Any],
    *,
    status: int = 200,
    live: Sequence[Kind] = (),
    every: float | None = None,
) -> Response:
    """Return a rendered page. A live request whose page has not changed gets 304."""
    is_live = "x-floodmark-live" in view.request.headers
    flash = None if is_live else take_flash(view.request)
    kinds, pause = " ".join(live), None if every is None else round(every * 1000)
    text = render(template, view=view, flash=flash, live=kinds, every=pause, is_live=is_live, **values)
    response = _compressed(view.request, text.encode(errors="replace"), status)
    if flash is not None:
        flash.clear(view.request, response)
    return response


def _compressed(request: Request, content: bytes, status: int) -> Response:
    headers = {
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        # Not `no-referrer`: browsers would then hide the Origin of our own forms.
        "Referrer-Policy": "same-origin",
        "Vary": "Accept-Encoding, Cookie",
    }
    if "gzip" in request.headers.get("accept-encoding", "") and len(content) >= _LEAST_ZIPPED:
        headers["Content-Encoding"] = "gzip"
        content = gzip.compress(content, 1, mtime=0)
    return Response(content, status, headers=headers, media_type="text/html; charset=utf-8")


def _to_sign_in(request: Request) -> Response:
    wanted = quote(route_path(request.scope), safe=PATH_SAFE)
    if request.scope["query_string"]:
        wanted += f"?{request.scope['query_string'].decode('latin-1')}"
    target = f"?to={quote(wanted)}" if wanted not in ("", "/") else ""
    return RedirectResponse(f"{prefix_of(request)}/sign-in{target}", 303)


def _sign_in_again(request: Request) -> Response:
    """Return the form to sign in, for a caller whose session has ended before a form was sent."""
    problem, hint = "your session has ended, and nothing was changed", "sign in, and do it again"
    return sign_in_form(request, "", problem, hint, status=401)


def sign_in_form(request: Request, to: str, problem: str = "", hint: str = "", *, status: int = 200) -> Response:
    """Return the form to sign in; over plain http only why there is none."""
    is_open = is_private(request)
    if not is_open:
        problem = "a token is not accepted over plain http: others could read it on the way"
        hint = "use https (the proxy in front of the server has to send X-Forwarded-Proto)"
    values = {"to": to, "problem": problem, "hint": hint, "is_open": is_open}
    return html(View(request, NOBODY), "sign_in.html", values, status=status)


async def _error_page(request: Request, error: FloodmarkError) -> Response:
    status = http_status_of(error)
    title = KINDS.get(status, ("", "The request was refused"))[1]
    values = {"status": status, "title": title, "detail": mask_text(str(error)), "hint": mask_text(error.hint)}
    try:
        view = View(request, await access_of(request.app).visitor(request))
    except HttpError:
        return Response(f"{title}: {mask_text(str(error))}. {mask_text(error.hint)}", status, media_type="text/plain")
    return html(view, "error.html", values, status=status)
