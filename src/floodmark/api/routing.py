"""Routes that read strict JSON, refuse unknown parameters, and mask secrets in responses."""

import json
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from enum import Enum
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

from floodmark.model.strict_json import NotJson, read_json
from floodmark.security.masking import mask_answer

from .edge import EdgeRoute

PREFIX = "/api/v2"
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


# Whether the caller may see secrets: only an admin may.
_SEES_SECRETS: ContextVar[bool] = ContextVar("sees_secrets", default=False)


def show_secrets(*, to_admin: bool) -> None:
    """Set whether the response to the current request may contain secrets."""
    _SEES_SECRETS.set(to_admin)


def answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, is_content: bool = False
) -> Response:
    """Return a value as a JSON response, with secrets masked unless the caller is an admin.

    `is_content`: the value is collected content, which is not masked.
    """
    if not is_content and not _SEES_SECRETS.get():
        value = mask_answer(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)))
    return Response(msgspec.json.encode(value), status, headers=headers, media_type="application/json")


def router(prefix: str = "", *, tag: str | None = None) -> APIRouter:
    """Return a router of strict routes, whose names are their ids in the document.

    Its routes are complete. FastAPI compares the path of a request twice with each route of an included router.
    """
    tags: list[str | Enum] = [] if tag is None else [tag]
    return APIRouter(
        prefix=prefix, tags=tags, route_class=StrictRoute, generate_unique_id_function=lambda route: route.name
    )


class StrictRequest(Request):
    """A request that accepts strict JSON only: no NaN, no half characters, no NUL, bounded nesting."""

    async def json(self) -> Any:
        """Return the body, or raise JSONDecodeError."""
        if not hasattr(self, "_read"):
            self._read = _decode(await self.body())
        return self._read


class StrictRoute(EdgeRoute, APIRoute):
    """Refuses unknown parameters, and accepts %2F as a `/` within a path parameter."""

    def get_route_handler(self) -> _Handler:
        """Return the handler, with strict reading of requests."""
        handle = super().get_route_handler()
        known = _query_names(self.dependant)

        async def handle_strictly(request: Request) -> Response:
            _refuse_unknown(request, known)
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


def _query_names(dependant: Dependant) -> set[str]:
    """Return the query parameters of a route and of its dependencies."""
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_query_names(needed) for needed in dependant.dependencies))


def _refuse_unknown(request: Request, known: set[str]) -> None:
    """Refuse unknown parameters: a misspelt filter must not list everything."""
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        there = f"there are: {', '.join(sorted(known))}" if known else "there are none"
        raise RequestValidationError(
            [
                {
                    "type": "unknown",
                    "loc": ("query", name[:60]),
                    "msg": f"there is no such parameter; {there}",
                    "input": request.query_params[name],
                }
                for name in unknown[:5]
            ]
        )


def _decode(body: bytes) -> Any:
    try:
        value = read_json(body)
    except NotJson as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
    if b"\\u0000" in body and _has_nul(value):
        raise json.JSONDecodeError("a text holds a NUL character, which databases cannot store", "", 0)
    return value


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(entry) for key, entry in value.items())
    return isinstance(value, list) and any(_has_nul(entry) for entry in value)
