"""The commands that stay, as real processes: how they start, work, and leave when they are told to."""

import json
import os
import pty
import re
import signal
import socket
import sqlite3
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

from command_line import Answer, CommandLine, eventually


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine.installed(tmp_path, migrated_sqlite, PORT="0")


def address(cli: CommandLine) -> str:
    """Where a process that has come up serves its page."""
    return str(eventually(lambda: re.findall(r"health +(http\S+)/health", cli.said()))[0])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def metric(text: str, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))


@pytest.mark.spec("G8")
@pytest.mark.thorough
def test_up_collects_what_an_application_declares_and_ends_by_itself(cli: CommandLine) -> None:
    answer = cli.real("up", "--app", "feeds:app", "--seconds", "1")
    assert answer.code == 0, answer
    assert "is up. Press Ctrl-C to stop." in answer.out
    assert "sqlite:///.floodmark/floodmark.db" in answer.out
    assert "feeds:app" in answer.out
    logged = [json.loads(line)["event"] for line in answer.err.splitlines()]
    with cli.running("up", "--app", "feeds:app"):
        eventually(lambda: cli.good("items", "ticks", "--json").json)
        eventually(lambda: "execution settled" in cli.said())
    logged += [json.loads(line)["event"] for line in cli.said().splitlines() if line.startswith("{")]
    assert {"leader changed", "execution settled"} <= set(logged)


@pytest.mark.spec("G7")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.thorough
def test_a_signal_hands_back_what_runs_and_exits_with_0(cli: CommandLine, number: signal.Signals) -> None:
    cli.settings["SHUTDOWN_GRACE"] = "6"
    with cli.running("up") as process:
        address(cli)
        cli.good("add", "python", "feeds:slow", "--name", "slow")
        cli.good("run", "slow")
        eventually(lambda: cli.explain("slow") == "running")
        process.send_signal(number)
        assert process.wait(120) == 0, cli.said()
    [execution] = cli.good("history", "slow", "--json").json
    assert (execution["state"], execution["attempt"]) == ("queued", 0), "handed back, at no cost"
    assert "Traceback" not in cli.said()


@pytest.mark.spec("G7", "G3")
def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(cli: CommandLine) -> None:
    """Long before the grace is over. The next process takes the work back."""
    cli.settings["SHUTDOWN_GRACE"] = "600"
    with cli.running("up") as process:
        address(cli)
        cli.good("add", "python", "feeds:slow", "--name", "slow")
        cli.good("run", "slow")
        eventually(lambda: cli.explain("slow") == "running")

        def has_ended() -> bool:
            # Signals of one kind that come together are one.
            process.terminate()
            return process.poll() is not None

        eventually(has_ended)
        assert process.returncode == 1
    [before] = cli.good("history", "slow", "--json").json
    assert before["state"] == "running"
    with cli.running("up") as process:
        address(cli)
        eventually(lambda: cli.good("history", "slow", "--json").json[0]["worker"] != before["worker"])
        process.kill()
    [after] = cli.good("history", "slow", "--json").json
    assert after["execution_id"] == before["execution_id"]


@pytest.mark.spec("E9")
def test_scheduler_and_worker_apart_serve_health_and_metrics(cli: CommandLine) -> None:
    cli.good("add", "python", "feeds:news", "--every", "1h", "--name", "news")
    with cli.running("scheduler", "--port", "0"):
        url = address(cli)
        eventually(lambda: cli.explain("news") == "no_worker")
        assert json.loads(get(f"{url}/health/ready"))["status"] == "ok"
        assert metric(get(f"{url}/metrics"), "crawler_scheduler_is_leader") == 1
        with cli.running("worker", "--slots", "3", "--port", "0") as worker:
            eventually(lambda: cli.good("stats", "--json").json["successful"] == 1)
            worker.terminate()
            assert worker.wait(120) == 0, cli.said()


