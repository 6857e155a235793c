"""The dashboards are what their generator writes, and ask for nothing that does not exist."""

import subprocess
import sys

import pytest
import yaml

from floodmark.observability.metrics.catalogue import CATALOGUE
from watching import DEPLOY, alert_queries, dashboards, names_in, panel_queries, panels, tool

# Not ours: how Prometheus fares with its targets, and when the Pushgateway last heard of one.
OF_PROMETHEUS = {"FloodmarkDown", "floodmark:gone"}
KNOWN = frozenset(CATALOGUE) | {"floodmark:queue_depth:sum"}


def test_the_files_are_current() -> None:
    command = [sys.executable, "-W", "error", str(DEPLOY / "dashboards.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.spec("T10")
def test_collection_has_the_six_panels() -> None:
    [(_, collection)] = [item for item in dashboards().items() if item[1]["title"] == "Floodmark: collection"]
    assert [panel["title"] for panel in collection["panels"]] == [
        "Parsing rate by mode (5 m)",
        "Latency p95",
        "Empty ticks",
        "Max HWM age",
        "Forced historical over 24 h",
        "Scheduler freshness",
    ]
    ages = collection["panels"][3]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in ages] == [None, 43_200, 86_400]


@pytest.mark.parametrize("name", ["collection", "operations"])
def test_every_panel_is_explained_and_in_a_place_of_its_own(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboards()[name]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies on another"
        taken |= cells
    for where, panel in panels():
        assert panel["description"].endswith("."), where
        assert panel["fieldConfig"]["defaults"]["unit"], where
        assert panel["datasource"]["uid"] == "${source}", where
        assert panel["targets"], where


def test_dashboards_ask_for_metrics_that_exist() -> None:
    for where, expr in [*panel_queries(), *alert_queries()]:
        assert names_in(expr, KNOWN) or where in OF_PROMETHEUS, f"{where}: {expr}"


@pytest.mark.spec("T9", "F7", "V9")
def test_every_metric_is_shown_or_called_a_detail() -> None:
    asked = " ".join(expr for _, expr in [*panel_queries(), *alert_queries()])
    shown = names_in(asked, frozenset(CATALOGUE))
    details = {name for name, described in CATALOGUE.items() if described.where == "detail"}
    assert sorted(set(CATALOGUE) - shown - details) == [], "on no dashboard and in no alert"
    # The variable of the dashboards is made from it.
    assert sorted(shown & details - {"floodmark_info"}) == [], "shown, so no detail"


def test_promtool_understands_every_query(tmp_path_factory: pytest.TempPathFactory) -> None:
    rules = [{"record": f"query:{n}", "expr": asked.expr} for n, asked in enumerate(panel_queries())]
    path = tmp_path_factory.mktemp("queries") / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    tool("promtool", "check", "rules", path)


def test_grafana_finds_the_files() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "floodmark.yml").read_text("utf-8"))["providers"]
    [source] = yaml.safe_load((provisioning / "datasources" / "floodmark.yml").read_text("utf-8"))["datasources"]
    assert provider["type"] == "file"
    assert source["type"] == "prometheus"
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    # Otherwise $__rate_interval is too short for two samples.
    assert source["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]
