"""Requests that can be repeated safely: the same `Idempotency-Key` gets the same response."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from fastapi import Header
from starlette.responses import Response

from floodmark.errors import FloodmarkError
from floodmark.operations.handlers.base import Handlers

from .idempotency import Claim, IdempotencyKeys
from .problems import HttpError

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="Any text. The same request with the same key is carried out once and gets the same response "
        "for 24 hours; another request with that key is refused.",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        examples=["8e03978e-40d5-43e8-bc93-6894a57f9324"],
    ),
]
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_PRUNED_EVERY = timedelta(minutes=10)
_KEPT_HEADERS = ("etag", "location")

# Carries out the request. With a key it gets `job_id`, the id for what it creates, and `may_exist`: an earlier request
# with this key may have created it.
Make = Callable[..., Awaitable[Response]]


async def once(handlers: Handlers, state: Any, key: str | None, content: Any, make: Make) -> Response:
    """Carry out a request, or repeat its response if it was sent before. `content` is everything the request says."""
    if key is None:
        return await make()
    keys = IdempotencyKeys(handlers.resources.database, handlers.resources.clock)
    await _prune(keys, handlers, state)
    name = f"{handlers.actor.who} {key}"
    fingerprint = hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()
    claim = await _claim(keys, name, fingerprint)
    if claim.answer is not None:
        return _repeat(claim.answer)
    try:
        response = await make(job_id=claim.promised, may_exist=claim.is_taken_over)
    except FloodmarkError:
        await keys.give_up(name)
        raise
    except Exception:
        await keys.mark_silent(name)
        raise
    headers = {header: response.headers[header] for header in _KEPT_HEADERS if header in response.headers}
    body = bytes(response.body).decode()
    await keys.keep_answer(name, claim, {"status": response.status_code, "headers": headers, "body": body})
    return response


async def _claim(keys: IdempotencyKeys, name: str, fingerprint: str) -> Claim:
    """Return a claim that is ours or answered; wait for one that another request is working on."""
    for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
        claim = await keys.claim(name, fingerprint)
        if claim.fingerprint != fingerprint:
            raise HttpError(
                422,
                "this Idempotency-Key was used for another request",
                hint="use a new key for each request, and the same key only to repeat one",
                kind="key-reused",
            )
        if claim.is_mine or claim.answer is not None:
            return claim
        await asyncio.sleep(_LOOK_SECONDS)
    raise HttpError(
        409,
        "the first request with this Idempotency-Key is still running",
        hint="send it again in a moment",
        headers={"Retry-After": "1"},
    )


def _repeat(answer: dict[str, Any]) -> Response:
    headers = {**answer["headers"], "Idempotency-Replayed": "true"}
    return Response(answer["body"], answer["status"], headers=headers, media_type="application/json")


async def _prune(keys: IdempotencyKeys, handlers: Handlers, state: Any) -> None:
    """Delete old keys now and then; only requests with a key do so."""
    now = handlers.resources.clock.now()
    last = getattr(state, "keys_pruned_at", None)
    if last is None or now - last > _PRUNED_EVERY:
        state.keys_pruned_at = now
        await keys.prune()
