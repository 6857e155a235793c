"""Alerts fire when they should and are quiet when they should not, and each leads to a page that helps."""

import re
from functools import cache
from typing import Any

import pytest
import yaml

from watching import DEPLOY, ROOT, RULES, alerts, tool

PROMETHEUS, ALERTMANAGER = DEPLOY / "prometheus", DEPLOY / "alertmanager"
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
RUNBOOKS = ROOT / "docs" / "runbooks"


_HWM_AGE = "min by (channel_id) (parser_hwm_age_seconds unless on (job, instance) floodmark:gone)"


@pytest.mark.spec("T10")
@pytest.mark.thorough
def test_rules_fire_and_are_quiet() -> None:
    # The syntax only: the token that it names is where Prometheus runs, not here.
    tool("promtool", "check", "config", "--syntax-only", "prometheus.yml", folder=PROMETHEUS)
    tool("promtool", "check", "rules", RULES)
    tool("promtool", "test", "rules", *TESTS)


@pytest.mark.spec("T10")
@pytest.mark.parametrize(
    ("alert", "text"),
    [
        (
            "FloodmarkHwmOld",
            f"({_HWM_AGE} > 86400) * on (channel_id) group_left (channel)"
            f" topk by (channel_id) (1, floodmark_channel_info) or on (channel_id) ({_HWM_AGE} > 86400)",
        ),
        (
            "FloodmarkSchedulerStale",
            "time() - max(scheduler_last_tick_ts_seconds) > 2 * (max(scheduler_interval_seconds) or vector(60))",
        ),
        (
            "FloodmarkParsingSlow",
            "histogram_quantile(0.95, sum by (le, mode) (rate(parser_run_duration_seconds_bucket[5m]))) > 60",
        ),
    ],
)
def test_the_three_alerts_of_the_ledger(alert: str, text: str) -> None:
    assert alerts()[alert]["expr"] == text


@pytest.mark.parametrize("name", alerts())
def test_every_alert_is_tested_both_ways(name: str) -> None:
    """A file that promtool was not given, or an expectation that was left out, would look like success."""
    expected = [one["exp_alerts"] for one in _tests() if one["alertname"] == name]
    assert any(expected), "no test that it fires"
    assert not all(expected), "no test that it is quiet"


@pytest.mark.parametrize(("name", "rule"), alerts().items())
def test_every_alert_says_how_bad_it_is_and_what_to_do(name: str, rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page = ROOT / rule["annotations"]["runbook_url"]
    assert page.parent == RUNBOOKS
    assert page.read_text("utf-8").startswith(f"# {name}\n")
    line = f"| [{name}]({page.name}) | {rule['labels']['severity']} |"
    assert line in (RUNBOOKS / "README.md").read_text("utf-8")


def test_every_runbook_belongs_to_an_alert() -> None:
    known = {page.name for page in RUNBOOKS.glob("*.md")}
    linked = {(RUNBOOKS / rule["annotations"]["runbook_url"]).name for rule in alerts().values()}
    assert known == linked | {"README.md"}


@pytest.mark.spec("T16")
def test_alertmanager_takes_the_configuration() -> None:
    said = tool("amtool", "check-config", "alertmanager.yml", folder=ALERTMANAGER)
    assert "SUCCESS" in said
    assert routed("critical") == "pagerduty,slack"
    assert routed("warning") == "slack"
    text = (ALERTMANAGER / "alertmanager.yml").read_text("utf-8")
    assert set(re.findall(r"^ +- (\w+_file):", text, re.MULTILINE)) == {"api_url_file", "routing_key_file"}


def test_alertmanager_knows_the_alerts_it_inhibits() -> None:
    config = yaml.safe_load((ALERTMANAGER / "alertmanager.yml").read_text("utf-8"))
    matchers = [
        matcher
        for rule in config["inhibit_rules"]
        for side in ("source", "target")
        for matcher in rule[f"{side}_matchers"]
    ]
    named = {name for matcher in matchers for name in re.findall(r"Floodmark\w+", matcher)}
    assert named <= set(alerts())


def routed(severity: str) -> str:
    """Who is told of an alert."""
    said = tool(
        "amtool",
        "config",
        "routes",
        "test",
        "--config.file=alertmanager.yml",
        f"severity={severity}",
        folder=ALERTMANAGER,
    )
    return said.splitlines()[-1]


@cache
def _tests() -> list[dict[str, Any]]:
    files = [yaml.safe_load(path.read_text("utf-8")) for path in TESTS]
    for file in files:
        assert [str((PROMETHEUS / "tests" / name).resolve()) for name in file["rule_files"]] == [str(RULES)]
    return [one for file in files for test in file["tests"] for one in test["alert_rule_test"]]
