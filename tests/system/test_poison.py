"""A collector that takes its process down with it: given up after a few deaths, while others go on."""

from pathlib import Path

import pytest

from command_line import CommandLine, eventually

POISON = """
import os


def poison(since):
    os.abort()
"""


@pytest.mark.spec("G4", "G9")
@pytest.mark.release
def test_what_crashes_its_process_is_given_up_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_url: str
) -> None:
    """Each death is counted before the next try, so nothing is tried for ever; the parent replaces the processes."""
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, DATABASE_URL=pg_url, EXECUTION_LEASE="6", EXECUTION_RESCUE_MAX="1")
    (tmp_path / "chatty.py").write_text(POISON, encoding="utf-8")
    cli.good("migrate")
    scheduler = CommandLine(tmp_path, **{k: v for k, v in cli.settings.items() if k != "PYTHON_MODULES"})
    with scheduler.running("scheduler", "--port", "0"), cli.running("worker", "--processes", "2", "--port", "0"):
        for name in ("poison", "news"):
            module = "chatty" if name == "poison" else "feeds"
            cli.good("add", "python", f"{module}:{name}", "--name", name)
        cli.good("run", "poison")

        eventually(lambda: cli.good("history", "poison", "--json").json[0]["state"] == "dead")
        assert cli.good("run", "news", "--wait", "--json").json["state"] == "done"
    [execution] = cli.good("history", "poison", "--json").json
    assert "its worker died 2 times in a row without progress" in execution["error_message"]
