"""The part of OpenTelemetry that `tracing` uses. It is imported with the first span.

Nothing is registered globally: a program that embeds Floodmark may have its own provider.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers
from structlog.contextvars import bound_contextvars

Attributes = Mapping[str, str | int | float | bool]

_KINDS = {kind.name.lower(): kind for kind in SpanKind}
_text = TraceContextTextMapPropagator()


class Otel:
    """Creates spans and sends them in batches from its own thread. Spans that cannot be sent are dropped."""

    def __init__(
        self,
        *,
        endpoint: str | None,
        headers: str | None,
        resource: Mapping[str, str],
        share: float,
    ) -> None:
        given = None if headers is None else parse_env_headers(headers, liberal=True)
        self._provider = TracerProvider(
            # Of all traces: what OTEL_TRACES_SAMPLER says.
            sampler=None if share == 1 else ParentBasedTraceIdRatio(share),
            resource=Resource.create(dict(resource)),
            id_generator=_Ids(),
            shutdown_on_exit=False,
        )
        exporter = _Exporter(OTLPSpanExporter(endpoint=endpoint, headers=given))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("floodmark", resource["service.version"])

    def start(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: str = "internal",
        parent: str | None = None,
        root: str | None = None,
        began: int | None = None,
    ) -> Span:
        """Start a span. Its parent is `parent`, or the current span; without either it starts a trace.

        `root`: ignore the current span; the id of a new trace is derived from this text. `began`: start time in
        nanoseconds since 1970, if it is not now.
        """
        context = None
        if parent is not None or root is not None:
            context = _text.extract({} if parent is None else {"traceparent": parent}, Context())
        with _named(root):
            return self._tracer.start_span(name, context, _KINDS[kind], attributes, start_time=began)

    @contextmanager
    def current(self, span: Span) -> Iterator[Span]:
        """Make the span the current one within the block, with its ids in log lines, and end it with the block."""
        context = span.get_span_context()
        names = {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}
        # Without a valid one the SDK is disabled, and there is nothing to name.
        named = bound_contextvars(**names) if context.is_valid else nullcontext()
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False), named:
                yield span
        finally:
            span.end()

    def is_within(self) -> bool:
        """Return whether there is a current span."""
        return trace.get_current_span() is not INVALID_SPAN

    def note(self, name: str, attributes: Attributes) -> None:
        """Add an event to the current span."""
        trace.get_current_span().add_event(name, attributes)

    def fail(self, span: Span, text: str) -> None:
        """Mark a span as failed."""
        span.set_status(StatusCode.ERROR, text)

    def traceparent(self, span: Span) -> str | None:
        """Return the W3C context of a span; None if the SDK is disabled."""
        carrier: dict[str, str] = {}
        _text.inject(carrier, trace.set_span_in_context(span, Context()))
        return carrier.get("traceparent")

    def shutdown(self) -> None:
        """Send the remaining spans and end. Blocks for at most half a minute."""
        self._provider.shutdown()


class _Exporter(SpanExporter):
    """Sends spans, and logs only the first failure and the recovery: the library would log every second."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter, self._is_failing = exporter, False
        self._log = logging.getLogger(type(exporter).__module__)
        self._log.addFilter(self._is_news)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch, with a time-out of a few seconds."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS and self._is_failing:
            self._is_failing = False
            logging.getLogger(__name__).warning("traces are sent again")
        return result

    def shutdown(self) -> None:
        """End, even in the middle of a batch."""
        self._exporter.shutdown()
        self._log.removeFilter(self._is_news)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: there is no buffer."""
        return self._exporter.force_flush(timeout_millis)

    def _is_news(self, _record: logging.LogRecord) -> bool:
        was_failing, self._is_failing = self._is_failing, True
        return not was_failing


# What the id of a trace that begins here and now is made of.
_name: ContextVar[str | None] = ContextVar("name of a new trace", default=None)


@contextmanager
def _named(text: str | None) -> Iterator[None]:
    token = _name.set(text)
    try:
        yield
    finally:
        _name.reset(token)


class _Ids(RandomIdGenerator):
    """Random ids, except for traces whose id is derived from a text."""

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        name = _name.get()
        if name is None:
            return super().generate_trace_id()
        # A digest, not the text itself: samplers count on ids that are random in every bit.
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest())
