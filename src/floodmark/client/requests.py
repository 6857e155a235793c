"""The request that carries out an operation."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from floodmark.errors import InvalidInput
from floodmark.operations.declaration import Body, Header, Operation, Path, Place, Query, Whole


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request. `path` is what follows the prefix of the API."""

    method: str
    path: str
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any = None


def request_of(operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> OutgoingRequest:
    """Return the request that carries out an operation."""
    given = [(param.place, param.name, param.value_to_send(arguments)) for param in operation.params]

    def values_in(kind: type[Place]) -> dict[str, Any]:
        return {name: value for place, name, value in given if isinstance(place, kind) and value is not None}

    path = operation.path
    for name, value in values_in(Path).items():
        path = path.replace(f"{{{name}}}", _segment(value))
    headers = {name.replace("_", "-"): str(value) for name, value in values_in(Header).items()}
    if operation.is_repeatable:
        # With a key it can be sent again safely if the response gets lost.
        headers["Idempotency-Key"] = uuid4().hex
    body: Any = values_in(Body) or None
    for whole in values_in(Whole).values():
        body = whole
    if operation.body_of is not None:
        body = operation.body_of(arguments)
    return OutgoingRequest(operation.method, path, values_in(Query), headers, body)


def _segment(value: Any) -> str:
    """Return a part of a path, with its slashes encoded."""
    if not value:
        raise InvalidInput("a name is missing", hint="names have at least one character")
    return quote(str(value), safe="")
