"""Log lines: readable text on a terminal, JSON everywhere else; secrets in neither.

Our own loggers (structlog) and those of libraries (stdlib `logging`) use the same rendering and the same stream.
"""

import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, TextIO

import msgspec
import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.typing import FilteringBoundLogger

from floodmark.model.execution import State
from floodmark.security.masking import MASK, is_secret_name, mask_text

from .events import (
    AccountParked,
    BatchKept,
    BatchRefused,
    BreakerMoved,
    CallRetried,
    Events,
    EventsDelivered,
    EventsRelayed,
    ExecutionSettled,
    ExecutionsFired,
    ExecutionsRequeued,
    ExecutionsRescued,
    ExecutionStarted,
    FetchTimed,
    IndexBegun,
    InternalEvent,
    InvalidJob,
    ItemsIndexed,
    LeaderChanged,
    LeaseLost,
    LimitSet,
    MetricsPushed,
    ModeChosen,
    ProcessDied,
    QueueDegraded,
    QueueRestored,
    RateLimited,
    RunEnded,
    SchedulerTicked,
    SchedulesSynced,
    StepFailed,
    StoreRetried,
    SyncFieldsIgnored,
    WorkerDraining,
)

FIELD_LIMIT = 4096
ENTRIES_LIMIT = 100
DEPTH_LIMIT = 4
# Libraries that log every statement or request; even at `debug` they log from `info` on.
CHATTY = ("aiosqlite", "alembic", "asyncpg", "redis", "sqlalchemy", "telethon", "urllib3", "uvicorn")

# Controls (C0, DEL, C1), line separators, and marks that reverse the reading direction.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSAFE_IN_BLOCK = re.compile(_UNSAFE.pattern.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f"))

_CONTAINERS = (Mapping, list, tuple, set, frozenset)

_TEXTS: Mapping[int, Mapping[type[InternalEvent], str]] = {
    logging.DEBUG: {
        ExecutionStarted: "execution started",
        BatchKept: "batch kept",
        EventsRelayed: "events relayed",
        ItemsIndexed: "items indexed",
        EventsDelivered: "events delivered",
        FetchTimed: "page fetched",
        SchedulerTicked: "scheduler ticked",
    },
    logging.INFO: {
        IndexBegun: "search index begun",
        LeaderChanged: "leader changed",
        LimitSet: "limit set",
        ModeChosen: "mode chosen",
        RunEnded: "run ended",
        SchedulesSynced: "schedules synced",
        WorkerDraining: "worker draining",
        QueueRestored: "queue restored",
    },
    logging.WARNING: {
        SyncFieldsIgnored: "sync ignored unknown fields",
        ProcessDied: "process died",
        ExecutionsRescued: "executions rescued",
        ExecutionsRequeued: "executions requeued",
        BatchRefused: "batch refused",
        LeaseLost: "lease lost",
        StoreRetried: "store retried",
        QueueDegraded: "queue degraded",
        CallRetried: "call failed, trying again",
        RateLimited: "told to wait",
    },
    logging.ERROR: {
        InvalidJob: "invalid job",
        StepFailed: "step failed",
        AccountParked: "account parked",
    },
}

Render = Callable[[Any, str, MutableMapping[str, Any]], str]


def configure(level: str, format: str, stream: TextIO | None = None) -> None:  # noqa: A002 - the setting's name
    """Send all logging of this process to `stream` (stderr), from `level` on, as `auto`, `console` or `json`.

    Can be called again; the last call applies.
    """
    out = _Lines(stream or sys.stderr)
    is_console = format == "console" or (format == "auto" and out.is_terminal)
    render = console_lines(colors=out.is_terminal) if is_console else JsonLines()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: out,
        cache_logger_on_first_use=False,
    )
    _route_stdlib(level, _Handler(render, out))


def _route_stdlib(level: str, handler: "_Handler") -> None:
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    least = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(least)
    for name in CHATTY:
        quiet = logging.INFO if least <= logging.DEBUG else logging.WARNING
        logging.getLogger(name).setLevel(max(least, quiet))
    logging.captureWarnings(True)