@pytest.mark.release
def test_a_port_that_is_taken_is_an_error_when_it_was_asked_for(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = cli.real("up", "--port", port, "--seconds", "5")
    assert answer.code == 1, answer
    assert f"Error: port {port} on 127.0.0.1 is in use" in answer.err
    assert "Next: " in answer.err


def typed(cli: CommandLine, *command: str, keys: str) -> Answer:
    """A command on a terminal, and what was typed when it asked."""
    ours, theirs = pty.openpty()
    try:
        with cli.start(*command, stdin=theirs) as process:
            os.write(ours, keys.encode())
            out, err = process.communicate(timeout=120)
        return Answer(command, process.returncode, out, err)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.thorough
def test_a_person_is_asked_before_something_is_taken_away(cli: CommandLine) -> None:
    cli.good("add", "python", "feeds:news", "--name", "news")
    refused = typed(cli, "rm", "news", keys="n\n")
    assert refused.code == 1
    assert "This will delete the job news (on demand). Continue?" in refused.err
    assert cli.good("ls", "--json").json
    agreed = typed(cli, "rm", "news", keys="y\n")
    assert agreed.code == 0, agreed
    assert cli.good("ls", "--json").json == []


@pytest.mark.release
def test_ctrl_c_while_waiting_is_quiet(cli: CommandLine) -> None:
    cli.good("add", "python", "feeds:news", "--name", "news")
    with cli.start("run", "news", "--wait") as process:
        assert process.stdout is not None
        assert "no worker is running" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")


@pytest.mark.release
def test_events_are_followed_as_they_come(cli: CommandLine) -> None:
    cli.good("add", "python", "feeds:news", "--name", "news", "--key", "id", "--watermark", "id")
    with cli.running("up"):
        address(cli)
        with cli.start("events", "--after", "0", "--follow", "--json") as following:
            assert following.stdout is not None
            for _ in range(2):
                cli.good("run", "news", "--wait")
            positions = [json.loads(following.stdout.readline())["position"] for _ in range(10)]
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=120)
    assert positions == list(range(1, 11))
    assert following.returncode == 130


@pytest.mark.spec("V3", "G7", "B16")
@pytest.mark.thorough
def test_several_worker_processes_are_one_to_the_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_url: str, redis_url: str
) -> None:
    """Two processes share the work, their metrics add up, a killed one is replaced, and all leave together."""
    monkeypatch.chdir(tmp_path)
    settings = {"SHUTDOWN_GRACE": "5", "EXECUTION_LEASE": "600"}
    cli = CommandLine(tmp_path, DATABASE_URL=pg_url, REDIS_URL=redis_url, **settings)
    cli.good("migrate")
    with cli.running("worker", "--processes", "2", "--slots", "3", "--port", "0") as supervisor:
        url = address(cli)
        first = processes(url, 2)
        eventually(lambda: metric(get(f"{url}/metrics"), "crawler_scheduler_worker_pool_size") == 6)
        cli.good("add", "python", "feeds:news", "--name", "news")
        ran: list[str] = []
        while len(set(ran)) < 2:
            ran.append(cli.good("run", "news", "--wait", "--json").json["worker"])
            assert len(ran) < 50, "one process does all the work"
        eventually(lambda: metric(get(f"{url}/metrics"), "crawler_scheduler_jobs_executed_total") == len(ran))

        os.kill(first[0], signal.SIGKILL)
        eventually(lambda: first[0] not in (now := processes(url)) and len(now) == 2)
        assert "worker process died" in cli.said()
        # No scheduler runs that could notice, and no lease has ended: the parent has told.
        eventually(
            lambda: (
                [w["alive"] for w in cli.good("workers", "--json").json["workers"] if w["pid"] == first[0]] == [False]
            )
        )
        eventually(lambda: metric(get(f"{url}/metrics"), "crawler_scheduler_worker_pool_size") == 6)
        executed = metric(get(f"{url}/metrics"), "crawler_scheduler_jobs_executed_total")
        assert executed == len(ran), "what a process counted outlives it"

        last = processes(url, 2)
        supervisor.terminate()
        assert supervisor.wait(120) == 0, cli.said()
    assert not [pid for pid in last if is_alive(pid)]
    left = [worker["pid"] for worker in cli.good("workers", "--json").json["workers"]]
    assert set(left) <= {first[0]}, "who leaves in good order is not listed any more"


