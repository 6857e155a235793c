"""`floodmark triggers` as it is typed, here and on a server."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api_process import api_process
from command_line import CommandLine
from floodmark.cli import app
from floodmark.settings import keys

KEY = "a key for tests only"


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite, FLOODMARK_SECRET_KEY=KEY)
    cli.good("add", "python", "feeds:ticks", "--name", "news", "--every", "1h")
    return cli


@pytest.fixture(params=["here", "there"])
def cli(request: pytest.FixtureRequest, here: CommandLine) -> Iterator[CommandLine]:
    """Commands on the database itself, and through a server."""
    if request.param == "here":
        yield here
        return
    with api_process(f"sqlite:///{here.folder}/.floodmark/floodmark.db") as url:
        # A server seals secrets with its own key.
        here.settings = {"FLOODMARK_URL": url}
        yield here


@pytest.mark.spec("V4", "V8")
@pytest.mark.thorough
def test_triggers_are_added_listed_and_removed(cli: CommandLine) -> None:
    assert "No triggers yet." in cli.good("triggers").out
    made = cli.good("triggers", "add", "webhook", "/a/{id}", "--job", "news", "--signed", "--debounce", "10s")
    assert "Added the webhook /a/{id}: it fires news, at most every 10 s." in made.out
    assert "/api/v2/triggers/webhook/a/42" in made.out
    added = cli.good("triggers", "add", "channel", "content:*", "--job", "news", "--param", "n=body.n", "--json").json
    assert (added["kind"], added["params"], added["jobs"]) == ("channel", {"n": "body.n"}, ["news"])
    assert "It is not listened to: there is no Redis" in cli.good("triggers", "add", "stream", "orders").out

    rows = cli.good("triggers", "ls", "--json").json
    assert [(row["kind"], row["signed"]) for row in rows] == [("webhook", True), ("channel", False), ("stream", False)]
    listed = cli.good("triggers").out
    assert all(word in listed for word in ("/a/{id}", "content:*", "orders", "no: there is no Redis"))
    status = " ".join(cli.good("triggers", "status").out.split())
    assert "Redis listener none matched no job nothing unreadable nothing" in status

    assert "remove the channel content:*, which fires news" in cli.good("triggers", "rm", "content:*", "--dry-run").out
    cli.good("triggers", "rm", "content:*", "--yes")
    cli.good("triggers", "rm", rows[0]["trigger_id"], "--yes")
    cli.good("triggers", "rm", "orders", "--kind", "stream", "--yes")
    assert cli.good("triggers", "ls", "--json").json == []
    audit = cli.good("audit", "--json").json
    assert sum(str(row["action"]).startswith("trigger.") for row in audit) == 6


def test_only_the_secret_is_printed_when_nothing_else_is_asked_for(here: CommandLine) -> None:
    out = here.good("-q", "triggers", "add", "webhook", "/a", "--job", "news", "--signed").out
    assert len(out.splitlines()[-1]) == 64
    assert here.good("triggers", "add", "webhook", "/b", "--signed", "--json").json["secret"]


def test_a_secret_can_be_read_from_the_standard_input(here: CommandLine) -> None:
    words = [*here.options(), "triggers", "add", "webhook", "/a", "--secret", "-", "--json"]
    result = CliRunner().invoke(app, words, input="sixteen characters at least\n")
    assert (result.exit_code, '"signed": true' in result.stdout) == (0, True)


@pytest.mark.thorough
def test_what_makes_no_sense_is_refused(cli: CommandLine) -> None:
    cases: list[tuple[Any, ...]] = [
        (("add", "webhook", "/x-*"), "mixes text and a pattern"),
        (("add", "webhook", "/a", "--job", "newz"), "there is no job 'newz'"),
        (("add", "webhook", "/a", "--param", "title"), "is not NAME=PLACE"),
        (("add", "webhook", "/a", "--signed", "--secret", "x" * 20), "contradict each other"),
        (("rm", "/nothing"), "there is no trigger '/nothing'"),
        (("rm", "/nothing", "--kind", "fax"), "'fax' is not a kind of trigger"),
    ]
    for words, says in cases:
        cli.refused("triggers", *words, says=says)
    cli.good("triggers", "add", "webhook", "/a")
    cli.refused("triggers", "add", "webhook", "/a", says="already a webhook trigger")
    cli.good("triggers", "add", "webhook", "/a", "--replace", "--disabled")
