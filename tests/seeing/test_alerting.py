"""An alert that fires reaches people: a real Prometheus, a real Alertmanager, and a Slack of ours."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from conftest import started
from floodmark.testing.eventually import eventually
from floodmark.testing.web.serving import serve_app
from servers import Alertmanager, Prometheus
from watching import DEPLOY, RULES

SLACK, PAGERDUTY = "/services/T0/B0/secret", "/v2/enqueue"
# What a process shows whose account was lost; nothing else is wrong with it.
SHOWN = """
crawler_scheduler_is_leader 1
crawler_scheduler_worker_pool_size 10
floodmark_accounts_parked {}
"""


class Outside:
    """A process to scrape, a Slack and a PagerDuty, on one port."""

    def __init__(self) -> None:
        self.slack: list[dict[str, Any]] = []
        self.pagerduty: list[dict[str, Any]] = []
        self.is_lost = True
        self.port = 0

    async def scraped(self, _: web.Request) -> web.Response:
        return web.Response(text=SHOWN.format(int(self.is_lost)))

    async def told_slack(self, request: web.Request) -> web.Response:
        self.slack.append(await request.json())
        return web.Response(text="ok")

    async def told_pagerduty(self, request: web.Request) -> web.Response:
        self.pagerduty.append(await request.json())
        return web.json_response({"status": "success", "dedup_key": "1"}, status=202)


@asynccontextmanager
async def outside() -> AsyncIterator[Outside]:
    made, app = Outside(), web.Application()
    app.add_routes(
        [
            web.get("/metrics", made.scraped),
            web.post(SLACK, made.told_slack),
            web.post(PAGERDUTY, made.told_pagerduty),
        ]
    )
    async with serve_app(app) as made.port:
        yield made


def alertmanager_config(folder: Path, port: int) -> dict[str, Any]:
    """Ours, with secrets, less patience, and a PagerDuty on this machine."""
    shutil.copytree(DEPLOY / "alertmanager", folder, dirs_exist_ok=True)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "slack_url").write_text(f"http://127.0.0.1:{port}{SLACK}\n", encoding="utf-8")
    (folder / "secrets" / "pagerduty_routing_key").write_text("a routing key\n", encoding="utf-8")
    text = (folder / "alertmanager.yml").read_text("utf-8")
    config: dict[str, Any] = yaml.safe_load(text.replace("secrets/", f"{folder}/secrets/"))
    config["templates"] = [f"{folder}/{pattern}" for pattern in config["templates"]]
    config["global"] = {"pagerduty_url": f"http://127.0.0.1:{port}{PAGERDUTY}"}
    config["route"] |= {"group_wait": "100ms", "group_interval": "1s"}
    return config


def prometheus_config(scraped: int, alertmanager: str) -> dict[str, Any]:
    target = alertmanager.removeprefix("http://")
    return {
        "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(RULES)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [target]}]}]},
        "scrape_configs": [
            {"job_name": "floodmark", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]},
        ],
    }


@pytest.mark.spec("T10", "T16")
async def test_a_lost_account_is_told_to_slack_and_pagerduty(tmp_path: Path) -> None:
    """And so is that it is over."""
    async with outside() as there:
        config = alertmanager_config(tmp_path / "alertmanager", there.port)
        with await asyncio.to_thread(started, partial(Alertmanager.start, config)) as alertmanager:
            config = prometheus_config(there.port, alertmanager.url)
            with await asyncio.to_thread(started, partial(Prometheus.start, config)):
                await eventually(lambda: there.slack and there.pagerduty)
                there.is_lost = False
                await eventually(lambda: there.slack[-1]["attachments"][0]["color"] == "good")

    [message] = there.slack[0]["attachments"]
    assert message["title"] == "CRITICAL: FloodmarkAccountLost"
    assert message["color"] == "danger"
    assert message["text"].splitlines() == [
        "Lost Telegram accounts: 1",
        "Telegram has revoked or banned 1 of the accounts. Their channels are not read until someone logs in again or"
        " assigns the jobs to another account.",
        "What to do: docs/runbooks/account-lost.md",
    ]
    assert there.slack[-1]["attachments"][0]["title"] == "Resolved: FloodmarkAccountLost"
    page = there.pagerduty[0]
    assert page["routing_key"] == "a routing key"
    assert page["event_action"] == "trigger"
    assert page["payload"]["severity"] == "critical"
    assert page["payload"]["summary"] == "CRITICAL: FloodmarkAccountLost"