@pytest.mark.spec("G7")
@pytest.mark.thorough
def test_worker_processes_do_not_outlive_a_killed_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, DATABASE_URL=pg_url)
    cli.good("migrate")
    with cli.running("worker", "--processes", "2", "--port", "0") as supervisor:
        pids = processes(address(cli), 2)
        eventually(lambda: len([w for w in cli.good("workers", "--json").json["workers"] if w["alive"]]) == 2)
        supervisor.kill()
        eventually(lambda: not [pid for pid in pids if is_alive(pid)])


def processes(url: str, count: int | None = None) -> list[int]:
    """The process ids that the supervisor tells of, once there are so many."""

    def told() -> list[int]:
        try:
            page = get(f"{url}/health")
        except HTTPError as down:
            # No scheduler runs here, and that is not well.
            with closing(down):
                page = down.read().decode()
        found: list[int] = json.loads(page)["processes"]
        return found if count is None or len(found) == count else []

    return told() if count is None else eventually(told)


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


# The demo


def summary(said: str) -> dict[str, int]:
    """The numbers that the demo ends with."""
    found = re.search(
        r"The channels have ([\d,]+) posts?\. Collected ([\d,]+) items \(([\d,]+) new\), "
        r"(\d+) duplicates, (\d+) missing",
        said,
    )
    assert found is not None, said
    names = ("posts", "collected", "new", "duplicates", "missing")
    return {name: int(value.replace(",", "")) for name, value in zip(names, found.groups(), strict=True)}


@pytest.mark.spec("G3", "G8")
@pytest.mark.thorough
def test_the_demo_collects_every_post_once_and_goes_on_where_it_was_killed(cli: CommandLine) -> None:
    """One demo runs at a time; one that was killed is continued by the next, which ends with a summary."""
    with cli.running("demo") as demo:
        eventually(lambda: " posts, lag" in cli.said())
        [dashboard] = re.findall(r"Dashboard: (http://127\.0\.0\.1:\d+/)", cli.said())
        assert "reader1" in get(f"{dashboard}accounts")
        refused = cli.real("demo", "--seconds", "1")
        assert refused.code == 2, refused
        assert "a demo is already running" in refused.err
        demo.send_signal(signal.SIGKILL)
        demo.wait()

    second = cli.real("demo", "--seconds", "2")
    assert second.code == 0, second
    told = summary(second.out)
    assert told["collected"] == told["posts"] > 4000
    assert told["new"] < told["collected"]
    assert (told["duplicates"], told["missing"]) == (0, 0)


@pytest.mark.release
@pytest.mark.spec("G3")
def test_the_demo_ends_with_ctrl_c_counts_what_is_missing_and_starts_over(cli: CommandLine) -> None:
    """Its summary is a measurement: an item taken out of the store is found to be missing."""
    with cli.running("demo") as demo:
        eventually(lambda: " posts, lag" in cli.said())
        demo.send_signal(signal.SIGINT)
        assert demo.wait(120) == 0, cli.said()
    first = summary(cli.said())
    assert first["collected"] == first["posts"] == first["new"] > 4000
    assert (first["duplicates"], first["missing"]) == (0, 0)

    with closing(sqlite3.connect(cli.folder / ".floodmark" / "demo" / "floodmark.db")) as connection, connection:
        connection.execute("DELETE FROM items WHERE key LIKE '%:17' AND stream = (SELECT min(stream) FROM items)")
    third = cli.real("demo", "--seconds", "1", "--set", "LOG_LEVEL=error")
    assert third.code == 1, third
    assert summary(third.out)["missing"] == 1

    over = summary(cli.real("demo", "--seconds", "1", "--fresh").out)
    assert over["collected"] == over["posts"] == over["new"]
