"""Log lines: one an event, whatever is in it, and no secret in any."""

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from floodmark.observability.events import (
    AccountParked,
    BatchKept,
    BatchRefused,
    BreakerMoved,
    CallRetried,
    Events,
    ExecutionSettled,
    ExecutionsRescued,
    ExecutionStarted,
    LeaderChanged,
    LimitSet,
    ModeChosen,
    RateLimited,
    RunEnded,
    StepFailed,
)
from floodmark.observability.logs import CHATTY, FIELD_LIMIT, JsonLines, LogListener, configure
from floodmark.settings import Settings

CANARY = "canary-3f9a1c"


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """`configure` is for a whole process; tests share theirs."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
    root.setLevel(level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET)


class Log:
    """A log in memory."""

    def __init__(self, format: str = "json", level: str = "debug") -> None:  # noqa: A002
        self.stream = io.StringIO()
        configure(level, format, self.stream)
        self.logger = structlog.get_logger()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def lines(self) -> list[dict[str, Any]]:
        # splitlines() also splits at U+2028 and the like, as some log shippers do.
        return [json.loads(line) for line in self.text.splitlines()]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.spec("V10", "E9")
def test_a_line_for_machines_has_time_level_event_and_fields() -> None:
    log = Log()
    log.logger.info("hello", job="a", seconds=0.5, none=None)
    [line] = log.lines()
    assert list(line) == ["timestamp", "level", "event", "job", "seconds", "none"]
    assert (line["level"], line["event"], line["job"]) == ("info", "hello", "a")
    assert line["timestamp"].endswith("Z")
    age = datetime.now(UTC) - datetime.fromisoformat(line["timestamp"])
    assert timedelta(seconds=-1) < age < timedelta(seconds=60)


def test_the_level_holds_for_our_loggers_and_those_of_libraries() -> None:
    log = Log(level="warning")
    log.logger.info("no")
    log.logger.warning("yes")
    logging.getLogger("some.library").info("no")
    logging.getLogger("some.library").error("yes")
    assert [line["event"] for line in log.lines()] == ["yes", "yes"]


def test_libraries_log_in_the_same_shape() -> None:
    log = Log()
    logging.getLogger("asyncio").warning("slow: %s", "callback")
    logging.getLogger("alembic.runtime").info("routine")
    logging.getLogger("aiosqlite").debug("secret statement")
    first, second = log.lines()
    assert (first["event"], first["logger"], first["level"]) == ("slow: callback", "asyncio", "warning")
    assert second["event"] == "routine"


def test_python_warnings_become_log_lines() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        log = Log()
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    [line] = log.lines()
    assert line["logger"] == "py.warnings"
    assert "old ways" in line["event"]


async def test_what_asyncio_complains_about_is_logged() -> None:
    log = Log()
    asyncio.get_running_loop().call_exception_handler({"message": "lost", "exception": ValueError("x")})
    [line] = log.lines()
    assert line["logger"] == "asyncio"
    assert "ValueError: x" in line["exception"]


def test_configuring_again_replaces_what_was_before() -> None:
    old, new = Log(), Log()
    logging.getLogger("x").warning("hello")
    assert old.text == ""
    assert len(new.lines()) == 1


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize(
    "hostile",
    ["a\nb", "a\r\nb", "\x1b[2J", "\x7f", "\x9b31m", "\u2028", "\u202etxt", "\0", "%s %d {x}", "\ud800"],
    ids=ascii,
)
def test_no_text_can_forge_a_line_or_control_a_terminal(hostile: str, format: str) -> None:  # noqa: A002
    log = Log(format)
    log.logger.info(hostile, field=hostile, nested={hostile: [hostile]})
    logging.getLogger("library").warning(hostile)
    assert len(log.text.splitlines()) == 2
    assert all(character.isprintable() for character in log.text.replace("\n", ""))


@given(st.text())
def test_any_text_arrives_as_one_line_of_json(text: str) -> None:
    line = JsonLines()(None, "info", {"event": "e", "field": text})
    assert len(line.splitlines()) == 1
    assert "field" in json.loads(line)


@pytest.mark.spec("G6")
def test_long_fields_are_cut() -> None:
    log = Log()
    log.logger.info("e", text="x" * 1_000_000, many=list(range(10_000)), deep=[[[[[[[[1]]]]]]]])
    [line] = log.lines()
    assert line["text"] == "x" * FIELD_LIMIT + "… (1000000 characters)"
    assert line["many"][-1] == "… 9900 more"
    assert len(log.text) < 10_000


def test_values_of_any_kind_can_be_logged() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError("no")

    log = Log()
    values = {"rude": Rude(), "big": 2**70, "nan": float("nan"), "bytes": b"\xff", "when": timedelta(seconds=1)}
    log.logger.info("e", **values, keys={1: {2, 3}, None: ("a",)})
    [line] = log.lines()
    assert line["rude"] == "<Rude that cannot be shown>"
    assert line["big"] == str(2**70)
    assert line["keys"]["None"] == ["a"]


@pytest.mark.spec("E9")
@pytest.mark.parametrize("format", ["json", "console"])
def test_no_secret_reaches_the_log(format: str) -> None:  # noqa: A002
    log = Log(format)
    settings = Settings.model_validate({"redis_password": CANARY, "redis_host": "h"})
    tell = log.logger.info
    tell("e", password=CANARY, api_token=CANARY, Authorization=CANARY, session_string=CANARY, client_secret=CANARY)
    tell("e", nested={"headers": {"Authorization": f"Bearer {CANARY}"}, "list": [{"token": CANARY}]})
    tell(f"connecting to redis://:{CANARY}@h/0", url=f"postgresql://u:{CANARY}@h/db")
    tell("e", text=f"GET https://h/?access_token={CANARY}&x=1 Authorization: Bearer {CANARY}")
    tell("e", settings=settings, row=settings.rows(), url=settings.redis)
    tell("e", long="x" * (FIELD_LIMIT - 20) + f" redis://u:{CANARY}@h " + "x" * 9000)
    logging.getLogger("library").error("cannot reach redis://u:%s@h", CANARY)
    try:
        password = CANARY
        raise ConnectionError(f"redis://u:{password}@h refused")
    except ConnectionError:
        log.logger.exception("failed")
        logging.getLogger("library").exception("failed")
    assert CANARY not in log.text
    assert log.text.count("***") >= 12


def test_a_secret_that_is_not_set_is_shown_as_such() -> None:
    log = Log()
    log.logger.info("e", password=None)
    assert log.lines()[0]["password"] is None


def test_an_exception_is_told_with_its_traceback_in_one_line() -> None:
    log = Log()
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        log.logger.exception("failed")
        log.logger.warning("failed", exc_info=error)
    for line in log.lines():
        assert line["exception"].startswith("Traceback")
        assert line["exception"].endswith("ValueError: first\nsecond")


def test_lines_for_people_are_short_and_aligned() -> None:
    log = Log("console")
    log.logger.info("leader changed", holder="a")
    log.logger.warning("batch refused", stream="posts")
    first, second = log.text.splitlines()
    assert first.index("holder=") == second.index("stream=")
    assert "\x1b" not in log.text
    assert len(first.split()[0]) == len("12:34:56")


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    configure("info", "auto", terminal)
    structlog.get_logger().info("hello")
    assert "\x1b[" in terminal.getvalue()

    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    configure("info", "auto", plain)
    structlog.get_logger().info("hello")
    assert "\x1b[" not in plain.getvalue()
    assert "hello" in plain.getvalue()


def test_without_a_terminal_auto_is_for_machines() -> None:
    log = Log("auto")
    log.logger.info("hello")
    assert log.lines()[0]["event"] == "hello"


def test_a_log_nobody_can_read_does_not_stop_the_work() -> None:
    log = Log()
    log.stream.close()
    log.logger.info("hello")
    logging.getLogger("library").error("hello")


def listening(level: str = "debug") -> tuple[Log, Events]:
    log, events = Log(level=level), Events()
    LogListener(log.logger).attach(events)
    return log, events


@pytest.mark.spec("E9", "V10")
def test_an_execution_is_told_at_its_start_and_its_end() -> None:
    log, events = listening()
    events.emit(ExecutionStarted("a", "1", 1))
    events.emit(ExecutionSettled("a", "s", "1", "done", 1.23456, 3, 2, 1))
    start, end = log.lines()
    assert (start["level"], start["event"], start["job_name"]) == ("debug", "execution started", "a")
    del end["timestamp"]
    assert end == {
        "level": "info",
        "event": "execution settled",
        "job": "a",
        "status": "done",
        "new": 3,
        "changed": 2,
        "seconds": 1.235,
        "execution": "1",
    }


@pytest.mark.spec("E9")
def test_failures_stand_out() -> None:
    log, events = listening("warning")
    events.emit(ExecutionSettled("a", "s", "1", "done", 1))
    events.emit(ExecutionSettled("a", "s", "1", "waiting", 1, error="timed out"))
    events.emit(ExecutionSettled("a", "s", "1", "dead", 1, error=f"redis://u:{CANARY}@h is gone"))
    told = [(line["level"], line["status"], line["error"]) for line in log.lines()]
    assert told == [("warning", "waiting", "timed out"), ("error", "dead", "redis://u:***@h is gone")]


@pytest.mark.spec("E9")
def test_what_an_operator_should_know_is_told() -> None:
    log, events = listening("info")
    events.emit(LeaderChanged(True, "me"))
    events.emit(LimitSet("account 1", datetime(2026, 1, 1, tzinfo=UTC), "flood wait"))
    events.emit(ExecutionsRescued(2))
    events.emit(BatchRefused("posts", 7))
    events.emit(StepFailed("pruner", "boom"))
    events.emit(BatchKept("posts", 1, 0, 0))
    assert [(line["level"], line["event"]) for line in log.lines()] == [
        ("info", "leader changed"),
        ("info", "limit set"),
        ("warning", "executions rescued"),
        ("warning", "batch refused"),
        ("error", "step failed"),
    ]
    assert not events.failures


@pytest.mark.spec("F1", "F2", "T2")
def test_how_calls_and_channels_fare_is_told_in_words() -> None:
    log, events = listening("info")
    events.emit(CallRetried("harbour", "messages.getHistory", 2, 0.123456, "TimeoutError", "telegram:a"))
    events.emit(RateLimited("telegram", "telegram:a", "messages.getHistory", "harbour", 31.5, "FloodWaitError"))
    events.emit(BreakerMoved("telegram:a", "open", "TimeoutError"))
    events.emit(BreakerMoved("telegram:a", "open", "TimeoutError", elsewhere=True))
    events.emit(BreakerMoved("telegram:a", "closed"))
    events.emit(ModeChosen("telegram:@harbour", "historical", "stale_lpa"))
    events.emit(RunEnded("telegram:@harbour", 7, "historical", "done", 1.23456, 12))
    events.emit(AccountParked("a", "the session was revoked"))
    lines = log.lines()
    assert [(line["level"], line["event"]) for line in lines] == [
        ("warning", "call failed, trying again"),
        ("warning", "told to wait"),
        ("warning", "breaker moved"),
        ("info", "breaker moved"),
        ("info", "mode chosen"),
        ("info", "run ended"),
        ("error", "account parked"),
    ]
    retried = {name: lines[0][name] for name in ("attempt", "delay", "reason", "target")}
    assert retried == {"attempt": 2, "delay": 0.123, "reason": "TimeoutError", "target": "harbour"}
    assert (lines[2]["key"], lines[2]["state"], lines[2]["reason"]) == ("telegram:a", "open", "TimeoutError")
    assert lines[4]["forced"] == "stale_lpa"
    assert "hwm" not in lines[5]
    assert not events.failures
