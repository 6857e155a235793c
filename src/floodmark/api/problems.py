"""Errors as `application/problem+json` (RFC 9457): what went wrong, why, and what to change."""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from floodmark.errors import Conflict, FloodmarkError
from floodmark.model.problems import KINDS, status_of
from floodmark.security.masking import is_secret_name, mask_answer, mask_text

from .addresses import prefix_of, route_path

MEDIA_TYPE = "application/problem+json"
_SHOWN = 80


class FieldProblem(BaseModel):
    """One thing that has to be changed in a request."""

    field: str = Field(description="Where: `body.priority`, `query.limit`, `header.if-match`.")
    message: str = Field(description="What is wrong with it.")
    given: str | None = Field(description="What was given, shortened.")


class Problem(BaseModel):
    """What went wrong, and what to do about it."""

    type: str = Field(description="Which kind of problem, for programs: `urn:floodmark:...`.")
    title: str = Field(description="The kind of problem, for people.")
    status: int = Field(description="The status of the answer.")
    detail: str = Field(description="What went wrong this time.")
    hint: str | None = Field(description="What to change or to do next.")
    request_id: str | None = Field(description="The id of the request, as it is in the log and in the audit.")
    errors: list[FieldProblem] = Field(default=[], description="Which fields, when several things are wrong.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:floodmark:not-found",
                    "title": "Not found",
                    "status": 404,
                    "detail": "there is no job 'newz'",
                    "hint": "did you mean news?",
                    "request_id": "0f8c1d2e3a4b5c6d",
                    "errors": [],
                }
            ]
        }
    )


class HttpError(FloodmarkError):
    """An error of HTTP, with its status and optionally its title."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        kind: str = "",
        title: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.kind, self.headers = status, kind or KINDS[status][0], headers
        self.title = title or KINDS[status][1]


class Stale(Conflict):
    """The job is not at the version named by If-Match."""


def problem(
    status: int,
    detail: str,
    *,
    request_id: str | None,
    hint: str = "",
    kind: str = "",
    title: str = "",
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response that describes a problem."""
    known, usual = KINDS.get(status, ("refused", "The request was refused"))
    body = {
        "type": f"urn:floodmark:{kind or known}",
        "title": title or usual,
        "status": status,
        "detail": mask_text(detail),
        "hint": mask_text(hint) or None,
        "request_id": request_id,
        "errors": mask_answer(errors),
    }
    return Response(msgspec.json.encode(body), status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem."""
    app.add_exception_handler(FloodmarkError, _floodmark)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for kind in (DBAPIError, PoolTimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        app.add_exception_handler(kind, _database)


def request_id_of(request: Request) -> str | None:
    """Return the id of a request, as in its response, the log and the audit log."""
    found: str | None = request.scope.get("floodmark.request_id")
    return found


async def _floodmark(request: Request, error: Exception) -> Response:
    assert isinstance(error, FloodmarkError)
    own: dict[str, Any] = {}
    if isinstance(error, HttpError):
        own = {"kind": error.kind, "title": error.title, "headers": error.headers}
    return problem(http_status_of(error), str(error), request_id=request_id_of(request), hint=error.hint, **own)


def http_status_of(error: FloodmarkError) -> int:
    """Return the status of the response to an error."""
    if isinstance(error, HttpError):
        return error.status
    return 412 if isinstance(error, Stale) else status_of(error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [_field(found) for found in error.errors()[:20]]
    first = errors[0]
    detail = f"{first['field']}: {first['message']}"
    if len(errors) > 1:
        detail += f" (and {len(errors) - 1} more)"
    hint = f"see what is allowed in {prefix_of(request)}{request.app.openapi_url}"
    return problem(422, detail, request_id=request_id_of(request), hint=hint, errors=errors)


def _field(found: Mapping[str, Any]) -> dict[str, Any]:
    where = ".".join(str(part) for part in found["loc"])
    if found["type"] == "json_invalid":
        return {"field": "body", "message": f"not JSON: {found['ctx']['error']}", "given": None}
    if where == "body" and isinstance(found.get("input"), bytes):
        return {"field": "body", "message": "not JSON: send it with Content-Type: application/json", "given": None}
    is_shown = found["type"] != "missing" and where != "body" and not is_secret_name(where) and "params" not in where
    given = repr(found.get("input"))[:_SHOWN] if is_shown else None
    message = "There is no such field" if found["type"] == "extra_forbidden" else str(found["msg"])
    return {"field": where, "message": message[:1].lower() + message[1:], "given": given}


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail, hint, headers = str(error.detail), "", dict(error.headers or {})
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path[:200]}"
        hint = f"see the list of paths in {prefix_of(request)}{request.app.openapi_url}"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(_methods_of(request)) or headers.get("Allow", "")
        detail = f"{request.method} is not possible at {request.url.path[:200]}"
        hint = f"use {headers['Allow']}"
    return problem(error.status_code, detail, request_id=request_id_of(request), hint=hint, headers=headers)


def _methods_of(request: Request) -> list[str]:
    """Return the methods of a path, of all its routes: each knows only its own."""
    asked = route_path(request.scope).split("/")
    for path, operations in request.app.openapi()["paths"].items():
        known = path.split("/")
        if len(known) == len(asked) and all(k == a or k.startswith("{") for k, a in zip(known, asked, strict=True)):
            return sorted(method.upper() for method in operations)
    return []


async def _database(request: Request, error: Exception) -> Response:
    """Answer a database error; its text stays in the log, as it may name hosts and statements."""
    structlog.get_logger().warning("database failed", error=f"{type(error).__name__}: {error}")
    return problem(
        503,
        "the database does not answer as it should",
        request_id=request_id_of(request),
        hint="try again; if it stays so, look into the log of the server for this request_id",
        headers={"Retry-After": "1"},
    )
