"""Pydantic models of the types in declarations, to validate requests and for the OpenAPI document."""

from collections.abc import Mapping
from functools import cache
from inspect import cleandoc
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct
from msgspec.structs import fields as fields_of
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, create_model

from floodmark.model.bulk import Action
from floodmark.model.exports import ExportRow
from floodmark.model.fleet import Overview, QueueDepth, WorkerInfo
from floodmark.model.page import Page
from floodmark.model.tokens import Minted, TokenRow
from floodmark.operations.declaration import Body, Envelope, Operation, Param
from floodmark.sources.cookies.difference import CookieSummary, PhaseDifference
from floodmark.store.port import Event

from . import models
from .models import Given, whole

# The name of a struct in the document, where it is not its own name with `Out` (instead of `Row`).
_NAMES: Mapping[str, str] = {
    "ChangePage": "ChangesOut",
    "ChatShown": "ChatOut",
    "ConsumerState": "ConsumerOut",
    "EventPage": "EventsOut",
    "StoredItem": "ItemOut",
    "StreamDescription": "StreamOut",
    "StreamState": "WatermarkOut",
    "FleetInfo": "WorkersOut",
    "FleetMetrics": "MetricsOut",
    "QueueDepth": "DepthOut",
    "SchedulerHealth": "SchedulerOut",
    "WorkerInfo": "WorkerOut",
    "Changed": "ChangedCookieOut",
    "CookieSummary": "CookieOut",
    "JobChange": "ChangeOut",
    "ScanDifference": "CookieDifferenceOut",
    "PhaseDifference": "CookiePhaseOut",
    "Report": "SyncReportOut",
    "AddedTrigger": "NewTriggerOut",
    "TriggerPage": "TriggersPage",
    "TriggerStatus": "TriggerOut",
    "TriggersStatus": "StatusOut",
    "StoredAccount": "AddedAccountOut",
    "DeadLetterGroup": "GroupOut",
    "LogEntry": "LogEntry",
    "WatchMatchRow": "StoredWatchMatchOut",
}
# Fields whose type in a response differs from the struct, or that are added to it.
_SENT_AS: Mapping[type[Struct], Mapping[str, tuple[Any, str | None]]] = {
    Event: {"data": (Any, "The item, or what the schema named by `type` describes.")},
    ExportRow: {"data": (Any, "The item itself.")},
    Overview: {"queue": (QueueDepth, None)},
    PhaseDifference: dict.fromkeys(("new_cookies", "gone_cookies"), (list[CookieSummary], None)),
    WorkerInfo: {"leader": (bool, "Whether this process schedules.")},
}
_NEXT = "The `cursor` of the next page; null when there is none."
_BOUNDS = ("gt", "ge", "lt", "le", "pattern", "min_length", "max_length", "description", "examples")


def answer_model(operation: Operation[Any, Any]) -> Any:
    """Return the model of the response of an operation."""
    if operation.envelope is not None:
        return _envelope_model(operation.envelope, operation.returns)
    return model_for(operation.model or operation.returns)


def body_model(operation: Operation[Any, Any]) -> Any:
    """Return the model of the body of a request: the one of that name in `models`, or one of its parameters."""
    assert operation.body is not None
    name, doc, extra = (*operation.body, None, None)[:3]
    if hasattr(models, name):
        return getattr(models, name)
    params = operation.params_in(Body)
    fields: dict[str, Any] = {param.name: (model_for(param.type), _field(param)) for param in params}
    made = create_model(name, __base__=Given, __doc__=doc, **fields)
    if extra is not None:
        made.model_config = {**made.model_config, "json_schema_extra": extra}
        made.model_rebuild(force=True)
    return made


