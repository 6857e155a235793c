"""`run.py test` brings the browser that the tests need, with programs of ours in place of those that would bring it."""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

# What the look-up prints: the browser, once it is there.
LOOK_UP = """#!/bin/sh
case "$*" in
  *sources.cookies.browser*) if [ -e {browser} ]; then echo {browser}; else exit 1; fi ;;
  *playwright*) {playwright} ;;
esac
"""


class Machine:
    """A machine with a venv and an apt-get of ours."""

    def __init__(self, folder: Path, run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.run = folder, run
        self.browser = folder / "chromium"
        monkeypatch.setattr(run, "BIN", folder)
        monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
        # As if it were not set; and whatever it is set to is gone afterwards.
        monkeypatch.setenv("FLOODMARK_CHROMIUM", "")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        self.bring = f"printf '#!/bin/sh\\necho Chromium 1\\n' > {self.browser}; chmod +x {self.browser}"
        self.playwright("echo 'Error: no network'; exit 1")

    def playwright(self, does: str) -> None:
        self.program("python", LOOK_UP.format(browser=self.browser, playwright=does))

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def brought(self) -> str:
        self.run.bring_browser()
        return os.environ["FLOODMARK_CHROMIUM"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.syspath_prepend(str(ROOT))
    return Machine(tmp_path, import_module("run"), monkeypatch)


def test_one_that_is_there_is_used(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.program("chromium", "#!/bin/sh\necho Chromium 1\n")
    assert machine.brought() == str(machine.browser)
    assert capfd.readouterr().out == f"- browser: {machine.browser}\n"


def test_else_the_download_is_made(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.playwright(machine.bring)
    assert machine.brought() == str(machine.browser)
    assert "Getting Playwright's own: " in capfd.readouterr().out


def test_else_root_installs_the_package(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Downloaded, but without the libraries that it needs.
    machine.playwright(f"printf '#!/bin/sh\\nexit 127\\n' > {machine.browser}; chmod +x {machine.browser}")
    machine.program("apt-get", f"#!/bin/sh\n{machine.bring}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert machine.brought() == str(machine.browser)
    said = capfd.readouterr().out
    assert "That did not help: it ended with code 0" in said
    assert "Getting Debian's package: apt-get install --yes --no-install-recommends chromium" in said


def test_where_none_can_be_had_it_says_so_loudly(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.program("apt-get", f"#!/bin/sh\n{machine.bring}\n")
    assert machine.brought() == "", "only root installs packages"
    said = capfd.readouterr().out
    assert "That did not help: Error: no network" in said
    assert "cookie scans are NOT TESTED" in said
