"""The routes that follow from the declarations of operations."""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from functools import singledispatch
from hashlib import sha256
from mimetypes import guess_type
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from msgspec import UNSET
from msgspec.structs import asdict
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from floodmark.errors import InvalidInput
from floodmark.model.audit import Actor
from floodmark.model.exports import ExportRow
from floodmark.model.fleet import FleetInfo, Overview
from floodmark.model.job import Job
from floodmark.model.page import Page
from floodmark.model.shapes import event_shape, job_shape
from floodmark.model.tokens import Minted
from floodmark.operations import declaration
from floodmark.operations.declaration import Envelope, Operation, Param, operations_of
from floodmark.operations.health import worker_shape
from floodmark.operations.local import handlers_of
from floodmark.store.port import Event

from .access import access_of, require, resources_of
from .addresses import is_private
from .preconditions import call_if_match
from .repeating import IdempotencyKey, once
from .routing import PREFIX, answer, router
from .schemas import answer_model, body_model, model_for

_FASTAPI: dict[type[declaration.Place], Any] = {
    declaration.Path: Path,
    declaration.Query: Query,
    declaration.Header: Header,
}
# Less than the time limit of a request, so that the response has the error of the other server.
_DEADLINE = timedelta(seconds=20)
_REFUSED = 400
# Scripts of collected pages must not run, even on our own address.
_FILE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}
# Operations that change access: this process applies them at once.
CHANGES_ACCESS = ("add_token", "revoke_token", "end_session", "end_sessions")


def routes_of(declarations: type) -> APIRouter:
    """Return the routes of the operations that a class declares."""
    found = router(PREFIX)
    for operation in operations_of(declarations):
        _add(found, operation)
    return found


def _add(found: APIRouter, operation: Operation[Any, Any]) -> None:
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": text, **({"model": answer_model(operation)} if status < _REFUSED else {})}
        for status, text in operation.answers.items()
    }
    if operation.media:
        schema = {"schema": {"type": "string", "format": "binary"}}
        responses[200] = {"content": dict.fromkeys(operation.media, schema), "description": "The file."}
    found.add_api_route(
        operation.path,
        _endpoint(operation),
        methods=[operation.method],
        status_code=operation.status,
        response_model=None if operation.media else answer_model(operation),
        response_class=Response if operation.media else JSONResponse,
        responses=responses,
        name=operation.operation_id,
        tags=[operation.tag],
        summary=operation.summary,
        description=operation.description,
    )


def _endpoint(operation: Operation[Any, Any]) -> Any:
    whole = [param.name for param in operation.params_in(declaration.Whole)]

    async def endpoint(
        request: Request, actor: Actor, body: Any = None, idempotency_key: str | None = None, **received: Any
    ) -> Response:
        if operation.is_private and not is_private(request):
            raise InvalidInput(
                "a session is not accepted over plain http: others could read it on the way",
                hint="use https (the proxy in front of the server has to send X-Forwarded-Proto), "
                "or add it on the server",
            )
        given = body.model_dump(exclude_unset=True) if isinstance(body, BaseModel) else {}
        received |= {whole[0]: given} if whole else given
        role = request.scope["floodmark.role"]
        local = handlers_of(operation)(resources_of(request), actor, role=role, deadline=_DEADLINE)
        arguments = operation.arguments_of(received)

        async def carry_out(**promised: Any) -> Response:
            result = await call_if_match(local, operation, {**arguments, **promised})
            if operation.name in CHANGES_ACCESS:
                access_of(request.app).forget()
            return _file(operation, result, received) if operation.media else _answer(operation, result)

        if not operation.is_repeatable:
            return await carry_out()
        content = [f"{operation.method} {operation.path}", given]
        return await once(local, request.app.state, idempotency_key, content, carry_out)

    endpoint.__signature__ = inspect.Signature(_parameters(operation))  # type: ignore[attr-defined] # what FastAPI reads
    return endpoint


def _parameters(operation: Operation[Any, Any]) -> list[inspect.Parameter]:
    found = [_parameter("request", Request), _parameter("actor", Annotated[Actor, Depends(require(operation.role))])]
    found += [_query(param) for param in operation.params if type(param.place) in _FASTAPI]
    if operation.is_repeatable:
        found.append(_parameter("idempotency_key", IdempotencyKey, None))
    if operation.body is not None:
        found.append(_body(operation))
    return found


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _query(param: Param) -> inspect.Parameter:
    made = _FASTAPI[type(param.place)](**param.place.schema)
    kind = Annotated.__class_getitem__((model_for(param.type), made))  # type: ignore[attr-defined]
    return _parameter(param.name, kind, inspect.Parameter.empty if param.default is UNSET else param.default)


def _body(operation: Operation[Any, Any]) -> inspect.Parameter:
    model, is_required = body_model(operation), operation.is_body_required
    if is_required is None:
        is_required = any(param.default is UNSET for param in operation.params_in(declaration.Body, declaration.Whole))
    return _parameter("body", model) if is_required else _parameter("body", Annotated[model | None, Body()], None)


def _answer(operation: Operation[Any, Any], result: Any) -> Response:
    status = operation.status if operation.status_of is None else operation.status_of(result)
    headers = None if operation.headers is None else operation.headers(result)
    value = shape(result) if operation.envelope is None else _envelope(operation.envelope, result)
    return answer(value, status, headers, is_content=operation.is_content)


def _file(operation: Operation[Any, Any], content: bytes, received: Mapping[str, Any]) -> Response:
    """Return a file; its media type follows from its name."""
    kind = guess_type(received.get("file", ""))[0]
    tag = f'"{sha256(content).hexdigest()}"'
    media_type = kind if kind in operation.media else operation.media[0]
    return Response(content, media_type=media_type, headers={**_FILE_HEADERS, "ETag": tag})


def _envelope(envelope: Envelope, result: Any) -> dict[str, Any]:
    beside = {name: follows(result) for name, (_, follows, _) in envelope.beside.items()}
    if envelope.name == "Page":
        beside = {"next": None}
    return {envelope.field: result, **beside}


@singledispatch
def shape(value: Any) -> Any:
    """Return the JSON form of a result."""
    return value


@shape.register
def _(page: Page) -> Any:  # type: ignore[type-arg] # of anything
    return {**asdict(page), "items": [shape(row) for row in page.items]}


@shape.register
def _(fleet: FleetInfo | Overview) -> Any:
    return {**asdict(fleet), "workers": [worker_shape(info, fleet.leader) for info in fleet.workers]}


@shape.register
def _(minted: Minted) -> Any:
    return {**asdict(minted.row), "token": minted.text}


shape.register(Job, job_shape)
shape.register(Event, event_shape)
shape.register(ExportRow, event_shape)
