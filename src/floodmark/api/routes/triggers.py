"""Triggers from outside: webhooks, and channels and streams of Redis that fire jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Header, Request
from fastapi import Path as InPath
from msgspec.structs import asdict
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from floodmark.api.access import access_of
from floodmark.api.deps import Administering, Reading, parts_of
from floodmark.api.models import Given, Name, Text
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.problems import HttpError
from floodmark.api.routing import answer, router
from floodmark.coordination.service import Service, run_services
from floodmark.inbound.deliveries import Taken
from floodmark.inbound.intake import build_intake
from floodmark.inbound.refusals import FLUSH_EVERY
from floodmark.inbound.triggers import LONGEST_DEBOUNCE, SHORTEST_SECRET, Kind, NewTrigger, a_secret
from floodmark.inbound.webhooks import Refused, Webhook, Webhooks, path_in, path_of, read_body
from floodmark.operations.local import LocalOffice
from floodmark.operations.triggers import TriggerOffice

triggers = router("/triggers", tag="Triggers")

KindWord = Literal["webhook", "channel", "stream"]
TriggerId = Annotated[
    str,
    InPath(
        description="Id of a trigger or the beginning of one, or its pattern with `/` written as `%2F`.",
        min_length=1,
        max_length=2000,
    ),
]
Timestamp = Annotated[
    str | None,
    Header(alias="X-Floodmark-Timestamp", description="When it was signed: seconds since 1970.", max_length=40),
]
Signature = Annotated[
    str | None,
    Header(
        alias="X-Floodmark-Signature",
        description="`sha256=HEX`: the HMAC-SHA256 of timestamp, full stop and body, under the secret of the trigger.",
        max_length=1000,
    ),
]
Delivery = Annotated[
    str | None,
    Header(
        alias="X-Floodmark-Delivery",
        description="An id of this delivery: the same again fires nothing.",
        max_length=200,
    ),
]


class TriggerIn(Given):
    """What fires jobs from outside."""

    pattern: Text = Field(description="What to listen to.", examples=["content:new"])
    jobs: list[Name] = Field(
        default=[],
        description="The jobs it fires, by name or id; besides those whose trigger_webhook or trigger_channel fits.",
        max_length=1000,
        examples=[["news"]],
    )
    params: dict[str, str] = Field(
        default={},
        description="Which params executions get from what arrives: `path.1`, `path.NAME`, `body.FIELD`, `channel`.",
        examples=[{"title": "body.article.title"}],
    )
    debounce_seconds: float = Field(
        default=0,
        ge=0,
        le=LONGEST_DEBOUNCE.total_seconds(),
        description="After it has fired, what comes within this time becomes one more execution at its end.",
    )
    enabled: bool = Field(default=True, description="Off: nothing is fired by it.")
    replace: bool = Field(default=False, description="Change the trigger of this pattern, if there is one.")


class WebhookIn(TriggerIn):
    """A path that fires jobs."""

    pattern: Text = Field(
        description="`*` is one segment, `{name}` one that becomes a param, `**` the rest.",
        examples=["/sources/{source_id}/crawl"],
    )
    secret: Annotated[str, Field(min_length=SHORTEST_SECRET, max_length=200)] | None = Field(
        default=None, description="What webhooks have to be signed with. A trigger that is replaced keeps its own."
    )
    signed: bool = Field(default=False, description="Make a secret; the answer shows it once.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "pattern": "/sources/{source_id}/crawl",
                    "jobs": ["news"],
                    "params": {"title": "body.article.title"},
                    "signed": True,
                    "debounce_seconds": 10,
                }
            ]
        }
    )


class TriggerOut(BaseModel):
    """A trigger, and how it fares."""

    trigger_id: str
    kind: KindWord
    pattern: str
    jobs: list[str] = Field(description="The names of the jobs it fires; one that is gone is named by its id.")
    params: dict[str, str]
    signed: bool = Field(description="Whether webhooks have to be signed.")
    debounce_seconds: float
    enabled: bool
    fired: int = Field(description="Deliveries it has taken.")
    matched: int = Field(description="Executions that came of them.")
    refused: int
    refusals: dict[str, int] = Field(description="How often for which reason.", examples=[{"altered": 2, "late": 1}])
    last_fired_at: datetime | None
    last_refused_at: datetime | None
    last_refusal: str | None
    created_at: datetime
    updated_at: datetime
    listening: bool
    why_not: str | None = Field(description="Why it is not listened to, if it is not.")


class NewTriggerOut(TriggerOut):
    """A trigger that was just made."""

    secret: str | None = Field(description="The secret, if one was made. It is shown this once.")


class FiredOut(BaseModel):
    """An execution that a delivery was turned into."""

    execution_id: str
    job_id: str
    job_name: str
    trigger: str = Field(examples=["webhook:/sources/*/crawl"])
    state: Literal["queued", "waiting"]
    scheduled_for: datetime
    reason: str | None = Field(description="Why it waits, if it does.")
    folded: bool = Field(description="It was already waiting, and stands for this delivery too.")


class SkippedOut(BaseModel):
    """A job that was not fired."""

    job: str
    reason: str = Field(examples=["it is paused"])


class TakenOut(BaseModel):
    """What became of a webhook."""

    delivery_id: str
    matched: int = Field(description="How many jobs it concerns; 0 if there is nothing at this path.")
    executions: list[FiredOut]
    skipped: list[SkippedOut]
    duplicate: bool = Field(
        description="This delivery was taken before; nothing was fired, the answer is that of then."
    )
    debounced_until: datetime | None = Field(description="When its executions start, if the trigger is resting.")


class OfJobsOut(BaseModel):
    """A pattern that jobs name themselves."""

    kind: KindWord
    pattern: str
    jobs: int
    listening: bool


class TriggersPage(Page[TriggerOut]):
    """Part of the registered triggers, and all patterns that jobs carry."""

    of_jobs: list[OfJobsOut] = Field(description="The trigger_webhook or trigger_channel of jobs.")


class UnmatchedOut(BaseModel):
    """How many deliveries matched no job, or could not be read, and the last of them."""

    count: int
    last: str | None = Field(examples=["webhook:/sources/42/crawll"])


class StatusOut(BaseModel):
    """How triggers fare."""

    listener: str | None = Field(description="The scheduler that hears Redis; null if none does.")
    triggers: list[TriggerOut]
    of_jobs: list[OfJobsOut]
    unmatched: UnmatchedOut = Field(description="Deliveries that matched no job.")
    unreadable: UnmatchedOut = Field(
        description="Redis messages that were skipped because they could not be read.",
        examples=[{"count": 1, "last": "stream:orders: nested too deeply"}],
    )


# What a webhook lacks that was refused for lacking it.
_NEEDED = {"no token": "A token is needed", "unsigned": "A signature is needed"}
_ANY_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Whatever the sender has to say. Fields of JSON can become params.",
        "content": {
            "application/json": {"schema": {}, "examples": {"article": {"value": {"article": {"title": "Tides"}}}}},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
}
_NAMING_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "anyOf": [{"required": ["path"]}, {"required": ["source_id"]}, {"required": ["source"]}],
                    "properties": {
                        "path": {
                            "type": "string",
                            "pattern": "^/[A-Za-z0-9._~-]",
                            "maxLength": 2000,
                            "description": "The path, as it could stand in the address.",
                        },
                        "source_id": {
                            "type": ["string", "integer"],
                            "minLength": 1,
                            "description": "42 is short for the path /sources/42/crawl.",
                        },
                        "source": {"type": ["string", "integer"], "minLength": 1, "description": "The same."},
                    },
                },
                "examples": {
                    "path": {"value": {"path": "/sources/42/crawl", "article": {"title": "Tides"}}},
                    "source": {"value": {"source_id": "42"}},
                },
            }
        },
    }
}


# What arrives


@triggers.post(
    "/webhook",
    status_code=202,
    response_model=TakenOut,
    summary="Deliver a webhook that names its path",
    openapi_extra=_NAMING_BODY,
)
async def deliver(
    request: Request, timestamp: Timestamp = None, signature: Signature = None, delivery: Delivery = None
) -> Response:
    """Fire the jobs at the `path` that the body names. Signed if the trigger has a secret, else with a token."""
    is_trusted, body = await _is_trusted(request), await request.body()
    said = read_body(Webhook(path=(), body=body, headers={"content-type": "application/json"}))
    return await _taken(request, path_in(said), is_trusted)


@triggers.post(
    "/webhook/{path:path}",
    status_code=202,
    response_model=TakenOut,
    summary="Deliver a webhook",
    openapi_extra=_ANY_BODY,
)
async def deliver_to(
    request: Request,
    path: Annotated[str, InPath(description="The path that patterns are held against.", max_length=2000)],
    timestamp: Timestamp = None,
    signature: Signature = None,
    delivery: Delivery = None,
) -> Response:
    """Fire the jobs at this path. Signed if the trigger has a secret, else with a token of the role operate.

    202 also when nothing is there (`matched` is 0): a sender can do nothing about it.
    """
    # Of the address, not of `path`: there a slash within a segment can no longer be told from one between two.
    raw = str(request.scope["path"]).partition("/triggers/webhook/")[2]
    return await _taken(request, path_of(raw), await _is_trusted(request))


async def _taken(request: Request, path: tuple[str, ...], is_trusted: bool) -> Response:
    webhook = Webhook(
        path=path,
        body=await request.body(),
        method=request.method,
        address=_address(request),
        headers=dict(request.headers),
        is_trusted=is_trusted,
    )
    try:
        taken = await _webhooks(request).take(webhook)
    except Refused as error:
        kind = "webhook-" + error.reason.replace(" ", "-")
        title = _NEEDED.get(error.reason, "The signature was refused")
        headers = {"WWW-Authenticate": 'Bearer realm="floodmark"'}
        raise HttpError(401, str(error), hint=error.hint, kind=kind, title=title, headers=headers) from error
    return answer(_told(taken), 202)


def _address(request: Request) -> str:
    """The path and the query as they stand in the request line: they are signed."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("latin-1")


