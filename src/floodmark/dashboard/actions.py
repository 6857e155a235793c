"""Every button of the dashboard: one route that carries out an operation with the fields of a form.

The name of the operation is in the path; its arguments have the names that they have in the API. `back` is the page to
return to, `said` the message about the success. A form with `ask` needs a confirmation: the script shows a dialog, and
without it a page asks.
"""

from collections.abc import Mapping
from functools import cache, singledispatch
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from floodmark.api.access import access_of
from floodmark.api.addresses import is_private
from floodmark.api.derived import CHANGES_ACCESS
from floodmark.api.edge import EdgeRoute
from floodmark.api.problems import HttpError
from floodmark.api.schemas import model_for
from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.operations.declaration import Operation, Param, Whole
from floodmark.operations.declared import Operations
from floodmark.security.masking import mask_text

from .csrf import FIELD, check_csrf
from .flash import set_flash
from .page import answer_page, forget_shared, html
from .view import View

_OWN = (FIELD, "back", "said", "ask", "sure")
_MOST_FIELDS = 2000
_BOUNDS = ("gt", "ge", "lt", "le", "min_length", "max_length", "pattern")


async def act(request: Request) -> Response:
    """Carry out an operation, and return to the page."""
    return await answer_page(request, lambda: _act(request))


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form from one of our own pages."""
    try:
        found = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidInput(f"this is not a form: {error}", hint="load the page again") from error
    if any("\0" in value for values in found.values() for value in values):
        raise InvalidInput("a field holds a NUL character", hint="remove it: databases cannot store it")
    # Browsers send the ends of lines as CR LF.
    fields = {name: [value.replace("\r\n", "\n") for value in values] for name, values in found.items()}
    check_csrf(request, first(fields, FIELD))
    return fields


def require_private(request: Request) -> None:
    """Refuse a secret that others could have read on its way."""
    if not is_private(request):
        raise InvalidInput(
            "a secret is not accepted over plain http: others could read it on the way",
            hint="use https (the proxy in front of the server has to send X-Forwarded-Proto)",
        )


def first(fields: Mapping[str, list[str]], name: str) -> str:
    """Return the first value of a field; empty if it is missing."""
    return fields.get(name, [""])[0]


async def _act(request: Request) -> Response:
    fields, view = await read_form(request), await View.of(request)
    operation, back = _operation(request.path_params["operation"]), back_to(view, first(fields, "back"))
    if not view.may(operation.name):
        raise HttpError(403, f"this needs the role {operation.role}, and you have the role {view.role}")
    if operation.is_private:
        require_private(request)
    question = first(fields, "ask")
    if question and not first(fields, "sure"):
        kept = [(name, value) for name, values in fields.items() if name != FIELD for value in values]
        return html(view, "confirm.html", {"question": question, "fields": kept, "back": back})
    response = RedirectResponse(back, 303)
    try:
        result = await view.operations.call(operation, arguments_of(operation, fields))
        said = first(fields, "said") or f"{operation.summary}: done."
        set_flash(request, response, "done", said.replace("{result}", show_result(result)))
    except FloodmarkError as error:
        set_flash(request, response, "failed", mask_text(str(error)), mask_text(error.hint))
    forget_shared(request)
    if operation.name in CHANGES_ACCESS:
        access_of(request.app).forget()
    return response


def back_to(view: View, path: str) -> str:
    """Return a page of this dashboard to return to. Anything else is another site."""
    found = urlsplit(path)
    is_ours = not found.scheme and not found.netloc and path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_ours else view.url("/")


def arguments_of(operation: Operation[Any, Any], fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the arguments of an operation, from the fields of a form; an empty field is left out."""
    unknown = set(fields) - {param.name for param in operation.params} - set(_OWN)
    if unknown:
        raise InvalidInput(f"{operation.name} has no argument {sorted(unknown)[0][:80]!r}", hint="load the page again")
    received: dict[str, Any] = {}
    for param in operation.params:
        values = [value for value in fields.get(param.name, ()) if value != ""]
        if values and not isinstance(param.place, Whole) and param.name not in _OWN:
            received[param.name] = _read(param, values)
    return operation.arguments_of(received)


def _read(param: Param, values: list[str]) -> Any:
    kind, schema = param.type if param.place.type is None else param.place.type, param.place.schema
    adapter = _adapter(kind, tuple((name, schema[name]) for name in _BOUNDS if name in schema))
    for given in (values[0], values):
        try:
            return adapter.validate_python(given)
        except ValidationError as error:
            refused = error
    reason = refused.errors()[0]["msg"]
    raise InvalidInput(f"{param.name}: {reason[:1].lower()}{reason[1:]}", hint="correct this value, and send it again")


@cache
def _adapter(kind: Any, bounds: tuple[tuple[str, Any], ...]) -> TypeAdapter[Any]:
    """Return what reads and checks a value, with the same bounds as in the API."""
    return TypeAdapter(Annotated.__class_getitem__((model_for(kind), Field(**dict(bounds)))))  # type: ignore[attr-defined]


def _operation(name: str) -> Operation[Any, Any]:
    found = getattr(Operations, name, None)
    if not isinstance(found, Operation) or found.method == "GET":
        raise NotFound(f"there is no action {name[:80]!r}", hint="load the page again")
    return found


@singledispatch
def show_result(result: Any) -> str:
    """Return a result as text, for `{result}` in the message about the success. Pages register their own types."""
    return str(result) if isinstance(result, int | str) else ""


ROUTE: Route = EdgeRoute("/act/{operation}", act, methods=["POST"], include_in_schema=False)
