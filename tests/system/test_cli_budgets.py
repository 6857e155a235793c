"""`floodmark budgets` and adaptive jobs as they are typed, here and on a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api_process import api_process
from command_line import CommandLine

SITE, FEED = "https://example.com/", "https://example.com/feed.xml"


@pytest.fixture(params=["here", "there"])
def cli(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> Iterator[CommandLine]:
    """Commands on the database itself, and through a server."""
    monkeypatch.chdir(tmp_path)
    here = CommandLine.installed(tmp_path, migrated_sqlite)
    if request.param == "here":
        yield here
        return
    with api_process(f"sqlite:///{tmp_path}/.floodmark/floodmark.db") as url:
        here.settings = {"FLOODMARK_URL": url}
        yield here


@pytest.mark.spec("B2", "V4")
@pytest.mark.thorough
def test_budgets_are_set_listed_shown_and_removed(cli: CommandLine) -> None:
    assert "No budgets yet." in cli.good("budgets").out
    cli.refused("budgets", "set", "news", says="needs a number of requests")
    cli.refused("budgets", "set", "news", "--per-minute", "0", says="requests")
    cli.refused("budgets", "set", "news", "--per-minute", "1", "--per-week", "2", says="contradict")
    assert "Created news: 30 a minute" in cli.good("budgets", "set", "news", "--per-minute", "30").out
    changed = cli.good("budgets", "set", "news", "--max-delay", "2h", "--fairness", "0", "--json").json
    assert (changed["requests"], changed["max_delay_seconds"], changed["fairness"]) == (30, 7200, 0)
    assert "Unchanged: news" in cli.good("budgets", "set", "news", "--per-minute", "30").out
    cli.refused("budgets", "set", "news", "--clear", "fairness", says="is not a field that can be cleared")
    weekly = cli.good("budgets", "set", "news", "--per-week", "50000", "--clear", "max-delay", "--json").json
    assert (weekly["requests"], weekly["period"], weekly["max_delay_seconds"]) == (50000, "week", None)

    listed = cli.good("budgets").out
    assert "50,000 a week" in listed
    assert "automatic" in listed
    assert "50,000 a week" in cli.good("budgets", "show", "news").out
    assert [row["name"] for row in cli.good("budgets", "ls", "--json").json] == ["news"]

    cli.good("add", "web", SITE, "--name", "site", "--adaptive", "--budget", "news")
    cli.refused("budgets", "rm", "news", "--yes", says="used by site")
    cli.good("edit", "site", "--every", "1h", "--clear", "budget")
    assert "Would remove" in cli.good("budgets", "rm", "news", "--dry-run").out
    assert "Removed news." in cli.good("budgets", "rm", "news", "--yes").out
    cli.refused("budgets", "show", "news", says="there is no budget 'news'")


@pytest.mark.spec("B1", "T14", "V4")
@pytest.mark.thorough
def test_a_job_is_added_adaptive_and_edited(cli: CommandLine) -> None:
    cli.refused("add", "feed", FEED, "--adaptive", "--every", "1h", says="contradict each other")
    cli.refused("add", "feed", FEED, "--adaptive", "--budget", "news", says="there is no budget 'news'")
    added = cli.good("add", "feed", FEED, "--name", "feed", "--adaptive", "--max-delay", "1h", "--weight", "2")
    assert "adaptive" in added.out
    assert "default" in added.out
    job = cli.good("show", "feed", "--json").json["job"]
    assert (job["budget"], job["max_delay_seconds"], job["weight"]) == ("default", 3600, 2)
    assert "default; at least every 1 h; weight 2" in cli.good("show", "feed").out
    assert "adaptive" in cli.good("ls").out
    assert "It is adaptive, and not planned yet." in cli.good("next", "feed").out

    assert "adaptive -> every 5 min" in cli.good("edit", "feed", "--every", "5m", "--clear", "max-delay").out
    job = cli.good("show", "feed", "--json").json["job"]
    assert (job["budget"], job["max_delay_seconds"], job["interval_seconds"]) == (None, None, 300)
    assert "every 5 min -> adaptive" in cli.good("edit", "feed", "--adaptive").out
    assert cli.good("show", "feed", "--json").json["job"]["budget"] == "default"


@pytest.mark.spec("B1", "T14")
def test_a_channel_is_adaptive_by_default_if_the_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite, JOB_SCHEDULE="adaptive", BUDGET_DEFAULT_PER_MINUTE="17")
    job = cli.good("add", "telegram", "@harbour", "--json").json
    assert (job["schedule_type"], job["interval_seconds"], job["budget"]) == ("adaptive", None, "default")
    assert cli.good("budgets", "show", "default", "--json").json["requests"] == 17
    assert cli.good("add", "telegram", "@other", "--every", "1h", "--json").json["schedule_type"] == "interval"
