"""How a page is declared, built and rendered."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from floodmark.api.access import access_of
from floodmark.api.addresses import is_private, prefix_of, route_path
from floodmark.api.edge import EdgeRoute
from floodmark.api.live import Kind
from floodmark.api.problems import HttpError, http_status_of
from floodmark.errors import FloodmarkError
from floodmark.model.problems import KINDS
from floodmark.model.tokens import Role, is_enough
from floodmark.security.masking import mask_text

from .csrf import fill_csrf, set_csrf_cookie
from .flash import take_flash
from .rendering import render
from .sharing import Shared, SharedPage
from .view import NOBODY, PATH_SAFE, View

Build = Callable[[View], Awaitable[Mapping[str, Any] | Response]]

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


def route_of(declared: DashboardPage) -> Route:
    """Return the route of a page."""

    async def answer(request: Request) -> Response:
        return await answer_page(request, lambda: _render(declared, request))

    return EdgeRoute(declared.path, answer, methods=list(declared.methods), include_in_schema=False)


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

    async def build() -> Mapping[str, Any] | Response:
        return await declared.build(view)

    is_shared = declared.shared and request.method == "GET"
    shared = Shared.of(request).page(view, build) if is_shared else None
    built = await (build() if shared is None else shared.values())
    if isinstance(built, Response):
        return built
    return await _show(Shown(view, declared.template, built, live=declared.live, every=declared.every), shared)


async def _show(shown: "Shown", shared: SharedPage | None) -> Response:
    """Render a page in a thread: jobs that are due meanwhile must not wait for it."""

    async def render_text() -> str:
        return await asyncio.to_thread(shown.render)

    if shared is None or shown.flash is not None:
        text = await render_text()
    else:
        text = await shared.text(shown.view, render_text)
    return await asyncio.to_thread(shown.answer, text)


def forget_shared(request: Request) -> None:
    """Make every page again: an action has changed something."""
    Shared.of(request).clear()


class Shown:
    """A page to render and to send."""

    def __init__(
        self,
        view: View,
        template: str,
        values: Mapping[str, Any],
        *,
        live: Sequence[Kind] = (),
        every: float | None = None,
    ) -> None:
        self.view, self._template, self._values = view, template, values
        self._live, self._every = " ".join(live), None if every is None else round(every * 1000)
        self._is_live = "x-floodmark-live" in view.request.headers
        self.flash = None if self._is_live else take_flash(view.request)

    def render(self) -> str:
        """Return the text of the page, without the secret of the browser."""
        known = {"flash": self.flash, "live": self._live, "every": self._every, "is_live": self._is_live}
        return render(self._template, view=self.view, **known, **self._values)

    def answer(self, text: str, status: int = 200) -> Response:
        """Return the response with this text."""
        request = self.view.request
        response = _compressed(request, fill_csrf(text, self.view.csrf).encode(errors="replace"), status)
        if self.flash is not None:
            self.flash.clear(request, response)
        return response


def html(view: View, template: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
    """Return a rendered page."""
    shown = Shown(view, template, values)
    return shown.answer(shown.render(), status)


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
        return Response(f"{title}: {mask_text(error.in_full())}", status, media_type="text/plain")
    return html(view, "error.html", values, status=status)