def model_for(kind: Any) -> Any:
    """Return a type with its structs replaced by models."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _action_model(kind) if issubclass(kind, Action) else struct_model(kind)
    if kind is Minted:
        return _new_token()
    origin, args = get_origin(kind), get_args(kind)
    return kind if origin is None else _compose(kind, origin, args)


def _compose(kind: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    if origin is Annotated:
        metas = [_meta_field(one) if isinstance(one, Meta) else one for one in args[1:]]
        if args[0] is int:
            metas.append(BeforeValidator(whole))
        return Annotated.__class_getitem__((model_for(args[0]), *metas))
    if origin is Page:
        return _page(model_for(args[0]))
    if origin in (Union, UnionType):
        union = Union.__getitem__(tuple(model_for(one) for one in args))
        is_tagged = isinstance(args[0], type) and issubclass(args[0], Action)
        return Annotated[union, Field(discriminator="op")] if is_tagged else union
    if origin in (list, tuple):
        return list[model_for(args[0])]  # type: ignore[misc] # made at run time
    if origin in (dict, Mapping):
        return dict[args[0], model_for(args[1])]  # type: ignore[misc,valid-type] # as above
    return kind


@cache
def struct_model(struct: type[Struct]) -> type[BaseModel]:
    """Return a model with the fields of a struct, all of them required."""
    name = _NAMES.get(struct.__name__, f"{struct.__name__.removesuffix('Row')}Out")
    given = getattr(models, name, None)
    if given is not None:
        return given  # type: ignore[no-any-return] # a model that is written by hand, or made there
    hints = get_type_hints(struct, include_extras=True)
    fields: dict[str, Any] = {field: _struct_field(hints[field]) for field in struct.__struct_fields__}
    for field, (kind, description) in _SENT_AS.get(struct, {}).items():
        fields[field] = (model_for(kind), Field(description=description))
    if issubclass(struct, Page):
        [row] = get_args(struct.__orig_bases__[0])  # type: ignore[attr-defined]
        fields |= {"items": (list[model_for(row)], ...), "next": (str | None, Field(description=_NEXT))}  # type: ignore[misc]
    return create_model(name, __doc__=cleandoc(struct.__doc__ or "").partition("\n\n")[0], **fields)


@cache
def _action_model(action: type[Action]) -> type[BaseModel]:
    """Return the model of one operation of a bulk request."""
    hints = get_type_hints(action, include_extras=True)
    fields: dict[str, Any] = {"op": (Literal[action.__struct_config__.tag], ...)}
    for field in fields_of(action):
        given = ... if field.required else Field(default=None, json_schema_extra=models.leave_out_default)
        fields[field.name] = (model_for(hints[field.name]), given)
    return create_model(f"{action.__name__}In", __base__=Given, __doc__=cleandoc(action.__doc__ or ""), **fields)


def _struct_field(hint: Any) -> tuple[Any, Any]:
    if get_origin(hint) is Annotated:
        kind, *rest = get_args(hint)
        meta = next((one for one in rest if isinstance(one, Meta)), None)
        if meta is not None:
            return model_for(kind), _meta_field(meta)
    return model_for(hint), Field(description=None)


def _meta_field(meta: Meta) -> Any:
    if meta.tz:
        return AwareDatetime
    bounds = {name: getattr(meta, name) for name in _BOUNDS if getattr(meta, name) is not None}
    return Field(**bounds, json_schema_extra=meta.extra_json_schema)


def _field(param: Param) -> Any:
    schema = param.place.schema
    return Field(**schema) if param.default is UNSET else Field(default=param.default, **schema)


@cache
def _page(row: type[BaseModel]) -> type[BaseModel]:
    fields: dict[str, Any] = {"items": (list[row], ...), "next": (str | None, Field(description=_NEXT))}  # type: ignore[valid-type]
    return create_model(f"Page[{row.__name__}]", **fields)


@cache
def _new_token() -> type[BaseModel]:
    token = Field(description="The token itself. It is shown only once and not stored.")
    return create_model("NewTokenOut", __base__=struct_model(TokenRow), __doc__="A new token.", token=(str, token))


def _envelope_model(envelope: Envelope, kind: Any) -> Any:
    if envelope.name == "Page":
        return _page(model_for(get_args(kind)[0]))
    fields: dict[str, Any] = {
        name: (other, Field(description=description)) for name, (other, _, description) in envelope.beside.items()
    }
    fields[envelope.field] = (model_for(kind), Field(description=envelope.description))
    return create_model(envelope.name, __doc__=envelope.doc, **fields)
