"""Everything that is shown or alerted on is there, while Floodmark works and has trouble of every kind.

Floodmark reads channels and sites, all of them in this process; a real Prometheus scrapes it, and a real Pushgateway to
which it pushes. Then every query of every panel and alert must have an answer.
"""

import asyncio
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2
import pytest
import yaml

from conftest import started
from floodmark import Job
from floodmark.model.audit import Actor
from floodmark.model.spec import JobSpec
from floodmark.model.watches import WatchFields
from floodmark.observability.events import BreakerMoved, PagesVisited
from floodmark.observability.metrics.catalogue import CATALOGUE, Described
from floodmark.operations.local import LocalOperations
from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import LoopbackTelegram
from floodmark.testing.telegram.live_channels import LiveChannels, LivePlan
from floodmark.testing.web import Site
from floodmark.testing.web.behaviours import status
from floodmark.triggers.parsing import when_of
from servers import Prometheus, Pushgateway
from telegram_desk import Desk, working
from watching import DEPLOY, RULES, Asked, alert_queries, panel_queries

pytest_plugins = ("telegram_fixtures",)

HISTORY = "messages.getHistory"
SCRAPE_SECONDS = 2
LOST, WAITS = "reader2", "reader3"
HOST = "shop.test"
# What no run brings about: scans need a browser, these others a step that fails, somebody to notify, a forging hub.
NOT_CAUSED = {"floodmark_scans_total", "floodmark_step_failures_total", "floodmark_notifications_total"}
NOT_CAUSED |= {"floodmark_store_retries_total", "floodmark_hints_refused_total"}
# These channels post no files.
NOT_CAUSED |= {"floodmark_media_files_total", "floodmark_media_bytes_total"}
# What Prometheus and the Pushgateway say of themselves.
# With a colon: made by a rule.
OF_OTHERS = re.compile(r"up$|scrape_|push_(failure_)?time_seconds$|.*:")
QUICK: dict[str, Any] = {
    "circuit_breaker_failure_threshold": 3,
    "circuit_breaker_open_timeout_seconds": 1.0,
    "scheduler_cb_threshold": 3,
    "scheduler_cb_timeout": "1s",
    "metrics_mode": "both",
    "metrics_push_interval": f"{SCRAPE_SECONDS}s",
    "web_domain_delay": timedelta(),
    "rate_limit_strategy": "fixed",
}


class Asker:
    """The HTTP API of a Prometheus."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._url = prometheus.url

    def value(self, expr: str) -> float | None:
        """The largest number that a query answers with; None if it has no answer, or none that is a number."""
        found = self._get("query", query=expr)["result"]
        numbers = [float(series["value"][1]) for series in found]
        return max((number for number in numbers if not math.isnan(number)), default=None)

    def unanswered(self, queries: Sequence[Asked]) -> list[Asked]:
        """Those without an answer."""
        return [asked for asked in queries if self.value(asked.expr) is None]

    def names(self, job: str) -> set[str]:
        """The names of all series of a job."""
        asked = {"match[]": f'{{job="{job}"}}'}
        return set(self._get("label/__name__/values", **asked))

    def alerts(self) -> set[str]:
        """Those that fire, or are about to."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"]}

    def _get(self, what: str, **asked: str) -> Any:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]


@pytest.fixture
async def living(no_config_of_another_server: None) -> AsyncIterator[LiveChannels]:
    """Four channels with posts every second."""
    made = LiveChannels(LivePlan(channels=4, rate=2, history=150, began=time.time()))
    going_on = asyncio.create_task(made.run())
    yield made
    going_on.cancel()
    await asyncio.wait({going_on})


@pytest.fixture
def gateway() -> Iterator[Pushgateway]:
    with started(Pushgateway.start) as server:
        yield server


