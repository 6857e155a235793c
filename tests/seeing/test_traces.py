"""Traces as a collector on this machine receives them: from what fired an execution to the events that followed."""

import asyncio
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from command_line import CommandLine, environment
from floodmark import Floodmark, SlowDown
from floodmark.errors import Fenced, InvalidInput
from floodmark.model.batch import Batch, Item
from floodmark.model.job import ScheduleType, When
from floodmark.model.outcome import Outcome
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events
from floodmark.observability.tracing import Tracing, tracing_of
from floodmark.repositories.events import EventLog
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.store.tables import job_executions
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, a_lease, change_jobs, rows_of
from floodmark.testing.serving import served
from floodmark.testing.web import Entry, Site, rss, status
from floodmark.wiring.resources import Resources, open_resources
from otlp import Collector, SpanSeen, collecting

EVERY_HOUR = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=3600)
CHATTY = '''
import logging

def chatty(since):
    """Runs on a thread, and logs as any library does."""
    logging.getLogger("chatty").warning("about to look")
    return [{"id": 1}]
'''


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as collector:
        yield collector


def tracing_to(collector: Collector, **settings: Any) -> Tracing:
    chosen = Settings(**{"otel_exporter_otlp_endpoint": collector.url, "hostname": "test", **settings})
    found = tracing_of(chosen, "test-1", Events())
    assert found is not None
    return found


# Across processes


