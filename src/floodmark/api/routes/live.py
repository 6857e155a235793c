"""The route of the live feed."""

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from floodmark.api.access import access_of, require
from floodmark.api.live import KINDS, Kind, Live
from floodmark.api.problems import HttpError
from floodmark.api.routing import PREFIX, router
from floodmark.model.audit import Actor

live = router(f"{PREFIX}/live", tag="Live")

_TYPE = "text/event-stream"
_EXAMPLE = 'event: item\nid: 4812\ndata: {"event_id": "telegram:1/77/1", "position": 4812, "kind": "item.new"}\n\n'


@live.get(
    "",
    response_class=Response,
    responses={
        200: {
            "description": "Events without end. Comments (lines that begin with `:`) keep the connection open.",
            "content": {_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE}},
        }
    },
    summary="Follow the live feed",
)
async def follow(
    request: Request,
    _: Annotated[Actor, Depends(require("read"))],
    *,
    only: Annotated[list[Kind] | None, Query(description="Only these kinds of events; can be repeated.")] = None,
    beats: Annotated[
        bool,
        Query(
            description="Send a `beat` in every second without another event, and of several waiting events of a kind "
            "only the newest: for pages that load themselves again."
        ),
    ] = False,
    last_event_id: Annotated[
        str | None,
        Header(description="The `id` of your last item: newer items are sent first.", pattern=r"^\d{1,18}$"),
    ] = None,
) -> Response:
    """Stream the events of the whole fleet as server-sent events.

    - `execution`: an execution that is new or has changed
    - `item`: an item that is new or has changed; its `id` is its position, and what `Last-Event-ID` resumes from
    - `change`: a change by a person or program, as in the audit log: `action`, `object` and `who`
    - `limit`, `breaker`, `worker`: one that is new or has changed, or `{"key": ..., "gone": true}`
    - `beat`: nothing happened for a second; only with `beats=true`

    The stream contains changes only: get the lists first. A client that is too slow is disconnected, and may
    reconnect with the `Last-Event-ID` of the last item.
    """
    feed: Live = request.app.state.live
    if feed.is_full:
        raise HttpError(503, "there are too many listeners", hint="try again later", headers={"Retry-After": "5"})
    access = access_of(request.app)

    async def check_access() -> Any:
        await access.admit(request, "read")

    after = None if last_event_id is None else int(last_event_id)
    texts = feed.listen(only or KINDS, after, check_access=check_access, beats=beats)
    return StreamingResponse(texts, media_type=_TYPE, headers={"X-Accel-Buffering": "no"})
