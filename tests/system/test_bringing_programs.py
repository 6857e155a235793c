"""`run.py test` brings the programs that tests need, with programs of ours in place of those that would bring them."""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WATCHERS = ("prometheus", "promtool", "prometheus-pushgateway", "prometheus-alertmanager", "amtool")
PACKAGES = "prometheus prometheus-pushgateway prometheus-alertmanager"

# What the look-up prints: the browser, once it is there.
LOOK_UP = """#!/bin/sh
case "$*" in
  *sources.cookies.browser*) if [ -e {browser} ]; then echo {browser}; else exit 1; fi ;;
  *playwright*) {playwright} ;;
esac
"""


class Machine:
    """A machine with a venv and an apt-get of ours, and nothing else."""

    def __init__(self, folder: Path, run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.run = folder, run
        self.browser = folder / "chromium"
        monkeypatch.setattr(run, "BIN", folder)
        monkeypatch.setenv("PATH", str(folder))
        # As if it were not set; and whatever it is set to is gone afterwards.
        monkeypatch.setenv("FLOODMARK_CHROMIUM", "")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        self.bring = self.bringing("chromium")
        self.playwright("echo 'Error: no network'; exit 1")

    def bringing(self, *names: str) -> str:
        """A script that brings these programs."""
        paths = [self.folder / name for name in names]
        return "; ".join(f"printf '#!/bin/sh\\necho 1\\n' > {path}; /bin/chmod +x {path}" for path in paths)

    def playwright(self, does: str) -> None:
        self.program("python", LOOK_UP.format(browser=self.browser, playwright=does))

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def brought(self) -> str:
        self.run.bring_programs(browser=True, watchers=False)
        return os.environ["FLOODMARK_CHROMIUM"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.syspath_prepend(str(ROOT))
    return Machine(tmp_path, import_module("run"), monkeypatch)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_a_browser_that_is_there_is_used(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.program("chromium", "#!/bin/sh\necho Chromium 1\n")
    assert machine.brought() == str(machine.browser)
    assert capfd.readouterr().out == f"- browser: {machine.browser}\n"


def test_else_the_download_is_made(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.playwright(machine.bring)
    assert machine.brought() == str(machine.browser)
    assert "Installing Chromium from Playwright: " in capfd.readouterr().out


def test_else_root_installs_the_package(machine: Machine, capfd: pytest.CaptureFixture[str], as_root: None) -> None:
    # Downloaded, but without the libraries that it needs.
    machine.playwright(f"printf '#!/bin/sh\\nexit 127\\n' > {machine.browser}; /bin/chmod +x {machine.browser}")
    machine.program("apt-get", f"#!/bin/sh\n{machine.bring}\n")
    assert machine.brought() == str(machine.browser)
    said = capfd.readouterr().out
    assert "That did not help: it ended with code 0" in said
    assert "Installing Debian's packages: apt-get install --yes --no-install-recommends chromium" in said


def test_a_shell_that_cannot_be_had_is_done_without(
    machine: Machine, capfd: pytest.CaptureFixture[str], as_root: None
) -> None:
    machine.program("chromium", "#!/bin/sh\necho Chromium 1\n")
    machine.program("apt-get", "#!/bin/sh\necho 'E: Unable to locate package'; exit 100\n")
    assert machine.brought() == str(machine.browser)
    assert capfd.readouterr().out.endswith(f"- browser: {machine.browser}\n")


def test_where_no_browser_can_be_had_it_says_so_loudly(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.program("apt-get", f"#!/bin/sh\n{machine.bring}\n")
    assert machine.brought() == "", "only root installs packages"
    said = capfd.readouterr().out
    assert "That did not help: Error: no network" in said
    assert "cookie scans are NOT TESTED" in said


def test_everything_that_is_missing_is_installed_in_one_go(
    machine: Machine, capfd: pytest.CaptureFixture[str], as_root: None
) -> None:
    machine.program("apt-get", f"#!/bin/sh\n{machine.bringing('chromium', *WATCHERS)}\n")
    machine.run.bring_programs(browser=True, watchers=True)
    said = capfd.readouterr().out
    # The shell on its own: not every system has it, and the others must not fail with it.
    assert said.count("apt-get install") == 2
    assert "apt-get install --yes --no-install-recommends chromium-headless-shell ..." in said
    assert f"apt-get install --yes --no-install-recommends chromium {PACKAGES} ..." in said
    assert said.endswith(f"- browser: {machine.browser}\n- prometheus: {machine.folder}/prometheus\n")


def test_only_what_is_missing_is_installed_after_the_list_was_fetched(
    machine: Machine, capfd: pytest.CaptureFixture[str], as_root: None
) -> None:
    """As in a fresh container, which has no list of packages; and under the names that its makers give it."""
    for name in ("prometheus", "promtool", "pushgateway"):
        machine.program(name, "#!/bin/sh\n")
    there, listed = machine.bringing("prometheus-alertmanager", "amtool"), machine.folder / "listed"
    machine.program(
        "apt-get",
        f"#!/bin/sh\nif [ $1 = update ]; then : > {listed}; exit; fi\n"
        f"[ -e {listed} ] || {{ echo 'E: Unable to locate package'; exit 100; }}\n{there}\n",
    )
    machine.run.bring_programs(browser=False, watchers=True)
    said = capfd.readouterr().out
    install = "apt-get install --yes --no-install-recommends prometheus-alertmanager ..."
    assert [line.partition(": ")[2] for line in said.splitlines()[1:4]] == [install, "apt-get update ...", install]
    assert said.endswith(f"- prometheus: {machine.folder}/prometheus\n")


def test_where_prometheus_cannot_be_had_it_says_so_loudly(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.run.bring_programs(browser=False, watchers=True)
    said = capfd.readouterr().out
    assert "dashboards and alerts are NOT TESTED (with CI=true that is a failure)" in said
    assert ", ".join(PACKAGES.split()) in said


def test_only_what_is_wanted_is_looked_for(machine: Machine) -> None:
    is_about = machine.run.is_about
    assert is_about([], "seeing")
    assert is_about(["-x", "-n", "2"], "cookies"), "that is all of them"
    assert is_about(["-q", "tests"], "cookies"), "that is all of them too"
    assert is_about(["tests/cookies/test_scans.py::test_one_execution_makes_one_item"], "cookies")
    assert is_about(["-k", "x", "tests/seeing"], "seeing", "alerts")
    assert not is_about(["tests/unit/test_cron.py"], "seeing", "alerts")
    assert not is_about(["-x", "tests/contracts"], "cookies")