async def _is_trusted(request: Request) -> bool:
    """Whether it comes from someone who may operate. A token that is not enough is refused, signature or not."""
    access = access_of(request.app)
    if "authorization" in request.headers:
        await access.admit(request, "operate")
        return True
    try:
        await access.admit(request, "operate")
    except HttpError as error:
        if error.status != 401:
            raise
        return False
    return True


def _webhooks(request: Request) -> Webhooks:
    state = request.app.state
    if getattr(state, "webhooks", None) is None:
        parts = parts_of(request)
        state.webhooks = Webhooks(build_intake(parts), parts.clock, parts.settings.webhook_window)
    found = state.webhooks
    assert isinstance(found, Webhooks)
    return found


@asynccontextmanager
async def flushing(app: FastAPI) -> AsyncIterator[None]:
    """Write the counts of refused webhooks every few seconds while the block runs, and once at its end."""
    parts = app.state.parts
    if parts is None:
        yield
        return

    async def flush() -> None:
        webhooks = getattr(app.state, "webhooks", None)
        if webhooks is not None:
            await webhooks.refusals.flush()

    async with run_services([Service("refusals", flush, FLUSH_EVERY, close=flush)], parts.events):
        yield


def _told(taken: Taken) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(taken)
    return {**told, "matched": len(taken.executions) + len(taken.skipped)}


