"""Callbacks of WebSub hubs. They are not in the API document: only hubs call them, without a token."""

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from floodmark.api.access import resources_of
from floodmark.inbound.websub import CALLBACKS, HubCallbacks, build_callbacks

# Without the strict routes of the API: a hub may add parameters of its own.
websub = APIRouter(prefix=CALLBACKS, include_in_schema=False)


@websub.get("/{callback}")
async def verify_intent(request: Request, callback: str) -> Response:
    """Confirm a subscription that Floodmark has asked for."""
    return PlainTextResponse(await _callbacks(request).verify(callback, request.query_params))


@websub.post("/{callback}")
async def receive_push(request: Request, callback: str) -> Response:
    """Take a push. The answer does not say whether its signature is valid, as the recommendation demands."""
    signature = request.headers.get("x-hub-signature")
    is_subscribed = await _callbacks(request).receive(callback, await request.body(), signature)
    # 410 tells the hub to send no more.
    return Response(status_code=202 if is_subscribed else 410)


def _callbacks(request: Request) -> HubCallbacks:
    state = request.app.state
    if getattr(state, "hub_callbacks", None) is None:
        state.hub_callbacks = build_callbacks(resources_of(request))
    found = state.hub_callbacks
    assert isinstance(found, HubCallbacks)
    return found
