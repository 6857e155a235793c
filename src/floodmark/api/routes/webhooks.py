"""Incoming webhooks. They are not operations: a signature can replace the token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Header, Request
from fastapi import Path as InPath
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.access import access_of, resources_of
from floodmark.api.problems import HttpError
from floodmark.api.routing import PREFIX, answer, router
from floodmark.coordination.service import Service, run_services
from floodmark.inbound.intake import build_intake
from floodmark.inbound.refusals import FLUSH_EVERY
from floodmark.inbound.webhooks import Webhook, WebhookRefused, Webhooks, path_in, path_of, read_body

webhooks = router(f"{PREFIX}/triggers", tag="Triggers")

Timestamp = Annotated[
    str | None,
    Header(alias="X-Floodmark-Timestamp", description="The time of the signature: seconds since 1970.", max_length=40),
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
        description="An id of this delivery: a second delivery with it fires nothing.",
        max_length=200,
    ),
]


class FiredOut(BaseModel):
    """An execution that a delivery fired."""

    execution_id: str
    job_id: str
    job_name: str
    trigger: str = Field(examples=["webhook:/sources/*/crawl"])
    state: Literal["queued", "waiting"]
    scheduled_for: datetime
    reason: str | None = Field(description="Why it waits; null if it does not.")
    folded: bool = Field(description="It was already waiting, and now also covers this delivery.")


class HintedOut(BaseModel):
    """An adaptive job that was hinted: it runs as soon as its budget allows."""

    job_id: str
    job_name: str
    trigger: str = Field(examples=["webhook:/sources/*/crawl"])


class SkippedOut(BaseModel):
    """A job that was not fired."""

    job: str
    reason: str = Field(examples=["it is paused"])


class TakenOut(BaseModel):
    """The result of a webhook."""

    delivery_id: str
    matched: int = Field(description="The number of jobs at this path.")
    executions: list[FiredOut]
    hinted: list[HintedOut] = Field(
        description="Adaptive jobs whose run does not depend on the content: they run as soon as their budget allows."
    )
    skipped: list[SkippedOut]
    duplicate: bool = Field(description="A repeated delivery: nothing was fired, the answer is the first one.")
    debounced_until: datetime | None = Field(description="When its executions start, if they are debounced.")


# Titles of refusals, by reason.
_NEEDED = {"no token": "A token is needed", "unsigned": "A signature is needed"}
_ANY_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "Any content. Fields of JSON can become params.",
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
                            "description": "The path, as in the address.",
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


@webhooks.post(
    "/webhook",
    status_code=202,
    response_model=TakenOut,
    summary="Deliver a webhook that names its path",
    openapi_extra=_NAMING_BODY,
)
async def deliver(
    request: Request, timestamp: Timestamp = None, signature: Signature = None, delivery: Delivery = None
) -> Response:
    """Fire the jobs at the `path` in the body. A trigger with a secret needs a signature, others a token."""
    is_trusted, body = await _is_trusted(request), await request.body()
    content = read_body(Webhook(path=(), body=body, headers={"content-type": "application/json"}))
    return await _take(request, path_in(content), is_trusted)


@webhooks.post(
    "/webhook/{path:path}",
    status_code=202,
    response_model=TakenOut,
    summary="Deliver a webhook",
    openapi_extra=_ANY_BODY,
)
async def deliver_to(
    request: Request,
    path: Annotated[str, InPath(description="The path that patterns are compared with.", max_length=2000)],
    timestamp: Timestamp = None,
    signature: Signature = None,
    delivery: Delivery = None,
) -> Response:
    """Fire the jobs at this path. A trigger with a secret needs a signature, others a token with the role operate.

    The answer is 202 also if no job matches (`matched` is 0): the sender cannot change that.
    """
    # From the address, not from `path`, in which a slash within a segment looks like one between two.
    raw = str(request.scope["path"]).partition("/triggers/webhook/")[2]
    return await _take(request, path_of(raw), await _is_trusted(request))


async def _take(request: Request, path: tuple[str, ...], is_trusted: bool) -> Response:
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
    except WebhookRefused as error:
        kind = "webhook-" + error.reason.replace(" ", "-")
        title = _NEEDED.get(error.reason, "The signature was refused")
        headers = {"WWW-Authenticate": 'Bearer realm="floodmark"'}
        raise HttpError(401, str(error), hint=error.hint, kind=kind, title=title, headers=headers) from error
    matched = len(taken.executions) + len(taken.hinted) + len(taken.skipped)
    return answer({**msgspec.to_builtins(taken), "matched": matched}, 202)


def _address(request: Request) -> str:
    """Return path and query as in the request line: they are signed."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("latin-1")


async def _is_trusted(request: Request) -> bool:
    """Return whether the caller may operate. An insufficient token is refused, with or without a signature."""
    try:
        await access_of(request.app).admit(request, "operate")
    except HttpError as error:
        if error.status != 401 or "authorization" in request.headers:
            raise
        return False
    return True


def _webhooks(request: Request) -> Webhooks:
    state = request.app.state
    if getattr(state, "webhooks", None) is None:
        resources = resources_of(request)
        state.webhooks = Webhooks(build_intake(resources), resources.clock, resources.settings.webhook_window)
    found = state.webhooks
    assert isinstance(found, Webhooks)
    return found


@asynccontextmanager
async def flush_refusals(app: FastAPI) -> AsyncIterator[None]:
    """Write the counts of refused webhooks every few seconds while the block runs, and once at its end."""
    resources = app.state.resources
    if resources is None:
        yield
        return

    async def flush() -> None:
        webhooks = getattr(app.state, "webhooks", None)
        if webhooks is not None:
            await webhooks.refusals.flush()

    async with run_services([Service("refusals", flush, FLUSH_EVERY, close=flush)], resources.events):
        yield