@pytest.mark.spec("V10")
@pytest.mark.thorough
async def test_one_trace_goes_through_scheduler_queue_worker_and_relay(
    collector: Collector, redis_on_postgres: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    async with Site() as site, redis_on_postgres() as resources:
        scheduler, worker = (_command_line(tmp_path / name, resources, collector) for name in ("scheduler", "worker"))
        (worker.folder / "chatty.py").write_text(CHATTY, encoding="utf-8")
        site.xml("/feed", rss([Entry(id=key, link=f"{site.url}/{key}", title=key) for key in "ab"]))
        site.trouble("/feed", status(500))
        jobs = Jobs(resources.database, resources.clock)
        await jobs.add(JobSpec(name="feed", source="feed", target=f"{site.url}/feed", when=EVERY_HOUR))
        await jobs.add(JobSpec(name="chatty", source="python", target="chatty:chatty", when=EVERY_HOUR))
        with scheduler.running("scheduler", "--port", "0"):
            carried = await eventually(lambda: _in_the_queue(resources, 2))
            with worker.running("worker", "--port", "0"):
                await eventually(lambda: len(collector.named("relay")) == 2)
                await eventually(lambda: len(collector.named("execution")) == 2)
        rows = {row["execution_id"]: row for row in await rows_of(resources, job_executions)}
        told = await _entries(resources, "crawler:events")

    assert carried == {execution_id: row["traceparent"] for execution_id, row in rows.items()}
    fires = {span["job"]: span for span in collector.named("fire")}
    assert fires.keys() == {"feed", "chatty"}
    for name, fire in fires.items():
        assert rows[fire["execution_id"]]["traceparent"].startswith(f"00-{fire.trace_id}-{fire.span_id}-")
        calls: list[Any] = [("request", [])] if name == "feed" else []
        kept: Any = ("batch", [("relay", [])])
        assert collector.tree(fire) == ("fire", [("queue", [("execution", [*calls, kept])])])
        assert fire.parent_id == ""
        queue, execution, _, relay = _chain(collector, fire)[1:]
        assert fire.process == relay.process
        assert queue.process == execution.process != fire.process
        assert queue.began <= queue.ended <= execution.began
        assert (execution["source"], execution["attempt"], execution["outcome"]) == (
            "feed" if name == "feed" else "python", 1, "done",
        )  # fmt: skip
    request = collector.named("request")[0]
    assert (request["scope"], request["method"], request.events) == (f"web:127.0.0.1:{site.port}", "get", ("retried",))
    assert {span["new"] for span in collector.named("batch")} == {1, 2}
    assert {span["events"] for span in collector.named("relay")} == {1, 2}
    # Whoever reads the stream of events can go on with the trace.
    read = {fields[b"traceparent"].decode()[3:-3] for fields in told}
    assert read == {f"{span.trace_id}-{span.span_id}" for span in collector.named("relay")}
    assert {resource["service.name"] for resource in collector.resources} == {"floodmark"}

    said = [json.loads(line) for line in worker.said().splitlines() if line.startswith("{")]
    settled = {line["job"]: line["trace_id"] for line in said if line["event"] == "execution settled"}
    assert settled == {name: fire.trace_id for name, fire in fires.items()}
    about = [line for line in said if line["event"] == "about to look"]
    assert [line["trace_id"] for line in about] == [fires["chatty"].trace_id]
    assert [line["span_id"] for line in about] == [_chain(collector, fires["chatty"])[2].span_id]


def _command_line(folder: Path, resources: Resources, collector: Collector) -> CommandLine:
    folder.mkdir()
    return CommandLine(
        folder,
        DATABASE_URL=resources.settings.database_url,
        REDIS_URL=str(resources.settings.redis),
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        PYTHON_MODULES="chatty",
        HTTP_ALLOW_HOSTS="127.0.0.1",
        BACKOFF_BASE_SECONDS="0.01",
    )


async def _entries(resources: Resources, stream: str) -> list[dict[bytes, bytes]]:
    assert resources.redis is not None
    entries: Any = await resources.redis.xrange(stream)
    return [fields for _, fields in entries]


async def _in_the_queue(resources: Resources, count: int) -> dict[str, str]:
    """The context that each entry of the queue carries, once there are so many."""
    entries = await _entries(resources, "crawler:jobs:normal")
    assert len(entries) == count
    return {fields[b"id"].decode(): fields[b"traceparent"].decode() for fields in entries}


def _chain(collector: Collector, span: SpanSeen) -> list[SpanSeen]:
    """A span, its last child, the last child of that, and so on."""
    children = collector.children(span)
    return [span, *(_chain(collector, children[-1]) if children else [])]


# In one process


@pytest.mark.spec("V10")
@pytest.mark.thorough
async def test_a_webhook_goes_on_with_its_senders_trace_through_every_attempt(
    collector: Collector, sqlite_copy: str
) -> None:
    trace_id, sender = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    trouble: list[Exception] = [ValueError("password=hunter2"), SlowDown(timedelta(seconds=1), None, "wait a moment")]
    app = Floodmark(
        Settings(
            database_url=sqlite_copy,
            hostname="test",
            otel_exporter_otlp_endpoint=collector.url,
            otel_exporter_otlp_headers=SecretStr("x-api-key=open%20sesame"),
            execution_retry_base=timedelta(milliseconds=1),
        )
    )

    @app.collector(key="id")
    async def news(since: Any) -> AsyncIterator[dict[str, int]]:
        if trouble:
            raise trouble.pop(0)
        yield {"id": 1}

    async with served(app) as (resources, url):
        job = await Jobs(resources.database, resources.clock).get("news")
        await change_jobs(resources, [job.job_id], trigger_webhook="/news/{place}")
        async with aiohttp.ClientSession() as session:
            headers = {"traceparent": f"00-{trace_id}-{sender}-01"}
            async with session.post(f"{url}/api/v2/triggers/webhook/news/here", headers=headers) as answer:
                assert answer.status == 202
        await eventually(lambda: _is_relayed(resources))

    assert {span.trace_id for span in collector.spans} == {trace_id}
    server = collector.named("POST /api/v2/triggers/webhook/{path}")[0]
    assert (server.parent_id, server.attributes["http.response.status_code"]) == (sender, 202)
    attempt: Any = ("queue", [("execution", [])])
    success: Any = ("queue", [("execution", [("batch", [("relay", [])])])])
    assert collector.tree(server) == (server.name, [("trigger", [attempt, attempt, success])])
    assert collector.named("trigger")[0]["subject"] == "/news/here"
    executions = collector.named("execution")
    assert [(span["attempt"], span["outcome"], span.is_failed) for span in executions] == [
        (1, "retry", True),
        (2, "snooze", False),
        (2, "done", False),
    ]
    assert executions[0].message == "ValueError: password=***"
    assert {headers["x-api-key"] for headers in collector.headers} == {"open sesame"}


async def _is_relayed(resources: Resources) -> bool:
    return await EventLog(resources.database, resources.clock).last_position() == 1


@pytest.mark.spec("V10")
async def test_a_span_ends_however_its_execution_does(collector: Collector) -> None:
    tracing, began = tracing_to(collector), asyncio.Event()
    first, second = (tracing.trace_leases([a_lease(execution_id="e" * 32, attempt=n)])[0] for n in (1, 2))
    assert first.traceparent != second.traceparent

    async def hangs() -> Outcome | None:
        began.set()
        await asyncio.Event().wait()
        return None

    async def loses() -> Outcome | None:
        async def refuse(*_: object) -> Any:
            raise Fenced("passed on")

        with suppress(Fenced):
            await tracing.batch(second, Batch([Item("a", {})]), refuse)
        return None

    running = asyncio.create_task(tracing.execution(first, hangs()))
    await began.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert await tracing.execution(second, loses()) is None
    await tracing.close()

    queues, (cancelled, lost) = collector.named("queue"), collector.named("execution")
    # Nobody traced how it was fired: both attempts are in one trace all the same.
    assert [span.parent_id for span in queues] == ["", ""]
    assert len({span.trace_id for span in collector.spans}) == 1
    assert [cancelled.parent_id, lost.parent_id] == [span.span_id for span in queues]
    assert (cancelled.is_failed, cancelled.attributes["error.type"]) == (True, "CancelledError")
    assert (lost.is_failed, lost["outcome"]) == (True, "lost")
    assert [(span.name, span.is_failed) for span in collector.children(lost)] == [("batch", True)]


async def test_what_is_not_sampled_travels_as_such_and_is_not_sent(collector: Collector) -> None:
    tracing = tracing_to(collector, traces_sampled=0)
    (lease,) = tracing.trace_leases([a_lease()])
    with tracing.relay([lease.traceparent, None]) as going_on:
        assert [int(context[-2:], 16) & 1 for context in going_on.values() if context] == [0]
    # Calls that belong to nothing, such as those that keep a session open, make no trace.
    assert await tracing.request("telegram:reader1", "ping", "", asyncio.sleep(0, "pong")) == "pong"
    await tracing.close()
    assert collector.spans == []


async def test_a_collector_that_is_away_is_told_of_once(sqlite_copy: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(database_url=sqlite_copy, otel_exporter_otlp_traces_endpoint="http://127.0.0.1:9/v1/traces")
    async with open_resources(settings) as resources:
        assert resources.tracing is not None
        assert resources.tracing.trace_leases([a_lease()])[0].traceparent
    # The library tries again and again, and would say so each time.
    assert len([line for line in caplog.records if line.name.startswith("opentelemetry")]) == 1


# Off


def test_whoever_wants_traces_and_has_not_installed_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("floodmark.observability.tracing.version", missing)
    with pytest.raises(InvalidInput, match="opentelemetry-sdk is not installed") as told:
        tracing_of(Settings(tracing="otlp"), "test-1", Events())
    assert "pip install 'floodmark[otel]'" in str(told.value.hint)
    assert tracing_of(Settings(), "test-1", Events()) is None
    assert tracing_of(Settings(tracing="off", otel_exporter_otlp_endpoint="http://x"), "test-1", Events()) is None


@pytest.mark.spec("V10")
@pytest.mark.thorough
def test_off_nothing_of_it_is_imported(sqlite_copy: str) -> None:
    """Some libraries look for OpenTelemetry by themselves, but nobody for what makes spans and sends them."""
    code = """
import asyncio, sys
who = []
class Watching:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "opentelemetry":
            frame = sys._getframe(1)
            while frame.f_globals["__name__"].startswith("importlib"):
                frame = frame.f_back
            who.append(frame.f_globals["__name__"])
sys.meta_path.insert(0, Watching())
from floodmark import Floodmark
from floodmark.settings import Settings
from floodmark.observability.events import EventsRelayed
app = Floodmark(Settings(database_url=sys.argv[1]))
@app.collector(every="1h", key="id")
async def news(since):
    yield {"id": 1}
async def main():
    stop = asyncio.Event()
    app.internal_events.listen(EventsRelayed, lambda event: stop.set())
    await app.serve(stop=stop, port=0)
asyncio.run(main())
making = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "google.protobuf", "floodmark.observability.otel")
print("loaded:", *[name for name in sys.modules if name.startswith(making)])
print("asked:", *[name for name in who if name.startswith("floodmark")])
"""
    command = [sys.executable, "-c", code, sqlite_copy]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert told.stdout.splitlines()[-2:] == ["loaded:", "asked:"]
