"""Every verb as it is typed: what it does, what it says, and what it refuses."""

import getpass
import logging
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog

from command_line import CommandLine, eventually
from floodmark.cli.root_help import root_help
from floodmark.settings import keys

VERBS = (
    *("up", "demo", "add", "ls", "show", "run", "pause", "resume", "cancel", "rm", "next", "explain"),
    *("history", "stats", "watermark", "dlq", "migrate", "settings", "doctor", "scheduler", "worker"),
    *("events", "items", "workers", "limits", "breakers"),
)


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings from outside; and what a command does to its process is undone, because tests share theirs."""
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    path, root = list(sys.path), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    sys.path[:] = path
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Nothing is running here."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """One `floodmark up` for the tests that need something to run: they must not mind each other's jobs."""
    made = CommandLine(tmp_path_factory.mktemp("running"), EXECUTION_RETRY_BASE="10m", PORT="0")
    with made.running("up"):
        eventually(lambda: "is up" in made.said())
        yield made


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Two jobs, for tests that must not change them."""
    return CommandLine(tmp_path_factory.mktemp("stocked"))


@pytest.fixture
def stocked(stock: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(stock.folder)
    if not (stock.folder / ".floodmark").exists():
        (stock.folder / "faulty.py").write_text("def news(:", encoding="utf-8")
        add(stock, "news", "--every", "1h", name="taken")
        add(stock, "slow", name="tardy")
    return stock


def everything(cli: CommandLine) -> list[str]:
    """All that the database holds."""
    with closing(sqlite3.connect(cli.folder / ".floodmark" / "floodmark.db")) as connection:
        return list(connection.iterdump())


@pytest.fixture
def live(home: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(home.folder)
    return home


def add(cli: CommandLine, function: str, *options: str, name: str | None = None) -> dict[str, Any]:
    """Add a job for a function of `feeds`."""
    fields = ("--key", "id", "--watermark", "id") if function == "news" else ()
    answer = cli.good("add", "python", f"feeds:{function}", "--name", name or function, *fields, *options, "--json")
    return dict(answer.json)


# Finding one's way


def test_the_help_lists_every_verb(cli: CommandLine) -> None:
    told = cli.good("--help").out
    assert all(f"│ {verb} " in told for verb in VERBS)
    assert cli.good().out.strip() == told.strip()


@pytest.mark.parametrize("columns", [20, 60, 80, 200])
def test_the_help_fits_the_terminal(columns: int) -> None:
    lines = root_help(columns)
    assert {len(line) for line in lines if line[:1] in {"╭", "│", "╰"}} == {min(max(columns, 60), 100)}
    # Colours change nothing else.
    coloured = root_help(columns, has_colours=True)
    assert [re.sub("\x1b\\[[0-9;]*m", "", line) for line in coloured] == lines
    assert coloured != lines


@pytest.mark.parametrize("command", [(), ("--help",), ("-h",)])
def test_the_help_of_all_commands_loads_none(command: tuple[str, ...]) -> None:
    code = "import sys, floodmark.cli; floodmark.cli.main(); print('loaded:', *{'typer', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert "Collect every item once" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli: CommandLine, verb: str) -> None:
    assert "Usage: floodmark" in cli.good(verb, "--help").out.replace("Usage: root", "Usage: floodmark")


@pytest.mark.thorough
def test_a_command_loads_nothing_heavy_that_it_does_not_need(cli: CommandLine) -> None:
    """What takes long to import is imported by the commands that need it."""
    code = """
import sys, floodmark.cli
def loaded(*command, heavy):
    try: floodmark.cli.app([*command])
    except SystemExit: pass
    print("heavy:", *{*heavy.split()} & {*sys.modules})
