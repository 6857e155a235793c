"""What is in deploy/ for whoever watches an installation: the queries of the dashboards, and the rules."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from servers import ServerMissingError, find_program
from skipping import not_tested

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules" / "floodmark.yml"
# Of what is exported, or made from it by a rule.
_NAME = re.compile(r"[a-z][a-z0-9_:]*(?=[\s{)\[]|$)")
_VARIABLES = {"$job": "floodmark", "$__rate_interval": "1m"}
_COMPARISON = re.compile(r"(?<= )(>|<|==)(?= )")


class Asked(NamedTuple):
    """A query, and where it stands."""

    where: str
    expr: str


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards as they are committed, by the names of their files."""
    files = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every panel that shows something, with where it is."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                yield f"{name}: {panel['title']}", panel


def panel_queries() -> list[Asked]:
    """What the panels ask, with every variable filled in."""
    return [Asked(where, _filled(target["expr"])) for where, panel in panels() for target in panel["targets"]]


@cache
def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in _rules() if "alert" in rule}


def alert_queries() -> list[Asked]:
    """What the rules ask, so that it has an answer whether or not a threshold is passed."""
    return [Asked(rule.get("alert") or rule["record"], _COMPARISON.sub(r"\1 bool", rule["expr"])) for rule in _rules()]


def names_in(expr: str, known: frozenset[str]) -> set[str]:
    """The metrics of this list that a query is about; the series of a histogram are its own."""
    found = set(_NAME.findall(expr))
    return {name for name in known if found & {name, f"{name}_bucket", f"{name}_sum", f"{name}_count"}}


def tool(name: str, *arguments: str | Path, folder: Path = DEPLOY) -> str:
    """Run promtool or amtool, which must be content; what it said."""
    try:
        program = find_program(name)
    except ServerMissingError as missing:
        not_tested(str(missing))
    done = subprocess.run(
        [program, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"{name} {' '.join(map(str, arguments))}:\n{done.stdout}", pytrace=False)
    return done.stdout


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _filled(expr: str) -> str:
    for name, value in _VARIABLES.items():
        expr = expr.replace(name, value)
    return expr
