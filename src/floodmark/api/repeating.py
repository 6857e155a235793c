"""Requests that can be repeated without harm: the same `Idempotency-Key` gets the same answer."""

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
        description="Any text of yours. The same request with the same key is carried out once and answered alike "
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

# Makes the answer; what it makes gets this id. `True`: someone may have begun, so look whether it is there.
Make = Callable[[str | None, bool], Awaitable[Response]]


async def once(operations: Handlers, state: Any, key: str | None, request: Any, make: Make) -> Response:
    """Carry a request out, or tell what became of it when it was sent before. `request` is all that it says."""
    if key is None:
        return await make(None, False)
    keys = IdempotencyKeys(operations.resources.database, operations.resources.clock)
    await _prune(keys, operations, state)
    name = f"{operations.actor.who} {key}"
    said = msgspec.json.encode(request, order="deterministic")
    claim = await _claimed(keys, name, hashlib.sha256(said).hexdigest())
    if claim.answer is not None:
        return _repeated(claim.answer)
    try:
        response = await make(claim.promised, claim.is_taken_over)
    except FloodmarkError:
        await keys.give_up(name)
        raise
    except Exception:
        await keys.fall_silent(name)
        raise
    headers = {header: response.headers[header] for header in _KEPT_HEADERS if header in response.headers}
    body = bytes(response.body).decode()
    await keys.answered(name, claim, {"status": response.status_code, "headers": headers, "body": body})
    return response


async def _claimed(keys: IdempotencyKeys, name: str, fingerprint: str) -> Claim:
    """A claim that is ours, or answered. One that another request is working on is waited for."""
    for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
        claim = await keys.claim(name, fingerprint)
        if claim.fingerprint != fingerprint:
            raise HttpError(
                422,
                "this Idempotency-Key was used for another request",
                hint="use a new key for each thing you want done, and the same one only to repeat it",
                kind="key-reused",
            )
        if claim.is_mine or claim.answer is not None:
            return claim
        await asyncio.sleep(_LOOK_SECONDS)
    raise HttpError(
        409,
        "the first request with this Idempotency-Key is still being carried out",
        hint="send it again in a moment",
        headers={"Retry-After": "1"},
    )


def _repeated(answer: dict[str, Any]) -> Response:
    headers = {**answer["headers"], "Idempotency-Replayed": "true"}
    return Response(answer["body"], answer["status"], headers=headers, media_type="application/json")


async def _prune(keys: IdempotencyKeys, operations: Handlers, state: Any) -> None:
    """Now and then, by whoever uses keys: without them there is nothing to forget."""
    now = operations.resources.clock.now()
    last = getattr(state, "keys_pruned_at", None)
    if last is None or now - last > _PRUNED_EVERY:
        state.keys_pruned_at = now
        await keys.prune()
