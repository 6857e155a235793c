"""Sign-in with a token, and sign-out: of this browser, or of all browsers with the same token."""

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from floodmark.api.access import SESSION, access_of, resources_of
from floodmark.api.addresses import described_address, is_private
from floodmark.api.edge import EdgeRoute
from floodmark.api.problems import HttpError, request_id_of
from floodmark.errors import NotFound
from floodmark.model.audit import Actor
from floodmark.operations.stored_sessions import KEPT, DashboardSessions, StoredSession, session_id_in
from floodmark.operations.stored_tokens import StoredToken

from .actions import back_to, first, read_form
from .csrf import renew_csrf, set_cookie
from .page import answer_page, sign_in_form
from .view import NOBODY, View


async def show_sign_in(request: Request) -> Response:
    """Show the form; over plain http only why there is none."""

    async def work() -> Response:
        return sign_in_form(request, request.query_params.get("to", ""))

    return await answer_page(request, work)


async def sign_in(request: Request) -> Response:
    """Begin a session, and open the page that was asked for."""
    return await answer_page(request, lambda: _sign_in(request))


async def _sign_in(request: Request) -> Response:
    fields, access = await read_form(request), access_of(request.app)
    to = first(fields, "to")
    if not is_private(request):
        return sign_in_form(request, to, status=400)
    before = await access.session(request)
    try:
        token = await access.verify(first(fields, "token").strip(), request)
    except HttpError as error:
        return sign_in_form(request, to, str(error), error.hint, status=error.status)
    cookie = await _begin(request, token, before)
    access.forget()
    view = View(request, NOBODY)
    response = RedirectResponse(back_to(view, f"{view.prefix}{to}" if to.startswith("/") else ""), 303)
    set_cookie(request, response, SESSION, cookie, seconds=int(KEPT.total_seconds()))
    # A form that was made before the sign-in, perhaps by somebody else at this browser, is refused from now on.
    renew_csrf(request)
    return response


async def _begin(request: Request, token: StoredToken, before: StoredSession | None) -> str:
    """Begin a session in place of the one that the browser had; return its cookie."""
    resources, address = resources_of(request), described_address(request)
    sessions = DashboardSessions(resources.database, resources.clock)
    async with resources.database.writing():
        if before is not None:
            with suppress(NotFound):
                await sessions.end(before.session_id)
        cookie = await sessions.add(token.token_id, browser=request.headers.get("user-agent", ""), address=address)
        after = {"token": token.name, "address": address}
        await resources.repositories.audit.record(
            _actor(request, token.name), "session.began", f"session:{session_id_in(cookie)}", after=after
        )
    return cookie


async def sign_out(request: Request) -> Response:
    """End the session of this browser, or all sessions of its token."""

    async def work() -> Response:
        fields = await read_form(request)
        session = await access_of(request.app).session(request)
        if session is not None:
            # It may have been ended in this moment, by a second click.
            with suppress(NotFound):
                await _end(request, session, everywhere=bool(first(fields, "everywhere")))
        response = RedirectResponse(View(request, NOBODY).url("/sign-in"), 303)
        set_cookie(request, response, SESSION, "", seconds=0)
        renew_csrf(request)
        return response

    return await answer_page(request, work)


async def _end(request: Request, session: StoredSession, *, everywhere: bool) -> None:
    resources = resources_of(request)
    sessions, actor = DashboardSessions(resources.database, resources.clock), _actor(request, session.token)
    async with resources.database.writing():
        if everywhere:
            before: dict[str, object] = {"sessions": await sessions.end_all(session.token)}
            action, what = "sessions.ended", f"token:{session.token}"
        else:
            before, action, what = {"token": session.token}, "session.ended", f"session:{session.session_id}"
            await sessions.end(session.session_id)
        await resources.repositories.audit.record(actor, action, what, before=before)
    access_of(request.app).forget()


def _actor(request: Request, who: str) -> Actor:
    return Actor(who=who, via="dashboard", request_id=request_id_of(request))


ROUTES: tuple[Route, ...] = (
    EdgeRoute("/sign-in", show_sign_in, methods=["GET"], include_in_schema=False),
    EdgeRoute("/sign-in", sign_in, methods=["POST"], include_in_schema=False),
    EdgeRoute("/sign-out", sign_out, methods=["POST"], include_in_schema=False),
)