@pytest.mark.spec("T9", "T10", "F6", "F7", "V9")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_every_panel_and_every_alert_has_something_to_show(
    living: LiveChannels, gateway: Pushgateway, sqlite_copy: str
) -> None:
    async with (
        LoopbackTelegram(living.backend) as telegram,
        Site() as site,
        working(
            telegram,
            sqlite_copy,
            listen=(BreakerMoved, PagesVisited),
            pushgateway_url=gateway.url,
            notify_webhook_url=site.at(HOST, "/hook"),
            sinks="archive=webhook, broken=webhook",
            foreign={f"SINK_{name}_URL": site.at(HOST, f"/{name}") for name in ("ARCHIVE", "BROKEN")},
            **{**QUICK, **site.settings(HOST)},
        ) as desk,
        watched(desk, gateway) as prometheus,
    ):
        site.always("/ARCHIVE", status(204))
        site.always("/hook", status(204))
        site.always("/BROKEN", status(500))
        operations = LocalOperations(desk.resources, Actor(who="tester", via="test"))
        await operations.add_watch(WatchFields(name="posts", query="still", notify=("webhook",)))
        await asyncio.gather(read_channels(desk, living, telegram), crawl(desk, site), be_triggered(desk))
        left = [*panel_queries(), *alert_queries()]

        async def unanswered() -> bool:
            # A rate needs something new between two looks, whichever channel lives on by itself.
            for channel in living.channels:
                channel.post("still here")
            # There is nothing new to be asked before the next scrape.
            await asyncio.sleep(SCRAPE_SECONDS)
            left[:] = await asyncio.to_thread(prometheus.unanswered, left)
            assert not left, "\n".join(f"{where}: {expr}" for where, expr in left)
            return True

        await eventually(unanswered)
        due = {"FloodmarkAccountLost", "FloodmarkDeadLetters"}
        # The leader counts them every fifteen seconds, and less often when counting takes long.
        await eventually(partial(fire, prometheus, due))
        # What was scraped is pushed a moment later.
        await eventually(partial(names_are_right, prometheus))


