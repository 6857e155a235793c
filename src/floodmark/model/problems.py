"""Errors as problems (RFC 9457): the kind, title and HTTP status of each error."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from floodmark.errors import Conflict, Denied, FloodmarkError, InvalidInput, NotFound, SourceError, Unavailable

# status -> the kind of problem, its title
KINDS: Mapping[int, tuple[str, str]] = {
    400: ("invalid-input", "Invalid input"),
    401: ("unauthorized", "A token is needed"),
    403: ("forbidden", "The role of the token is not sufficient"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "Method not allowed"),
    406: ("not-acceptable", "Not acceptable"),
    408: ("too-slow", "The request took too long"),
    409: ("conflict", "Conflict with the current state"),
    412: ("stale", "Changed since you read it"),
    413: ("too-large", "The request is too large"),
    422: ("invalid-input", "Invalid request"),
    429: ("too-many-requests", "Too many requests"),
    500: ("internal", "Something unexpected happened"),
    502: ("source-refused", "The source refused the request"),
    503: ("unavailable", "A required service is unavailable"),
}

_STATUS: Mapping[type[FloodmarkError], int] = {
    Conflict: 409,
    Denied: 403,
    NotFound: 404,
    InvalidInput: 400,
    Unavailable: 503,
    SourceError: 502,
}


class LineProblem(Struct, frozen=True, kw_only=True):
    """What is wrong with one line of a request."""

    type: Annotated[str, Meta(description="Which kind of problem, for programs: `urn:floodmark:...`.")]
    title: Annotated[str, Meta(description="The kind of problem, for people.")]
    status: Annotated[int, Meta(description="The status that a request for this line alone would get.")]
    detail: Annotated[str, Meta(description="What went wrong.")]
    hint: Annotated[str | None, Meta(description="What to change or to do next.")]


def status_of(error: FloodmarkError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


def problem_of(error: FloodmarkError) -> LineProblem:
    """Return an error as a problem."""
    status = status_of(error)
    kind, title = KINDS[status]
    return LineProblem(
        type=f"urn:floodmark:{kind}", title=title, status=status, detail=str(error), hint=error.hint or None
    )
