"""Counts and the freshness map on the command line."""

from pathlib import Path

import pytest

from command_line import CommandLine

pytestmark = pytest.mark.spec("B10", "V1")


def test_counts_and_the_map_are_shown_or_say_who_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite)
    assert "Nothing was counted in this time." in cli.good("minutes").out
    assert "Not measured yet." in cli.good("freshness", "--map").out
    cli.good("add", "feed", "https://example.com/feed.xml", "--name", "feed")
    assert "No items of feed" in cli.good("days", "feed").out
    assert cli.good("days", "feed", "--json").json == []
    assert cli.good("minutes", "--json").json["step_minutes"] == 1
    assert cli.good("freshness", "--map", "--json").json["cells"] == []
    cli.refused("days", "fed", says="there is no stream 'fed'")
    cli.refused("freshness", "--map", "--budget", "news", says="use only one of them")