serving = "aiohttp alembic fastapi httpx2 starlette telethon uvicorn"
loaded("--help", heavy=serving + " asyncpg prometheus_client pydantic redis sqlalchemy structlog")
loaded("ls", "--json", heavy=serving)
"""
    add(cli, "news")
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=cli.folder)
    assert [line for line in told.stdout.splitlines() if line.startswith("heavy:")] == ["heavy:", "heavy:"]


def test_the_version(cli: CommandLine) -> None:
    assert cli.good("--version").out.startswith("floodmark 0.")


@pytest.mark.spec("G9")
def test_a_mistyped_verb_finds_the_close_one(cli: CommandLine) -> None:
    cli.refused("histroy", says="Did you mean 'history'")
    cli.refused("show", says="Missing argument 'JOB'")
    cli.refused("ls", "--limit", "0", says="--limit")


# Settings


@pytest.mark.spec("E9")
def test_settings_tell_where_they_came_from_and_keep_secrets(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "hunter2")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hunter2@db/x")
    answer = cli.good("settings", "--set", "LOG_LEVEL=debug", "--json")
    rows = {row["key"]: row for row in answer.json}
    assert set(rows["LOG_LEVEL"]) == {"key", "value", "origin", "help"}
    assert (rows["LOG_LEVEL"]["value"], rows["LOG_LEVEL"]["origin"]) == ("debug", "command line")
    assert (rows["REDIS_PASSWORD"]["value"], rows["REDIS_PASSWORD"]["origin"]) == ("***", "environment")
    assert set(rows) == set(keys())
    assert "hunter2" not in answer.out + cli.good("settings").out


@pytest.mark.spec("G9")
def test_a_bad_setting_is_named(cli: CommandLine) -> None:
    cli.refused("--set", "PORT=many", "ls", says='PORT="many" (from command line) is not a port')
    cli.refused("ls", "--set", "PROT=1", says="is not a setting")
    cli.refused("ls", "--set", "PORT", says="is not KEY=VALUE")
    assert not (cli.folder / ".floodmark").exists()


def test_an_unexpected_error_is_short_and_the_traceback_is_there_on_demand(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("password=hunter2 boom")

    monkeypatch.setattr("floodmark.wiring.resources.open_resources", explode)
    short = cli.refused("ls", says="an unexpected error occurred: RuntimeError", code=1)
    assert "Traceback" not in short.err
    long = cli("ls", "--debug")
    assert "Traceback" in long.err
    assert long.code == 1
    assert "hunter2" not in short.err + long.err


# Who did it


@pytest.mark.spec("G9")
def test_a_change_by_command_is_in_the_audit_with_the_name_of_whoever_typed_it(cli: CommandLine) -> None:
    add(cli, "slow", name="tardy")
    cli.good("pause", "tardy")
    cli.good("rm", "tardy", "--yes")
    with closing(sqlite3.connect(cli.folder / ".floodmark" / "floodmark.db")) as connection:
        rows = connection.execute("SELECT action, object, who, via FROM audit ORDER BY seq").fetchall()
    assert [row[:2] for row in rows] == [(f"job.{done}", "job:tardy") for done in ("added", "paused", "removed")]
    assert {row[2:] for row in rows} == {(getpass.getuser(), "cli")}


# What only this machine can do


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    "command",
    [
        ("up",), ("api",), ("scheduler",), ("worker",), ("worker", "-p", "2"), ("demo",), ("testing", "telegram"),
        ("testing", "web"),
        ("migrate",),
    ],
)  # fmt: skip
def test_what_needs_this_machine_is_not_asked_of_a_server(cli: CommandLine, command: tuple[str, ...]) -> None:
    cli.refused("--url", "http://127.0.0.1:1", *command, says="works on this machine only")
    assert not (cli.folder / ".floodmark").exists()


@pytest.mark.spec("G9")
def test_a_server_that_is_set_is_told_apart_from_this_machine(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_URL", "http://127.0.0.1:1")
    cli.refused("migrate", says="FLOODMARK_URL names http://127.0.0.1:1")
    assert "No jobs yet" in cli.good("ls", "--url", "").out


# Jobs, while nothing runs


@pytest.mark.spec("V7", "E3")
def test_a_job_is_added_with_everything_that_was_said(cli: CommandLine) -> None:
    add(cli, "slow")
    job = add(
        cli, "news", "--daily", "02:00", "--tz", "Europe/Berlin", "--priority", "high", "--timeout", "5m",
        "--retries", "7", "--overlap", "queue", "--catch-up", "all", "--jitter", "30s", "--depends-on", "slow",
        "--param", "count=3", "--param", "mode=fast", "--param", 'deep={"a": [1]}', "--tag", "one", "--tag", "two",
        "--limit-key", "account 1", "--stream", "front-page", "--tenant", "t1", "--user", "u1", "--disabled",
    )  # fmt: skip
    wanted = {
        "name": "news",
        "source": "python",
        "target": "feeds:news",
        "schedule_type": "calendar",
        "frequency": "daily",
        "time_config": {"hour": 2, "minute": 0},
        "timezone": "Europe/Berlin",
        "priority": 1,
        "timeout_seconds": 300,
        "retry_max": 7,
        "overlap": "queue",
        "catch_up": "all",
        "jitter_seconds": 30,
        "depends_on": ["slow"],
        "params": {"count": 3, "mode": "fast", "deep": {"a": [1]}, "key": "id", "watermark": "id"},
        "tags": ["one", "two"],
        "limit_key": "account 1",
        "stream": "front-page",
        "tenant_id": "t1",
        "user_id": "u1",
        "schedule_enabled": False,
    }
    assert wanted.items() <= job.items()
    assert cli.good("ls", "news", "--json").json == [job]


def test_adding_a_job_tells_its_next_runs_and_what_to_type(cli: CommandLine) -> None:
    told = cli.good("add", "python", "feeds:news", "--daily", "02:00", "--tz", "Europe/Berlin").out
    assert "Added news" in told
    assert "daily 02:00 Europe/Berlin" in told
    assert told.count(" CE") == 3
    assert "Start it: floodmark up" in told
    assert "floodmark up" not in cli.good("add", "python", "feeds:news", "--quiet").out


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("add", "pigeon", "durov"), "there is no source 'pigeon'"),
        (("add", "python", "feeds:nws"), "cannot be imported"),
        (("add", "python", "nofeeds:news"), "cannot be imported"),
        (("add", "python", "faulty:news"), "SyntaxError"),
        (("add", "python", "feeds"), "names no function"),
        (("add", "python", "feeds:news", "--every", "often"), "is not a length of time"),
        (("add", "python", "feeds:news", "--cron", "61 * * * *"), "bad minute '61'"),
        (("add", "python", "feeds:news", "--every", "5m", "--once"), "contradict each other"),
        (("add", "python", "feeds:news", "--daily", "25:00"), "hour is 25"),
        (("add", "python", "feeds:news", "--tz", "Berlin"), "unknown time zone"),
        (("add", "python", "feeds:news", "--priority", "urgent"), "is not a priority"),
        (("add", "python", "feeds:news", "--overlap", "often"), "--overlap"),
        (("add", "python", "feeds:news", "--retries", "-1"), "retry_max"),
        (("add", "python", "feeds:news", "--timeout", "0s"), "is not a length of time"),
        (("add", "python", "feeds:news", "--param", "count"), "is not NAME=VALUE"),
        (("add", "python", "feeds:news", "--depends-on", "nobody"), "there is no job 'nobody'"),
        (("add", "python", "feeds:news", "--name", "taken"), "there is already a job 'taken'"),
        (("add", "python", "feeds:news", "--app", "feeds:nobody"), "cannot be imported"),
        (("add", "python", "feeds:news", "--app", "feeds:not_an_app"), "not a Floodmark instance"),
        (("show", "nobody"), "there is no job 'nobody'"),
        (("show", "ta"), "fits 2 jobs"),
        (("explain", "nobody"), "there is no job 'nobody'"),
        (("run", "nobody"), "there is no job 'nobody'"),
        (("run", "taken", "--param", "x"), "is not NAME=VALUE"),
        (("pause", "nobody"), "there is no job 'nobody'"),
        (("resume", "nobody"), "there is no job 'nobody'"),
        (("cancel", "nobody", "--yes"), "there is no job 'nobody'"),
        (("rm", "nobody", "--yes"), "there is no job 'nobody'"),
        (("rm", "taken"), "there is no terminal to ask on"),
        (("watermark", "reset", "taken"), "there is no terminal to ask on"),
        (("watermark", "set", "taken", "5", "--yes"), "is not an object"),
        (("watermark", "set", "taken", "{", "--yes"), "is not JSON"),
        (("watermark", "show", "nobody"), "there is no stream 'nobody'"),
        (("items", "nobody"), "there is no stream 'nobody'"),
        (("items", "taken", "--key", "7"), "has no item '7'"),
        (("history", "nobody"), "there is no job 'nobody'"),
        (("history", "--id", "abc"), "there is no execution 'abc'"),
        (("history", "--since", "yesterday"), "is not a length of time"),
        (("history", "--state", "asleep"), "--state"),
        (("stats", "nobody"), "there is no job 'nobody'"),
        (("dlq", "retry"), "no dead letters are selected"),
        (("dlq", "retry", "--all", "--group", "abc"), "no dead letters are selected"),
        (("dlq", "drop", "--all", "--yes"), "no dead letters match"),
        (("dlq", "retry", "--id", "abc"), "there is no execution 'abc'"),
        (("next", "61 * * * *"), "bad minute '61'"),
        (("next", "nobody"), "there is no job 'nobody'"),
        (("next", "@daily", "--tz", "Mars"), "unknown time zone"),
        (("events", "--stream", "nobody"), "there is no stream 'nobody'"),
        (("workers", "--drain", "--resume"), "contradict each other"),
        (("migrate", "--to", "9999"), "there is no schema '9999'"),
        (("migrate", "--to", "base"), "there is no terminal to ask on"),
        (("worker", "--processes", "2"), "SQLite is for one worker process"),
    ],
)
def test_bad_input_is_refused_with_a_hint_and_changes_nothing(
    stocked: CommandLine, command: tuple[str, ...], says: str
) -> None:
    before = everything(stocked)
    stocked.refused(*command, says=says)
    assert everything(stocked) == before


def test_jobs_are_listed_in_words_and_by_filters(cli: CommandLine) -> None:
    assert "Add one: floodmark add" in cli.good("ls").out
    add(cli, "news", "--every", "15m", "--tag", "front", "--priority", "low")
    add(cli, "slow", "--weekly", "monday 02:00", "--disabled")
    add(cli, "broken", "--cron", "*/5 * * * *", "--tz", "Europe/Berlin")
    cli.good("pause", "broken")
    told = cli.good("ls").out
    assert [line.split()[0] for line in told.splitlines()] == ["name", "broken", "news", "slow"]
    assert "every 15 min" in told
    assert "weekly monday 02:00 UTC" in told
    assert "*/5 * * * * Europe/Berlin" in told
    found = {
        filters: [job["name"] for job in cli.good("ls", *filters, "--json").json]
        for filters in (
            ("--tag", "front"), ("--priority", "low"), ("--paused",), ("--disabled",), ("--source", "web"), ("NEW",),
            ("--limit", "1"), ("--after", "broken", "--limit", "1"),
        )
    }  # fmt: skip
    assert list(found.values()) == [["news"], ["news"], ["broken"], ["slow"], [], ["news"], ["broken"], ["news"]]
    assert "More: floodmark ls --after broken" in cli.good("ls", "--limit", "1").out
    assert "No job matches" in cli.good("ls", "--source", "web").out


@pytest.mark.thorough
def test_showing_a_job_tells_all_about_it(cli: CommandLine) -> None:
    job = add(cli, "news", "--every", "15m", "--param", "count=2")
    told = cli.good("show", "ne", "--json").json
    assert set(told) == {"job", "explanation", "watermark", "items", "executions", "next_runs"}
    assert told["job"] == job
    assert set(told["explanation"]) == {"code", "sentence", "until"}
    assert len(told["next_runs"]) == 3
    shown = cli.good("show", "news").out
    assert "no scheduler is running" in shown
    assert '{"count":2,"key":"id","watermark":"id"}' in shown


@pytest.mark.thorough
def test_a_job_is_paused_resumed_and_deleted(cli: CommandLine) -> None:
    add(cli, "news", "--every", "15m")
    cli.good("pause", "news", "--reason", "too [loud]")
    assert cli.explain("news") == "paused"
    assert "paused: too [loud]; resume it with: floodmark resume news" in cli.good("explain", "news").out
    assert "it does not run until that changes" in cli.good("next", "news").out
    cli.good("resume", "news")
    assert cli.explain("news") == "no_leader"
    assert "Would delete the job news" in cli.good("rm", "news", "--dry-run").out
    assert cli.good("ls", "--json").json
    cli.good("rm", "news", "--yes")
    assert cli.good("ls", "--json").json == []


@pytest.mark.thorough
def test_a_run_that_nobody_takes_is_explained_and_can_be_cancelled(cli: CommandLine) -> None:
    add(cli, "news")
    assert cli.explain("news") == "event"
    execution = cli.good("run", "news", "--param", "count=1", "--json").json
    assert (execution["state"], execution["trigger"]) == ("queued", "manual")
    assert cli.explain("news") == "no_worker"
    assert "waits for execution" in cli.good("run", "news").out
    cli.good("workers", "--drain")
    assert cli.explain("news") == "draining"
    cli.good("workers", "--resume")
    assert "Would cancel 2 executions of news" in cli.good("cancel", "news", "--dry-run").out
    assert "Cancelled 2 executions" in cli.good("cancel", "news", "--yes").out
    assert "no unfinished execution" in cli.good("cancel", "news", "--yes").out
    assert {e["state"] for e in cli.good("history", "news", "--json").json} == {"cancelled"}


def test_what_is_to_come_is_listed_with_the_changes_of_the_clocks(cli: CommandLine) -> None:
    runs = cli.good("next", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "400", "--json").json
    assert set(runs[0]) == {"at", "local", "clock_change"}
    changes = [run["clock_change"] for run in runs if run["clock_change"]]
    assert sorted(changes) == ["clocks went back 1 h", "clocks went forward 1 h"]
    assert not (cli.folder / ".floodmark").exists(), "an expression needs no database"
    assert len(cli.good("next", "*/5 9-17 * * 1-5", "--tz", "Europe/Berlin", "--count", "10").out.splitlines()) == 11
    add(cli, "news", "--monthly", "31 02:00")
    assert all(run["at"].endswith("T02:00:00Z") for run in cli.good("next", "news", "--json").json)
    add(cli, "slow")
    assert "runs on demand" in cli.good("next", "slow").out


def test_a_watermark_is_set_before_the_first_run_and_reset(cli: CommandLine) -> None:
    assert "Nothing has been collected yet" in cli.good("watermark").out
    add(cli, "news")
    assert "Would move" in cli.good("watermark", "set", "news", '{"value": 40}', "--dry-run").out
    assert cli.good("watermark", "--help").code == 0
    cli.good("watermark", "set", "news", '{"value": 40}', "--yes")
    shown = cli.good("watermark", "show", "news", "--json").json
    assert (shown["stream"], shown["value"]) == ("python:feeds:news", {"value": 40})
    assert {"fence", "moved_at", "last_parsed_at", "last_checked_at"} <= set(shown)
    told = cli.good("watermark", "reset", "python:feeds:news", "--yes").out
    assert '{"value":40} -> nothing' in told
    [listed] = cli.good("watermark", "show", "--json").json
    assert listed["value"] is None


@pytest.mark.thorough
def test_empty_listings_say_so(cli: CommandLine) -> None:
    for command, says in (
        (("history",), "No executions."),
        (("history", "--since", "24h"), "No executions within 24h."),
        (("dlq",), "No dead letters."),
        (("limits",), "No active rate limits"),
        (("breakers",), "No circuit breakers"),
        (("events",), "No events."),
        (("workers",), "No processes are running"),
    ):
        assert says in cli.good(*command).out
    for listing in (
        "history",
        "dlq ls",
        "limits",
        "limits ls",
        "breakers",
        "breakers ls",
        "events",
        "ls",
        "watermark show",
    ):
        assert cli.good(*listing.split(), "--json").json == []
    assert cli.good("stats", "--json").json["total_executions"] == 0


@pytest.mark.thorough
def test_migrating_tells_before_and_after(cli: CommandLine) -> None:
    assert "Would migrate the schema from empty to" in cli.good("migrate", "--dry-run").out
    told = cli.good("migrate").out
    assert told.startswith("Schema empty -> ")
    assert "nothing to do" in cli.good("migrate").out
    assert "-> empty" in cli.good("migrate", "--to", "base", "--yes").out


def test_the_doctor_fails_when_nothing_runs(cli: CommandLine) -> None:
    answer = cli("doctor", "--json")
    assert answer.code == 1
    found = {finding["code"]: finding["ok"] for finding in answer.json}
    assert found["database"]
    assert not found["leader"]
    told = cli("doctor").out
    assert "Next: start one with: floodmark up" in told


# Jobs, while `floodmark up` runs


@pytest.mark.spec("G8", "E5", "T13")
@pytest.mark.thorough
def test_a_run_is_waited_for_and_leaves_items_events_and_history(live: CommandLine) -> None:
    add(live, "news", name="paper")
    told = live.good("run", "paper", "--wait").out
    assert "Done in" in told
    assert "5 new items" in told
    execution = live.good("run", "paper", "--wait", "--param", "count=2", "--json").json
    assert (execution["state"], execution["items_new"]) == ("done", 2)
    assert live.good("watermark", "show", "paper", "--json").json["value"] == {"value": 7}

    items = live.good("items", "paper", "--json").json
    assert [item["key"] for item in items] == list("7654321")
    assert set(items[0]) == {
        "stream", "key", "revision", "occurred_at", "collected_at", "data", "content_hash", "deleted", "execution_id",
    }  # fmt: skip
    assert "\x1b[31m" not in live.good("items", "paper").out
    assert "News [bold]7[/]" in live.good("items", "paper", "--limit", "2").out
    [newest] = live.good("items", "paper", "--key", "7", "--json").json
    assert newest["data"]["id"] == 7

    eventually(lambda: len(live.good("events", "--stream", "paper", "--json").json) == 7)
    events = live.good("events", "--stream", "paper", "--json").json
    assert [event["key"] for event in events] == list("1234567")
    assert set(events[0]) == {
        "event_id", "position", "stream", "key", "revision", "kind", "type", "tenant_id", "user_id", "occurred_at",
        "collected_at", "data",
    }  # fmt: skip
    assert events[0]["data"]["id"] == 1
    behind = live.good("events", "--after", str(events[4]["position"]), "--stream", "paper", "--json").json
    assert [event["key"] for event in behind] == ["6", "7"]
    assert "Continue: floodmark events --after" in live.good("events").out

    history = live.good("history", "paper", "--state", "done", "--since", "1h", "--json").json
    assert [e["items_new"] for e in history] == [2, 5]
    assert {"execution_id", "state", "started_at", "completed_at", "duration_seconds", "error_message",
            "error_details", "result", "attempt", "reason"} <= set(history[0])  # fmt: skip
    assert "triggered by  manual" in live.good("history", "--id", history[0]["execution_id"][:20]).out
    stats = live.good("stats", "paper", "--days", "1", "--json").json
    assert list(stats) == [
        "total_executions", "successful", "failed", "cancelled", "success_rate", "avg_duration", "min_duration",
        "max_duration",
    ]  # fmt: skip
    assert (stats["total_executions"], stats["successful"], stats["success_rate"]) == (2, 2, 100.0)
    assert "100.0 %" in live.good("stats", "paper").out


@pytest.mark.thorough
def test_a_schedule_runs_by_itself_and_then_it_is_not_due(live: CommandLine) -> None:
    add(live, "news", "--every", "1h", name="hourly")
    eventually(lambda: live.good("history", "hourly", "--state", "done", "--json").json)
    assert eventually(lambda: live.explain("hourly")) == "not_due"
    add(live, "news", "--once", name="once")
    eventually(lambda: live.good("history", "once", "--state", "done", "--json").json)
    assert live.explain("once") == "finished"
    add(live, "news", "--every", "1h", "--disabled", name="off")
    assert live.explain("off") == "disabled"


@pytest.mark.thorough
def test_a_failed_run_exits_with_1_and_waits_in_the_dead_letters(live: CommandLine) -> None:
    add(live, "hopeless")
    failed = live("run", "hopeless", "--wait")
    assert failed.code == 1
    assert "Dead in" in failed.out
    assert "the page is empty" in failed.out
    assert live.explain("hopeless") == "dead"

    [group] = live.good("dlq", "ls", "hopeless", "--json").json
    assert set(group) == {"fingerprint", "count", "example", "newest", "oldest", "jobs", "mark"}
    assert (group["count"], group["jobs"]) == (1, ["hopeless"])
    assert group["mark"] in live.good("dlq").out
    [letter] = live.good("dlq", "ls", "hopeless", "--each", "--json").json
    assert "Permanent" in live.good("history", "--id", letter["execution_id"]).out

    assert "Would retry 1 dead letter" in live.good("dlq", "retry", "--group", group["mark"], "--dry-run").out
    live.good("dlq", "retry", "hopeless")
    eventually(lambda: live.good("dlq", "ls", "hopeless", "--json").json)
    live.refused("dlq", "drop", "hopeless", says="there is no terminal to ask on")
    assert "Dropped 1 dead letter" in live.good("dlq", "drop", "--id", letter["execution_id"], "--yes").out
    assert live.good("dlq", "ls", "hopeless", "--json").json == []


@pytest.mark.thorough
def test_a_retry_and_a_limit_are_explained(live: CommandLine) -> None:
    add(live, "broken")
    live.good("run", "broken")
    assert eventually(lambda: live.explain("broken") == "retry")
    assert "attempt 1 of 4 failed: ValueError" in live.good("explain", "broken").out
    add(live, "limited", "--limit-key", "account 1")
    live.good("run", "limited")
    assert eventually(lambda: live.explain("limited") == "limit")
    assert "FloodWait on account 1; continues at" in live.good("explain", "limited").out
    [limit] = live.good("limits", "--json").json
    assert set(limit) == {"key", "until", "reason", "hits", "updated_at", "rate"}
    assert limit["key"] == "account 1"
    assert "account 1" in live.good("limits").out


def test_a_target_that_is_gone_pauses_its_job(live: CommandLine) -> None:
    add(live, "gone", "--every", "1h")
    assert eventually(lambda: live.explain("gone") == "paused")
    assert "the channel was deleted" in live.good("explain", "gone").out


@pytest.mark.thorough
def test_dependencies_and_overlap_are_explained_and_a_running_one_is_cancelled(live: CommandLine) -> None:
    add(live, "slow", "--timeout", "50s")
    add(live, "news", "--every", "1h", "--depends-on", "slow", name="after")
    assert eventually(lambda: live.explain("after") == "dependency")
    live.good("run", "slow")
    assert eventually(lambda: live.explain("slow") == "running")
    assert "waits for execution" in live.good("run", "slow").out
    assert "running" in live.good("cancel", "slow", "--dry-run").out
    live.good("cancel", "slow", "--yes")
    eventually(lambda: {e["state"] for e in live.good("history", "slow", "--json").json} == {"cancelled"})
    live.refused("add", "python", "feeds:slow", "--name", "after", says="there is already a job")


def test_the_fleet_is_listed(live: CommandLine) -> None:
    told = eventually(lambda: [w for w in live.good("workers", "--json").json["workers"] if w["alive"]])
    assert set(told[0]) == {
        "worker", "role", "hostname", "pid", "slots", "busy", "draining", "started_at", "seen_until", "alive", "leader",
    }  # fmt: skip
    assert told[0]["leader"]
    assert "leader" in live.good("workers").out


def test_the_doctor_is_content(live: CommandLine) -> None:
    answer = live("doctor", "--json")
    assert {finding["code"] for finding in answer.json if not finding["ok"]} == set(), answer
    assert answer.code == 0
    assert set(answer.json[0]) == {"code", "ok", "text", "hint"}


# On servers


@pytest.mark.spec("E2", "G8", "E9")
@pytest.mark.thorough
def test_the_same_commands_on_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_url: str, redis_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, DATABASE_URL=pg_url, REDIS_URL=redis_url)
    cli.refused("ls", says="the database schema is empty", code=1)
    assert cli("doctor").code == 1
    assert "Schema empty ->" in cli.good("migrate").out
    add(cli, "news", "--every", "1h")
    add(cli, "hopeless")
    cli.good("run", "hopeless")
    assert cli.explain("hopeless") == "no_worker"
    with cli.running("up", "--port", "0"):
        eventually(lambda: cli.explain("hopeless") == "dead")
        eventually(lambda: len(cli.good("events", "--json").json) == 5)
    assert len(cli.good("items", "news", "--json").json) == 5
    [group] = cli.good("dlq", "ls", "--json").json
    cli.good("dlq", "drop", "--group", group["mark"], "--yes")
    cli.good("watermark", "set", "news", '{"value": 40}', "--yes")
    assert cli.good("stats", "--json").json["successful"] == 1
    cli.good("rm", "news", "--yes")
    assert not os.listdir(tmp_path / ".floodmark") if (tmp_path / ".floodmark").exists() else True


def test_a_database_that_is_away_is_named_without_its_password(cli: CommandLine) -> None:
    answer = cli.refused(
        "ls", "--set", "DATABASE_URL=postgresql://me:hunter2@127.0.0.1:1/x", says="does not answer", code=1
    )
    assert "hunter2" not in answer.err
