"""The live feed: what happens, as it happens."""

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from floodmark.api.access import access_of, require
from floodmark.api.live import KINDS, Kind, Live
from floodmark.api.problems import HttpError
from floodmark.api.routing import router
from floodmark.model.audit import Actor

live = router("/live", tag="Live")

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
    summary="Follow what happens",
)
async def follow(
    request: Request,
    _: Annotated[Actor, Depends(require("read"))],
    *,
    only: Annotated[list[Kind] | None, Query(description="Only these kinds of events; can be repeated.")] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            description="The `id` of the last item you have got: those since are sent first.", pattern=r"^\d{1,18}$"
        ),
    ] = None,
) -> Response:
    """Server-sent events of the whole fleet.

    - `execution`: an execution that is new or has changed
    - `item`: an item that is new or has changed; its `id` is its position, and what `Last-Event-ID` resumes from
    - `limit`, `breaker`, `worker`: one that is new or has changed, or `{"key": ..., "gone": true}`

    It tells of changes: ask for the lists first. Whoever does not keep up is disconnected, and may come back with
    the `Last-Event-ID` of the last item.
    """
    feed: Live = request.app.state.live
    if feed.is_full:
        raise HttpError(503, "too many are listening", hint="try again later", headers={"Retry-After": "5"})
    access = access_of(request.app)

    async def still_welcome() -> Any:
        await access.admit(request, "read")

    after = None if last_event_id is None else int(last_event_id)
    texts = feed.listen(only or KINDS, after, still_welcome=still_welcome)
    return StreamingResponse(texts, media_type=_TYPE, headers={"X-Accel-Buffering": "no"})
