"""Traces: each leads from the cause of an execution to its events, through all processes.

    fire | trigger          stored and put on the queue              scheduler; API, CLI or listener
    └─ queue                until a worker leases it                 worker, once for each attempt
       └─ execution         an attempt, until its outcome            worker
          ├─ request        a call to a source, with its retries     worker
          └─ batch          stored together with its watermark       worker
             └─ relay       its events left the outbox               scheduler

The context of a trace is passed to other processes as a W3C `traceparent`: in the tables `executions` and `outbox`, in
the entries of the queue, and in the stream of events. OpenTelemetry is imported with the first span; if tracing is
off there is no `Tracing`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from floodmark.errors import InvalidInput, SlowDown
from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Lease
from floodmark.model.job import DueJob
from floodmark.model.outcome import Dead, Outcome, Retry, Snooze
from floodmark.process.threads import DaemonThreads
from floodmark.security.masking import mask_text
from floodmark.version import __version__

from .events import CallRetried, Events, RateLimited

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from floodmark.settings import Settings

    from . import otel

# How long an ending process waits for a collector that does not respond.
_LAST_WORDS_SECONDS = 3.0
_TEXT_LIMIT = 500
_PACKAGES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")

T = TypeVar("T")


class Started:
    """A started span. `traceparent` is its context; a span that is never ended is never sent."""

    def __init__(self, span: "Span", traceparent: str | None) -> None:
        self._span, self.traceparent = span, traceparent

    def end(self) -> None:
        """End the span, so that it can be sent."""
        self._span.end()


def is_traced(settings: "Settings") -> bool:
    """Return whether this process creates spans."""
    if settings.tracing == "auto":
        return bool(settings.otel_exporter_otlp_endpoint or settings.otel_exporter_otlp_traces_endpoint)
    return settings.tracing == "otlp"


def tracing_of(settings: "Settings", name: str, events: Events) -> "Tracing | None":
    """Return the tracing of a process with this name; None if tracing is off."""
    if not is_traced(settings):
        return None
    try:
        # Only checked, not imported: most commands create no span.
        for package in _PACKAGES:
            version(package)
    except PackageNotFoundError as error:
        raise InvalidInput(
            f"tracing is on, but {error.name} is not installed",
            hint="Run pip install 'floodmark[otel]', or set TRACING=off",
        ) from error
    return Tracing(settings, name, events)


class Tracing:
    """Creates the spans of one process."""

    def __init__(self, settings: "Settings", name: str, events: Events) -> None:
        self._settings, self._name, self._events = settings, name, events

    def prepare(self) -> None:
        """Import OpenTelemetry now rather than during the first execution."""
        assert self._otel is not None

    @cached_property
    def _otel(self) -> "otel.Otel":
        from .otel import Otel  # noqa: PLC0415 - takes half a second

        settings = self._settings
        headers = settings.otel_exporter_otlp_headers
        self._events.listen(CallRetried, self._note_retry)
        self._events.listen(RateLimited, self._note_wait)
        return Otel(
            endpoint=_endpoint(settings),
            headers=None if headers is None else headers.get_secret_value(),
            resource={
                "service.name": settings.otel_service_name,
                "service.version": __version__,
                "service.instance.id": self._name,
                "host.name": settings.hostname,
            },
            share=settings.traces_sampled,
        )

    async def close(self) -> None:
        """Send the remaining spans, within a short time."""
        if "_otel" not in self.__dict__:
            return
        # A daemon thread: the library may wait for half a minute, which must not delay the exit.
        sending = asyncio.get_running_loop().run_in_executor(DaemonThreads(1), self._otel.shutdown)
        await asyncio.wait([sending], timeout=_LAST_WORDS_SECONDS)

    # Where executions begin

    def fire(self, job: DueJob, execution_id: str, scheduled_for: datetime, now: datetime) -> Started:
        """Start the span of a due instant. Every execution has its own trace, even if many are fired at once."""
        attributes: dict[str, Any] = {
            "floodmark.job": job.name,
            "floodmark.source": job.source,
            "floodmark.trigger": "schedule",
            "floodmark.execution_id": execution_id,
            "floodmark.scheduled_for": scheduled_for.isoformat(),
            "floodmark.late_seconds": (now - scheduled_for).total_seconds(),
        }
        span = self._otel.start("fire", attributes, kind="producer", root=execution_id)
        return Started(span, self._otel.traceparent(span))

    @contextmanager
    def trigger(self, kind: str, subject: str) -> Iterator[str | None]:
        """Trace a delivery or a manual run. Yields the context for its executions."""
        attributes = {"floodmark.trigger": kind, "floodmark.subject": _limit_text(subject)}
        with self._current("trigger", attributes, kind="producer") as span:
            yield self._otel.traceparent(span)

    # In a worker

    def trace_leases(self, leases: Sequence[Lease]) -> list[Lease]:
        """Return the leases with the context of a span for their time in the queue."""
        return [replace(lease, traceparent=self._trace_queue(lease)) for lease in leases]

    def _trace_queue(self, lease: Lease) -> str | None:
        now = time.time_ns()
        waited = 0 if lease.waited is None else int(lease.waited * 1e9)
        attributes = {**_lease_attributes(lease), "floodmark.priority": lease.job.priority.name.lower()}
        span = self._otel.start(
            "queue",
            attributes,
            kind="consumer",
            parent=lease.traceparent,
            # If it was fired without a trace, or by SQL, its attempts still share one trace.
            root=lease.execution_id,
            began=now - waited,
        )
        span.end(now)
        return self._otel.traceparent(span)

    async def execution(self, lease: Lease, work: Awaitable[Outcome | None]) -> Outcome | None:
        """Trace an attempt. The span ends with it in every case."""
        attributes = {**_lease_attributes(lease), "floodmark.trigger": lease.trigger, "floodmark.worker": lease.worker}
        with self._current("execution", attributes, parent=lease.traceparent, root=lease.execution_id) as span:
            outcome = await work
            self._add_outcome(span, outcome)
            return outcome

    async def request(self, scope: str, method: str, target: str, making: Awaitable[T]) -> T:
        """Trace an outgoing call, from its first attempt to its last. Only within another span."""
        if not self._otel.is_within():
            return await making
        attributes = {"floodmark.scope": scope, "floodmark.method": method, "floodmark.target": _limit_text(target)}
        with self._current("request", attributes, kind="client"):
            return await making

    async def batch(self, lease: Lease, batch: Batch, keep: Callable[[Lease, Batch], Awaitable[Kept]]) -> Kept:
        """Trace the storage of a batch; its events contain the context."""
        attributes = {**_lease_attributes(lease), "floodmark.stream": batch.stream or lease.job.stream}
        with self._current("batch", attributes) as span:
            kept = await keep(replace(lease, traceparent=self._otel.traceparent(span)), batch)
            span.set_attributes(_count_attributes(kept))
            return kept

    # Where events leave

    @contextmanager
    def relay(self, traceparents: Sequence[str | None]) -> Iterator[Mapping[str | None, str | None]]:
        """Trace the sending of events, with a span in the trace of each batch. Yields the context of each."""
        counts = Counter(filter(None, traceparents))
        spans = {
            origin: self._otel.start("relay", {"floodmark.events": count}, kind="producer", parent=origin, root=origin)
            for origin, count in counts.items()
        }
        try:
            yield {origin: self._otel.traceparent(span) for origin, span in spans.items()}
        except BaseException as error:
            for span in spans.values():
                self._add_error(span, error)
            raise
        finally:
            for span in spans.values():
                span.end()

    # Requests to the API

    def answering(
        self, name: str, traceparent: str | None, attributes: Mapping[str, Any]
    ) -> "AbstractContextManager[Span]":
        """Trace an incoming request, which continues the trace of its sender. Its span is current within the block."""
        return self._current(name, attributes, kind="server", parent=traceparent)

    def answered(self, span: "Span", method: str, route: str | None, status: int) -> None:
        """Add the route and the status of the response to the span."""
        span.set_attribute("http.response.status_code", status)
        if route is not None:
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if status >= 500:
            self._otel.fail(span, f"status {status}")

    # Shared by all spans

    @contextmanager
    def _current(self, name: str, attributes: Mapping[str, Any], **how: Any) -> Iterator["Span"]:
        with self._otel.current(self._otel.start(name, attributes, **how)) as span:
            try:
                yield span
            except BaseException as error:
                self._add_error(span, error)
                raise

    def _add_outcome(self, span: "Span", outcome: Outcome | None) -> None:
        if outcome is None:
            span.set_attribute("floodmark.outcome", "lost")
            self._otel.fail(span, "the lease has passed to another worker")
            return
        span.set_attributes({"floodmark.outcome": type(outcome).__name__.lower(), **_count_attributes(outcome.kept)})
        if isinstance(outcome, Snooze | Retry):
            span.set_attribute("floodmark.again_after_seconds", outcome.after.total_seconds())
        if isinstance(outcome, Retry | Dead):
            self._otel.fail(span, _limit_text(outcome.error))

    def _add_error(self, span: "Span", error: BaseException) -> None:
        span.set_attribute("error.type", type(error).__qualname__)
        if isinstance(error, SlowDown):
            # A request to wait is not a failure.
            span.set_attribute("floodmark.again_after_seconds", error.after.total_seconds())
        else:
            self._otel.fail(span, _limit_text(str(error)))

    # Events are emitted at once and in place, so the current span is the right one.

    def _note_retry(self, event: CallRetried) -> None:
        attributes: dict[str, Any] = {"attempt": event.attempt, "delay_seconds": event.delay, "reason": event.reason}
        self._otel.note("retried", attributes)

    def _note_wait(self, event: RateLimited) -> None:
        self._otel.note("told to wait", {"seconds": event.seconds, "reason": event.reason})


def trace_trigger(tracing: Tracing | None, kind: str, subject: str) -> AbstractContextManager[str | None]:
    """Call `Tracing.trigger`, or do nothing without tracing."""
    return nullcontext() if tracing is None else tracing.trigger(kind, subject)


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace id of a context."""
    return None if traceparent is None else traceparent[3:35]


def _endpoint(settings: "Settings") -> str | None:
    """Return the endpoint for spans; None lets the library use its default."""
    if settings.otel_exporter_otlp_traces_endpoint is not None:
        return settings.otel_exporter_otlp_traces_endpoint
    base = settings.otel_exporter_otlp_endpoint
    return None if base is None else f"{base.rstrip('/')}/v1/traces"


def _lease_attributes(lease: Lease) -> dict[str, Any]:
    return {
        "floodmark.job": lease.job.name,
        "floodmark.source": lease.job.source,
        "floodmark.execution_id": lease.execution_id,
        "floodmark.attempt": lease.attempt,
    }


def _count_attributes(kept: Kept) -> dict[str, int]:
    return {"floodmark.new": kept.new, "floodmark.changed": kept.changed, "floodmark.known": kept.known}


def _limit_text(text: str) -> str:
    return mask_text(text)[:_TEXT_LIMIT]
