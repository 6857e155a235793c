"""Sign-in with a token, and sign-out."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from floodmark.api.access import SESSION, access_of, is_private, resources_of
from floodmark.api.problems import HttpError
from floodmark.model.tokens import Visitor
from floodmark.operations.stored_sessions import KEPT, Sessions, session_id_in

from .actions import back_to, first, read_form
from .csrf import set_cookie
from .page import PageRoute, answer_page, html
from .view import View

# The form of a caller without access; nothing is read for it.
_NOBODY = Visitor(who="", role="read")


async def show_sign_in(request: Request) -> Response:
    """Show the form."""

    async def work() -> Response:
        view = View(request, _NOBODY)
        return html(view, "sign_in.html", {"to": request.query_params.get("to", ""), "problem": None, "hint": ""})

    return await answer_page(request, work)


async def sign_in(request: Request) -> Response:
    """Begin a session, and open the page that was asked for."""
    return await answer_page(request, lambda: _sign_in(request))


async def _sign_in(request: Request) -> Response:
    fields = await read_form(request)
    view, to = View(request, _NOBODY), first(fields, "to")
    if not is_private(request):
        problem = "a token is not accepted over plain http: others could read it on the way"
        return _again(view, to, problem, "use https (the proxy in front of the server has to send X-Forwarded-Proto)")
    try:
        cookie = await access_of(request.app).sign_in(first(fields, "token").strip(), request)
    except HttpError as error:
        return _again(view, to, str(error), error.hint, status=error.status)
    response = RedirectResponse(back_to(view, f"{view.prefix}{to}" if to.startswith("/") else ""), 303)
    set_cookie(request, response, SESSION, cookie, seconds=int(KEPT.total_seconds()))
    return response


def _again(view: View, to: str, problem: str, hint: str, *, status: int = 400) -> Response:
    return html(view, "sign_in.html", {"to": to, "problem": problem, "hint": hint}, status=status)


async def sign_out(request: Request) -> Response:
    """End the session of this browser."""

    async def work() -> Response:
        await read_form(request)
        access, cookie = access_of(request.app), request.cookies.get(SESSION, "")
        if await access.session(cookie) is not None:
            session_id, resources = session_id_in(cookie), resources_of(request)
            assert session_id is not None
            await Sessions(resources.database, resources.clock).end(session_id)
            access.forget()
        response = RedirectResponse(View(request, _NOBODY).url("/sign-in"), 303)
        response.delete_cookie(SESSION, path="/")
        return response

    return await answer_page(request, work)


ROUTES: tuple[Route, ...] = (
    PageRoute("/sign-in", show_sign_in, methods=["GET"], include_in_schema=False),
    PageRoute("/sign-in", sign_in, methods=["POST"], include_in_schema=False),
    PageRoute("/sign-out", sign_out, methods=["POST"], include_in_schema=False),
)
