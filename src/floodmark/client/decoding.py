"""Turns a response back into the result of the operation."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import fields

from floodmark.errors import InvalidInput, Unavailable
from floodmark.model.exports import ChangePage, ExportRow, LogBounds
from floodmark.model.job import NEVER, Job
from floodmark.model.page import Page
from floodmark.model.shapes import job_from_shape
from floodmark.model.tokens import Minted, TokenRow
from floodmark.operations.declaration import Operation
from floodmark.operations.streams import EventPage
from floodmark.store.port import Event
from floodmark.triggers import instants, trigger_of

T = TypeVar("T")


def result_of(operation: Operation[Any, Any], body: bytes) -> Any:
    """Return the result that a response contains."""
    if operation.envelope is not None:
        body = bytes(decode(body, dict[str, msgspec.Raw]).get(operation.envelope.field, b"null"))
    return _decode_as(operation.returns, body)


def decode(body: bytes, kind: type[T]) -> T:
    """Return a body as a value of this type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unknown_form(error) from error


def _decode_as(kind: Any, body: bytes) -> Any:
    if get_origin(kind) is Page:
        page = decode(body, _RawPage)
        [row] = get_args(kind)
        return Page([_decode_as(row, bytes(item)) for item in page.items], page.next)
    decoder = _DECODERS.get(kind)
    return decode(body, kind) if decoder is None else decoder(body)


def _unknown_form(error: Exception) -> Unavailable:
    return Unavailable(
        f"the server answers in a form that is not known here: {error}",
        hint="compare the versions: floodmark --version, here and there; upgrade the older one",
    )


def _job_of(body: bytes) -> Job:
    try:
        job = job_from_shape(decode(body, dict[str, Any]))
    except (msgspec.MsgspecError, OverflowError) as error:
        raise _unknown_form(error) from error
    return msgspec.structs.replace(job, next_run=NEVER) if _is_over(job) else job


def _is_over(job: Job) -> bool:
    """Return whether a job will not run again: without a next run it may also not be planned yet."""
    if job.next_run is not None or job.planned_until is None:
        return False
    try:
        return next(instants(trigger_of(job.when, anchor=job.created_at), job.planned_until), None) is None
    except InvalidInput:
        return False


def _event_of(body: bytes) -> Event:
    """Return an event; its data is the text of the JSON as it was sent."""
    shape = decode(body, dict[str, msgspec.Raw])
    shape["data"] = msgspec.Raw(msgspec.json.encode(bytes(shape.get("data", b"null")).decode()))
    return decode(msgspec.json.encode(shape), Event)


def _event_page_of(body: bytes) -> EventPage:
    page, log = _decode_as(Page[Event], body), decode(body, _Positions)
    return EventPage(
        items=page.items, next=page.next, last_position=log.last_position, oldest_position=log.oldest_position
    )


def _row_of(body: bytes) -> ExportRow:
    """Return a row of an export; its data is the text of the JSON as it was sent."""
    row = decode(body, _RawRow)
    return ExportRow(**{name: getattr(row, name) for name in _ROW_FIELDS}, data=bytes(row.data).decode())


def _change_page_of(body: bytes) -> ChangePage:
    page = _decode_as(Page[ExportRow], body)
    return ChangePage(items=page.items, next=page.next, log=decode(body, _Log).log)


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw]
    next: str | None = None


class _Positions(msgspec.Struct):
    last_position: int
    oldest_position: int = 1


class _Log(msgspec.Struct):
    log: LogBounds


_ROW_FIELDS = [name for name in ExportRow.__struct_fields__ if name != "data"]
_ROW_TYPES = [
    (one.name, one.type, one.default)
    if one.name == "beside"
    else (one.name, msgspec.Raw if one.name == "data" else one.type)
    for one in fields(ExportRow)
]
_RawRow: Any = msgspec.defstruct("_RawRow", _ROW_TYPES)


class _Text(msgspec.Struct):
    token: str


# Values whose JSON form is not the one of msgspec.
_DECODERS: Mapping[Any, Callable[[bytes], Any]] = {
    type(None): lambda _: None,
    bytes: lambda body: body,
    Job: _job_of,
    Event: _event_of,
    EventPage: _event_page_of,
    ExportRow: _row_of,
    ChangePage: _change_page_of,
    Minted: lambda body: Minted(decode(body, TokenRow), decode(body, _Text).token),
}
