"""Metrics pushed to a real Pushgateway: from one process, from several as one, and when there is trouble."""

import asyncio
import re
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from command_line import CommandLine
from command_line import eventually as eventually_outside
from conftest import started
from floodmark import Floodmark
from floodmark.errors import InvalidInput
from floodmark.observability.events import ExecutionSettled, MetricsPushed
from floodmark.outbound.push import require_gateway
from floodmark.settings import Settings
from floodmark.testing.eventually import eventually
from floodmark.testing.serving import served
from servers import Pushgateway

pytestmark = pytest.mark.spec("F6")


@pytest.fixture(scope="module")
def running_gateway() -> Iterator[Pushgateway]:
    with started(Pushgateway.start) as server:
        yield server


@pytest.fixture
def gateway(running_gateway: Pushgateway) -> Pushgateway:
    running_gateway.revive()
    return running_gateway


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def pushed(gateway: Pushgateway, name: str) -> list[Sample]:
    """What the gateway shows under this name, of processes of Floodmark."""
    families = text_string_to_metric_families(get(f"{gateway.url}/metrics"))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return [sample for sample in samples if sample.labels.get("job") == "floodmark"]


def total(gateway: Pushgateway, name: str) -> float:
    return sum(sample.value for sample in pushed(gateway, name))


@pytest.mark.thorough
async def test_a_process_pushes_survives_a_gateway_that_is_away_and_tidies_up(
    gateway: Pushgateway, sqlite_copy: str
) -> None:
    settings: dict[str, Any] = {"metrics_mode": "push", "pushgateway_url": gateway.url, "metrics_push_interval": 0.1}
    # A name with a slash cannot stand in a path as it is.
    app = Floodmark(Settings(database_url=sqlite_copy, hostname="rack/7", **settings))
    seen: list[MetricsPushed] = []
    settled: list[ExecutionSettled] = []
    app.internal_events.listen(MetricsPushed, seen.append)
    app.internal_events.listen(ExecutionSettled, settled.append)

    @app.collector(every="1s", key="id")
    async def ticks(since: object) -> AsyncIterator[dict[str, Any]]:
        yield {"id": len(settled)}

    async with served(app) as (resources, url):
        assert resources.name.startswith("rack/7-")
        await eventually(lambda: total(gateway, "crawler_scheduler_jobs_executed_total") >= 1)
        [info] = pushed(gateway, "floodmark_info")
        assert (info.labels["instance"], info.value) == (resources.name, 1)

        with pytest.raises(HTTPError, match="404") as told:
            await asyncio.to_thread(get, f"{url}/metrics")
        assert "they are pushed" in told.value.read().decode()

        gateway._own().end(signal.SIGKILL)
        await eventually(lambda: seen[-1].error is not None)
        ended = len(settled)
        await eventually(lambda: len(settled) > ended)
        assert resources.registry.get_sample_value("floodmark_pushes_total", {"result": "failed"})

        await asyncio.to_thread(gateway.start_again)
        await eventually(lambda: seen[-1].error is None)
        await eventually(lambda: total(gateway, "floodmark_pushes_total") > 0)
        assert total(gateway, "floodmark_last_push_timestamp_seconds") > 1.7e9
    assert pushed(gateway, "floodmark_info") == [], "a process that left is not shown any more"
    assert not app.internal_events.failures


@pytest.mark.thorough
def test_worker_processes_are_pushed_as_one(
    gateway: Pushgateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_clean: str
) -> None:
    monkeypatch.chdir(tmp_path)
    push = {"METRICS_MODE": "both", "PUSHGATEWAY_URL": gateway.url, "METRICS_PUSH_INTERVAL": "0.2"}
    cli = CommandLine(tmp_path, DATABASE_URL=pg_clean, SHUTDOWN_GRACE="5", **push)
    with cli.running("worker", "--processes", "2", "--slots", "3", "--port", "0") as supervisor:
        eventually_outside(lambda: total(gateway, "crawler_scheduler_worker_pool_size") == 6)
        cli.good("add", "python", "feeds:news", "--name", "news")
        ran: list[str] = []
        while len(set(ran)) < 2:
            ran.append(cli.good("run", "news", "--wait", "--json").json["worker"])
            assert len(ran) < 50, "one process does all the work"
        eventually_outside(lambda: total(gateway, "crawler_scheduler_jobs_executed_total") == len(ran))
        instances = {sample.labels["instance"] for sample in pushed(gateway, "floodmark_info")}
        assert len(instances) == 1, "the supervisor pushes, and nobody else"
        eventually_outside(lambda: total(gateway, "floodmark_pushes_total") > 1)
        assert f"pushed to  {gateway.url}" in cli.said()
        [page] = re.findall(r"metrics +(http\S+)/metrics", cli.said())
        assert "floodmark_pushes_total" in get(f"{page}/metrics")
        supervisor.terminate()
        assert supervisor.wait(120) == 0, cli.said()
    assert pushed(gateway, "floodmark_info") == []


def test_pushing_needs_to_know_where_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path)
    answer = cli("--set", "METRICS_MODE=push", "up", "--seconds", "1")
    assert answer.code != 0
    assert "PUSHGATEWAY_URL is not set" in answer.err
    assert "PUSHGATEWAY_URL=" in answer.err
    with pytest.raises(InvalidInput, match="no valid host"):
        require_gateway(Settings(metrics_mode="push", pushgateway_url="http://a b:9091"))
