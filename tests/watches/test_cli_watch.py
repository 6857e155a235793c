"""`floodmark watch` as it is typed, here and on a server."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from api_process import api_process
from command_line import CommandLine

pytestmark = pytest.mark.spec("B8", "V4")

CHANNELS = {"NOTIFY_SLACK_URL": "http://127.0.0.1:9/canary-slack", "NOTIFY_WEBHOOK_URL": "http://127.0.0.1:9/hook"}


class Served(NamedTuple):
    """A server, and the folder of its database."""

    folder: Path
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for all tests, each of which removes the watches it has added."""
    folder = tmp_path_factory.mktemp("served")
    with api_process(f"sqlite:///{folder}/.floodmark/floodmark.db", **CHANNELS) as url:
        yield Served(folder, url)


@pytest.fixture(params=["here", "there"])
def cli(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Commands on the database itself, and through a server."""
    if request.param == "here":
        monkeypatch.chdir(tmp_path)
        return CommandLine(tmp_path, **CHANNELS)
    there: Served = request.getfixturevalue("served")
    monkeypatch.chdir(there.folder)
    made = CommandLine(there.folder, **CHANNELS)
    made.settings = {"FLOODMARK_URL": there.url}
    return made


@pytest.mark.thorough
def test_watches_are_added_listed_shown_changed_and_removed(cli: CommandLine) -> None:
    assert "No watches yet." in cli.good("watch").out
    cli.refused("watch", "add", "fire", "--notify", "pager", says="the channel 'pager' is not configured")
    cli.refused("watch", "add", "fire", says="needs a channel to notify")
    added = cli.good("watch", "add", "fire OR smoke", "--stream", "telegram:*", "--notify", "slack,webhook")
    assert "Added fire-or-smoke: fire OR smoke" in added.out
    options = ["--quiet", "22:00-07:00", "--tz", "Europe/Berlin", "--cooldown", "30m", "--threshold", "20 in 10m"]
    cli.good("watch", "edit", "fire", *options, "--name", "fires", "--tag", "city")
    row = cli.good("watch", "show", "fires", "--json").json
    assert (row["quiet"], row["timezone"], row["cooldown_seconds"]) == ("22:00-07:00", "Europe/Berlin", 1800)
    assert (row["threshold_count"], row["threshold_seconds"], row["tags"]) == (20, 600, ["city"])
    shown = cli.good("watch", "show", "fires").out
    assert "20 in 10 min" in shown
    assert "never" in shown
    assert "canary" not in shown
    cli.good("watch", "edit", "fires", "--clear", "threshold", "--clear", "tag", "--digest", "hourly")
    row = cli.good("watch", "show", "fires", "--json").json
    assert (row["threshold_count"], row["tags"], row["digest"], row["version"]) == (None, [], "hourly", 3)
    cli.refused("watch", "edit", "fires", says="no change is given")
    cli.refused("watch", "edit", "fires", "--clear", "colour", says="is not a field that can be cleared")
    cli.refused("watch", "edit", "fires", "--clear", "quiet", "--quiet", "01:00-02:00", says="contradicts")
    assert "paused" in cli.good("watch", "pause", "fires").out.lower()
    assert "paused" in cli.good("watch").out
    cli.good("watch", "resume", "fires")
    assert "No messages yet." in cli.good("watch", "history", "fires").out
    assert "No matches yet." in cli.good("watch", "history", "fires", "--matches").out
    assert "Would remove the watch fires" in cli.good("watch", "rm", "fires", "--dry-run").out
    assert "Removed fires." in cli.good("watch", "rm", "fires", "--yes").out
    cli.refused("watch", "show", "fires", says="there is no watch 'fires'")


@pytest.mark.thorough
def test_a_trial_shows_matches_as_they_are_found(cli: CommandLine) -> None:
    cli.good("add", "python", "feeds:news", "--name", "news", "--every", "1h", "--set", "PYTHON_MODULES=feeds")
    assert "0 matches in 0 events of the last 7 d." in cli.good("watch", "try", "news", "--stream", "*").out
    cli.good("watch", "add", "news", "--notify", "slack", "--name", "w")
    assert cli.good("watch", "try", "--watch", "w", "--since", "2d", "--json").json == []
    cli.refused("watch", "try", "(", says="the query cannot be read")
    cli.refused("watch", "try", "--pattern", "(?=x)", says="invalid perl operator: (?= at character 1")
    warned = cli.good("watch", "try", "--pattern", r"\w+ing").out
    assert "knows ASCII letters only" in warned
    cli.good("watch", "rm", "w", "--yes")


def test_the_quiet_hours_of_a_watch_are_not_the_option_of_all_commands(cli: CommandLine) -> None:
    row = cli.good("watch", "add", "x", "--notify", "slack", "--quiet", "--json", "--quiet", "1:00-2:00").json
    assert row["quiet"] == "01:00-02:00"
    cli.good("watch", "rm", "x", "--yes")


def test_the_commands_of_the_page_can_be_typed_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = {
        "NOTIFY_DISCORD_URL": "http://127.0.0.1:9/discord",
        "NOTIFY_TELEGRAM_BOT_TOKEN": "123456:canary-token",
        "NOTIFY_TELEGRAM_CHAT": "@room",
        "NOTIFY_EMAIL_TO": "ada@example.com",
        "NOTIFY_EMAIL_SMTP_URL": "smtp://127.0.0.1:9",
    }
    cli = CommandLine(tmp_path, **CHANNELS, **more)
    page = (Path(__file__).parents[2] / "docs/how-to/watch.md").read_text("utf-8")
    typed = [line for line in page.splitlines() if line.startswith("floodmark watch")]
    assert len(typed) > 20
    for line in typed:
        cli.good(*shlex.split(line)[1:])
    assert len(cli.good("watch", "ls", "--json").json) == 11
