"""From an operation and its arguments to a request, and from the answer back to a result."""

from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin
from urllib.parse import quote
from uuid import uuid4

import msgspec

from floodmark.errors import InvalidInput
from floodmark.model.job import Job
from floodmark.model.page import Page
from floodmark.model.tokens import Minted, TokenRow
from floodmark.operations.declaration import Body, Header, Operation, Path, Query, Whole
from floodmark.operations.streams import EventPage
from floodmark.store.port import Event

from .decoding import decoded, event_of, job_of


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request as it is sent. `path` is what follows the prefix of the API."""

    method: str
    path: str
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any = None


def request_of(operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> OutgoingRequest:
    """Return the request that carries out an operation."""
    sent = {param.name: (param.place, param.value_to_send(arguments)) for param in operation.params}
    given = {name: (place, value) for name, (place, value) in sent.items() if value is not None}
    path = operation.path
    for name, (place, value) in given.items():
        if isinstance(place, Path):
            path = path.replace(f"{{{name}}}", _segment(value))
    whole = [value for place, value in given.values() if isinstance(place, Whole)]
    body = {name: value for name, (place, value) in given.items() if isinstance(place, Body)}
    headers = {
        name.replace("_", "-"): str(value) for name, (place, value) in given.items() if isinstance(place, Header)
    }
    if operation.is_repeatable:
        # With a key it can be sent again without harm, should the answer get lost.
        headers["Idempotency-Key"] = uuid4().hex
    return OutgoingRequest(
        method=operation.method,
        path=path,
        query={name: value for name, (place, value) in given.items() if isinstance(place, Query)},
        headers=headers,
        body=operation.body_of(arguments) if operation.body_of else whole[0] if whole else body or None,
    )


def result_of(operation: Operation[Any, Any], body: bytes) -> Any:
    """Return the result that an answer holds."""
    if operation.envelope is not None:
        found = decoded(body, dict[str, msgspec.Raw])
        return decode_as(operation.returns, bytes(found.get(operation.envelope.field, b"null")))
    return decode_as(operation.returns, body)


def decode_as(kind: Any, body: bytes) -> Any:
    """Return JSON as a value of this type."""
    if get_origin(kind) is Page:
        page = decoded(body, _RawPage)
        [row] = get_args(kind)
        return Page([decode_as(row, bytes(item)) for item in page.items], page.next)
    if kind is EventPage:
        # Its rows are not written as msgspec would write them.
        page, extra = decode_as(Page[Event], body), decoded(body, _Last)
        return EventPage(items=page.items, next=page.next, last_position=extra.last_position)
    decode = _DECODERS.get(kind)
    return decoded(body, kind) if decode is None else decode(body)


def _job(body: bytes) -> Job:
    return job_of(decoded(body, dict[str, Any]))


def _minted(body: bytes) -> Minted:
    return Minted(decoded(body, TokenRow), decoded(body, _Text).token)


def _segment(value: Any) -> str:
    """A part of a path; a slash inside of it does not cut it."""
    if not value:
        raise InvalidInput("a name is missing", hint="names have at least one character")
    return quote(str(value), safe="")


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw]
    next: str | None = None


class _Last(msgspec.Struct):
    last_position: int


class _Text(msgspec.Struct):
    token: str


# Values that are not written as msgspec would write them.
_DECODERS: Mapping[Any, Callable[[bytes], Any]] = {
    type(None): lambda _: None,
    bytes: lambda body: body,
    Job: _job,
    Event: event_of,
    Minted: _minted,
}