# What is registered


@triggers.get("/status", response_model=StatusOut, summary="Tell how triggers fare")
async def triggers_status(office: Reading) -> Response:
    """What was fired and refused, and why; who listens to Redis; which patterns jobs name themselves."""
    return answer(await TriggerOffice(office).status())


@triggers.get("/webhooks", response_model=TriggersPage, summary="List webhooks")
async def list_webhooks(office: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Those that were registered, in the order they were made, and those that jobs carry. Secrets are not shown."""
    return await _page(office, "webhook", cursor, limit)


@triggers.post("/webhooks", status_code=201, response_model=NewTriggerOut, summary="Register a webhook")
async def add_webhook(office: Administering, body: WebhookIn) -> Response:
    """Let a path fire jobs. It counts at once, in every process."""
    secret = a_secret() if body.signed and body.secret is None else body.secret
    return await _added(office, "webhook", body, secret, is_shown=body.secret is None)


@triggers.delete("/webhooks/{trigger}", response_model=TriggerOut, summary="Remove a webhook")
async def remove_webhook(office: Administering, trigger: TriggerId) -> Response:
    """The answer is what it was. What it has fired stays."""
    return await _removed(office, "webhook", trigger)


@triggers.get("/channels", response_model=TriggersPage, summary="List channels")
async def list_channels(office: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Channels of Redis Pub/Sub, those that were registered and those that jobs carry."""
    return await _page(office, "channel", cursor, limit)


@triggers.post("/channels", status_code=201, response_model=NewTriggerOut, summary="Register a channel")
async def add_channel(office: Administering, body: TriggerIn) -> Response:
    """Let messages of a channel fire jobs; the scheduler hears it within a second. `content:*` is a pattern."""
    return await _added(office, "channel", body)


@triggers.delete("/channels/{trigger}", response_model=TriggerOut, summary="Remove a channel")
async def remove_channel(office: Administering, trigger: TriggerId) -> Response:
    """The answer is what it was. What it has fired stays."""
    return await _removed(office, "channel", trigger)


@triggers.get("/streams", response_model=Page[TriggerOut], summary="List streams")
async def list_streams(office: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Streams of Redis, in the order they were made."""
    return await _page(office, "stream", cursor, limit)


@triggers.post("/streams", status_code=201, response_model=NewTriggerOut, summary="Register a stream")
async def add_stream(office: Administering, body: TriggerIn) -> Response:
    """Let entries of a Redis stream fire jobs, from now on. None is lost while nobody listens."""
    return await _added(office, "stream", body)


@triggers.delete("/streams/{trigger}", response_model=TriggerOut, summary="Remove a stream")
async def remove_stream(office: Administering, trigger: TriggerId) -> Response:
    """The answer is what it was. What it has fired stays."""
    return await _removed(office, "stream", trigger)


async def _page(office: LocalOffice, kind: Kind, cursor: str | None, limit: int) -> Response:
    key, desk = key_of(f"triggers.{kind}", cursor, str), TriggerOffice(office)
    found = await desk.page(kind, after=None if key is None else key[0], limit=limit + 1)
    told = page(found, limit, f"triggers.{kind}", lambda row: [row.trigger_id], asdict)
    if kind != "stream":
        told["of_jobs"] = [asdict(row) for row in await desk.of_jobs(kind)]
    return answer(told)


async def _added(
    office: LocalOffice, kind: Kind, body: TriggerIn, secret: str | None = None, *, is_shown: bool = False
) -> Response:
    new = NewTrigger(
        kind=kind,
        pattern=body.pattern,
        jobs=body.jobs,
        params=body.params,
        secret=secret,
        debounce=timedelta(seconds=body.debounce_seconds),
        enabled=body.enabled,
    )
    made = await TriggerOffice(office).add(new, replace=body.replace)
    return answer({**asdict(made), "secret": secret if is_shown else None}, 201)


async def _removed(office: LocalOffice, kind: Kind, trigger: str) -> Response:
    return answer(await TriggerOffice(office).remove(trigger, kind))