class _Lines:
    """Writes each line with one call, so that lines of threads do not mix."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.Lock()
        self._flushes_itself = getattr(stream, "line_buffering", False)
        self.is_terminal = stream.isatty()

    def write(self, line: str) -> None:
        """Write one line at once."""
        try:
            with self._lock:
                self._stream.write(line + "\n")
                if not self._flushes_itself:
                    self._stream.flush()
        except (OSError, ValueError):
            # A full disk or a closed pipe must not stop the work, and there is no other place to report it.
            return

    debug = info = warning = error = critical = write


class _Handler(logging.Handler):
    """Renders log records of libraries like our own lines."""

    def __init__(self, render: Render, out: _Lines) -> None:
        super().__init__()
        self._render, self._out = render, out

    def emit(self, record: logging.LogRecord) -> None:
        """Write one log record of a library."""
        try:
            line = {"event": record.getMessage(), "logger": record.name, "exc_info": record.exc_info}
            # The request or execution, as in our own lines.
            line.update(structlog.contextvars.get_contextvars())
            self._out.write(self._render(None, record.levelname.lower(), line))
        except Exception:  # noqa: BLE001 - as in `logging`: it prints the error to stderr
            self.handleError(record)


class JsonLines:
    """Renders one JSON object per line, with times in UTC."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._second = (0, "")

    def __call__(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
        """Return the line of an event."""
        line = {"timestamp": self._now(), "level": level}
        line.update(_clean_fields(event))
        text = self._encode(line).decode()
        if text.isascii() and "\x7f" not in text:
            return text
        return _UNSAFE.sub(_escape, text)

    def _now(self) -> str:
        # Cached for a second: formatting the time costs as much as encoding the line.
        now = time.time()
        second, text = self._second
        if second != int(now):
            second = int(now)
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._second = (second, text)
        return f"{text}.{int((now - second) * 1000):03d}Z"


def console_lines(*, colors: bool) -> Render:
    """Return a renderer of aligned lines with the time of day; `colors` only if NO_COLOR allows them."""
    renderer = ConsoleRenderer(
        colors=colors and "NO_COLOR" not in os.environ,
        sort_keys=False,
        pad_event_to=28,
        exception_formatter=plain_traceback,
    )

    def render(logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
        line = {"timestamp": datetime.now().astimezone().strftime("%H:%M:%S"), "level": level}
        for key, value in _clean_fields(event).items():
            unsafe = _UNSAFE_IN_BLOCK if key == "exception" else _UNSAFE
            line[key] = unsafe.sub(_escape, value) if isinstance(value, str) else value
        return renderer(logger, level, line)

    return render


def _clean_fields(event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as plain, masked values, its text first."""
    trouble = event.pop("exc_info", None)
    line = {"event": _clean_text(str(event.pop("event", "")))}
    for key, value in event.items():
        line[key] = _clean(key, value)
    if trouble:
        line["exception"] = _clean_traceback(trouble)
    return line


def _clean(key: str, value: Any, depth: int = 0) -> Any:
    # By exact type, most common first: this runs for every field of every line.
    kind = type(value)
    if value is None or kind is bool:
        return value
    if is_secret_name(key):
        return MASK
    if kind is str:
        return _clean_text(value)
    if kind is float or (kind is int and -(2**63) <= value < 2**63):
        return value
    if isinstance(value, _CONTAINERS) and depth < DEPTH_LIMIT:
        return _clean_entries(key, value, depth + 1)
    return _clean_text(_to_text(value))


def _clean_entries(key: str, value: Any, depth: int) -> Any:
    more = [f"… {len(value) - ENTRIES_LIMIT} more"] if len(value) > ENTRIES_LIMIT else []
    if not isinstance(value, Mapping):
        return [_clean(key, entry, depth) for entry in islice(value, ENTRIES_LIMIT)] + more
    named = [(_clean_text(_to_text(name)), entry) for name, entry in islice(value.items(), ENTRIES_LIMIT)]
    return {name: _clean(name, entry, depth) for name, entry in named} | dict.fromkeys(more, "")


def _to_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a broken `__str__` must not lose the line
        return f"<{type(value).__name__} that cannot be shown>"


def _clean_text(text: str) -> str:
    if len(text) <= FIELD_LIMIT:
        return _make_encodable(mask_text(text))
    # Masked before the cut: a password that the cut splits would not be recognised.
    masked = _make_encodable(mask_text(text[: 2 * FIELD_LIMIT]))
    return f"{masked[:FIELD_LIMIT]}… ({len(text)} characters)"


def _clean_traceback(trouble: Any) -> str:
    """Return the end of the traceback, where the cause is. Local variables are never shown."""
    error = trouble if isinstance(trouble, BaseException) else (sys.exc_info() if trouble is True else trouble)[1]
    if error is None:
        return ""
    text = "".join(traceback.format_exception(error)).rstrip()
    return _make_encodable(mask_text(text[-2 * FIELD_LIMIT :]))[-FIELD_LIMIT:]


def _make_encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _fields(event: InternalEvent) -> dict[str, Any]:
    """Return the fields of an event for people: seconds to the millisecond, without empty fields."""
    fields = msgspec.structs.asdict(event)
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in fields.items()
        if value is not None and value != ""
    }


class LogListener:
    """Logs internal events. It does not listen to events below the logger's level."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        # Bound once: an unbound structlog logger would be configured again for every line.
        self._log: FilteringBoundLogger = logger.bind()
        self._push_failed = False

    def attach(self, events: Events) -> None:
        """Start to log."""
        for level, texts in _TEXTS.items():
            if self._log.is_enabled_for(level):
                for event_type, text in texts.items():
                    events.listen(event_type, partial(self._write, level, text))
        if self._log.is_enabled_for(logging.DEBUG):
            events.listen(ExecutionsFired, self._log_fired)
        events.listen(BreakerMoved, self._log_breaker)
        events.listen(MetricsPushed, self._log_push)
        if self._log.is_enabled_for(logging.INFO):
            events.listen(ExecutionSettled, self._log_settled)
        elif self._log.is_enabled_for(logging.ERROR):
            events.listen(ExecutionSettled, self._log_failed)

    def _write(self, level: int, text: str, event: InternalEvent) -> None:
        self._log.log(level, text, **_fields(event))

    def _log_fired(self, event: ExecutionsFired) -> None:
        self._log.debug(
            "executions fired",
            schedule_type=event.schedule_type,
            priority=event.priority.name.lower(),
            count=len(event.lateness),
            latest_seconds=round(max(event.lateness), 3),
        )

    def _log_breaker(self, event: BreakerMoved) -> None:
        # The process that moved it logs the reason; others only log at debug that they noticed.
        log = self._log.debug if event.elsewhere else self._log.info if event.state != "open" else self._log.warning
        fields = {"key": event.domain, "state": event.state, "reason": event.reason}
        log("breaker moved", **{name: value for name, value in fields.items() if value is not None})

    def _log_push(self, event: MetricsPushed) -> None:
        """Log only the first failure and the recovery, because there is a push every few seconds."""
        has_failed, self._push_failed = self._push_failed, event.error is not None
        if event.error is not None and not has_failed:
            self._log.warning("metrics not pushed, trying again", error=event.error)
        elif event.error is None and has_failed:
            self._log.info("metrics pushed again")

    def _log_settled(self, event: ExecutionSettled) -> None:
        fields = {
            "job": event.job_name,
            "status": event.status,
            "new": event.new,
            "changed": event.changed,
            "seconds": round(event.duration, 3),
            "execution": event.execution_id,
        }
        if event.trace_id is not None:
            fields["trace_id"] = event.trace_id
        if event.error is None:
            self._log.info("execution settled", **fields)
        elif event.status == State.DEAD:
            self._log.error("execution settled", **fields, error=event.error)
        else:
            self._log.warning("execution settled", **fields, error=event.error)

    def _log_failed(self, event: ExecutionSettled) -> None:
        if event.error is not None:
            self._log_settled(event)