@asynccontextmanager
async def watched(desk: Desk, gateway: Pushgateway) -> AsyncIterator[Asker]:
    """A Prometheus with our configuration, for these two instead, and in a hurry."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), f"{SCRAPE_SECONDS}s")
    config["rule_files"] = [str(RULES)]
    del config["alerting"]
    targets = {"floodmark": desk.url, "pushgateway": gateway.url}
    config["scrape_configs"] = [one for one in config["scrape_configs"] if one["job_name"] in targets]
    for scraped in config["scrape_configs"]:
        scraped.pop("dns_sd_configs", None)
        scraped["static_configs"] = [{"targets": [targets[scraped["job_name"]].removeprefix("http://")]}]
    server = await asyncio.to_thread(started, partial(Prometheus.start, config))
    try:
        yield Asker(server)
    finally:
        await asyncio.to_thread(server.stop)


async def read_channels(desk: Desk, living: LiveChannels, telegram: LoopbackTelegram) -> None:
    """Read channels every second, through everything that Telegram can do to us."""
    for account in ("reader1", LOST):
        await desk.account(account)
    first, second, third, fourth = (f"@{channel.username}" for channel in living.channels)
    job = await desk.job(first, account="reader1", when=when_of(every="1s"))
    await runs(desk, job, 2)
    await told_to_wait(telegram)
    await forced(desk, await desk.job(third, account="reader1"))
    await broken_off(desk, telegram)
    await unfinished(desk, living, telegram)
    lost = await desk.job(second, account=LOST)
    await desk.run(lost)
    telegram.revoke(LOST)
    await desk.ask(lost)
    assert (await desk.run(await desk.job("@nobody_here", account="nobody"))).state == "dead"
    await be_hinted(desk, fourth)


async def be_hinted(desk: Desk, target: str) -> None:
    """An adaptive job runs, and gets a hint by a webhook."""
    adaptive = {"when": when_of(adaptive=True), "budget": "default", "trigger_webhook": "/hints"}
    await runs(desk, await desk.job(target, account="reader1", **adaptive), 2)
    async with httpx2.AsyncClient(base_url=f"{desk.url}/api/v2", timeout=120, trust_env=False) as client:
        taken = await client.post("/triggers/webhook/hints")
        assert len(taken.json()["hinted"]) == 1, taken.text


async def runs(desk: Desk, job: Job, count: int) -> None:
    """Wait until a job has come to its end so often."""

    async def ended() -> bool:
        found = await desk.history.get_executions_by_schedule(job.job_id)
        return sum(execution.state == "done" for execution in found) >= count

    await eventually(ended)


async def told_to_wait(telegram: LoopbackTelegram) -> None:
    """A flood wait, and a connection that breaks, so that a call is made again."""
    telegram.flood(HISTORY, seconds=1, account="reader1")
    telegram.drop(method=HISTORY, after=1)
    await eventually(lambda: {"FLOOD_WAIT_1", "drop"} <= {call.result for call in telegram.calls(HISTORY)})


async def forced(desk: Desk, job: Job) -> None:
    """A channel that seems to have been left alone for more than a day is read historically."""
    assert (await desk.run(job)).state == "done"
    await desk.change_watermark(job, last_checked_at=datetime.now(UTC) - timedelta(hours=25))
    assert (await desk.run(job)).state == "done"


async def broken_off(desk: Desk, telegram: LoopbackTelegram) -> None:
    """Telegram hangs up until the breaker opens, and is well again."""
    telegram.accept_and_close()
    telegram.disconnect()
    await eventually(lambda: opened(desk, "telegram:reader1"))
    telegram.heal()


async def unfinished(desk: Desk, living: LiveChannels, telegram: LoopbackTelegram) -> None:
    """A run that waits in the middle of a history, for longer than the test lasts: only such a one has a mark."""
    living.backend.channel("quarry").fill(250)
    living.backend.account(WAITS)
    await desk.account(WAITS)
    telegram.flood(HISTORY, seconds=3600, account=WAITS, after=2)
    await desk.reaches(await desk.ask(await desk.job("@quarry", account=WAITS)), "waiting")


async def crawl(desk: Desk, site: Site) -> None:
    """Crawl a site that is in trouble for a while, so that its breaker opens."""
    site.page("/", "Welcome", links=[*(f"/{n}" for n in range(6)), "/private"])
    # A gap that stays.
    site.page("/private", "Private")
    site.always("/private", status(403))
    for n in range(6):
        site.page(f"/{n}", f"Page {n}")
        site.trouble(f"/{n}", status(503))
    operations = LocalOperations(desk.resources, Actor(who="tester", via="test"))
    await operations.add_job(JobSpec(source="web", target=site.at(HOST, "/"), when=when_of(every="1s")))
    await eventually(lambda: opened(desk, f"web:{HOST}:{site.port}"))
    await eventually(lambda: sum(e.counts.get("unchanged", 0) for e in desk.happened(PagesVisited)) > 0)


async def be_triggered(desk: Desk) -> None:
    """A webhook fires a job, again and again."""
    job = {"source": "telegram", "target": "@trams", "trigger_webhook": "/tides", "account": "reader1"}
    async with httpx2.AsyncClient(base_url=f"{desk.url}/api/v2", timeout=120, trust_env=False) as client:
        made = await client.post("/jobs", json=job)
        assert made.status_code == 201, made.text
        taken = await client.post("/triggers/webhook/tides")
        assert taken.json()["matched"] == 1, taken.text
        wanted = {"pattern": "/signed", "secret": "a secret of enough length"}
        signed = await client.post("/triggers/webhooks", json=wanted)
        assert signed.status_code == 201, signed.text
        forged = {"X-Floodmark-Timestamp": str(int(time.time())), "X-Floodmark-Signature": "v2=00"}
        assert (await client.post("/triggers/webhook/signed", headers=forged)).status_code == 401


def opened(desk: Desk, key: str) -> bool:
    """Whether this breaker has been open."""
    return any(moved.domain == key and moved.state == "open" for moved in desk.happened(BreakerMoved))


async def fire(prometheus: Asker, due: set[str]) -> bool:
    """Whether these alerts fire, or are about to."""
    await asyncio.sleep(SCRAPE_SECONDS)
    return due <= await asyncio.to_thread(prometheus.alerts)


async def names_are_right(prometheus: Asker) -> bool:
    """All of the catalogue is there, scraped as well as pushed, and nothing besides."""
    await asyncio.sleep(SCRAPE_SECONDS)
    for job in ("floodmark", "floodmark-pushed"):
        exported = {name for name in await asyncio.to_thread(prometheus.names, job) if not OF_OTHERS.match(name)}
        described = {name for name, one in CATALOGUE.items() if exported & series_of(one)}
        assert sorted(set(CATALOGUE) - described - NOT_CAUSED) == [], f"{job}: described, but not there"
        assert sorted(exported.difference(*map(series_of, CATALOGUE.values()))) == [], f"{job}: not described"
    return True


def series_of(metric: Described) -> set[str]:
    """The names of its series."""
    if metric.kind != "histogram":
        return {metric.name}
    return {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
