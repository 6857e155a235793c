"""A collector of traces on this machine: takes OTLP over HTTP and keeps it, to be asked."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from gzip import decompress
from typing import Any

from aiohttp import web
from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from floodmark.testing.web.serving import serve_app


class SpanSeen(Struct, frozen=True, kw_only=True):
    """A span as it arrived. `process`: which one sent it, by its `service.instance.id`."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    process: str
    began: int
    ended: int
    is_failed: bool
    message: str
    attributes: Mapping[str, Any]
    events: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        return self.attributes[f"floodmark.{name}"]


class Collector:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.spans: list[SpanSeen] = []
        self.resources: list[Mapping[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""

    def named(self, name: str) -> list[SpanSeen]:
        """In the order in which they began."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.began)

    def children(self, of: SpanSeen) -> list[SpanSeen]:
        """In the order in which they began."""
        mine = [span for span in self.spans if (span.trace_id, span.parent_id) == (of.trace_id, of.span_id)]
        return sorted(mine, key=lambda span: span.began)

    def tree(self, of: SpanSeen) -> Any:
        """The names of a span and of all that came of it: (name, [trees of its children])."""
        return (of.name, [self.tree(child) for child in self.children(of)])

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        sent = ExportTraceServiceRequest.FromString(decompress(body) if body[:2] == b"\x1f\x8b" else body)
        self.headers.append(dict(request.headers))
        for group in sent.resource_spans:
            resource = _values(group.resource.attributes)
            self.resources.append(resource)
            self.spans += [
                _seen(span, str(resource["service.instance.id"])) for scope in group.scope_spans for span in scope.spans
            ]
        return web.Response(body=b"", content_type="application/x-protobuf")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector that listens while the block lasts."""
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.take)
    async with serve_app(app) as port:
        collector.url = f"http://127.0.0.1:{port}"
        yield collector


def _seen(span: Any, process: str) -> SpanSeen:
    return SpanSeen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        process=process,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        is_failed=span.status.code == span.status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=_values(span.attributes),
        events=tuple(event.name for event in span.events),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
