"""The image is made from the lock, runs as nobody in particular, and knows how it is."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from deploying import checked, image_environ, image_user, stages
from floodmark.api.health import health_app
from floodmark.api.server import HttpServer
from floodmark.settings import Settings, keys
from watching import DEPLOY, ROOT

# Variables of the image that are not for Floodmark.
FOREIGN = {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"}
NOBODY_LISTENS = "1"


@pytest.mark.skipif(sys.platform == "win32", reason="hadolint has no wheel for Windows")
def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_builder_is_sent_what_is_copied_and_nothing_else() -> None:
    first, *others = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[:1] != "#"]
    sent = {line.removeprefix("!") for line in others if line.startswith("!")}
    assert first == "*"
    assert sent == set(copied())
    assert all((ROOT / name).exists() for name in sent)


def copied() -> Iterable[str]:
    for stage in stages().values():
        for value in stage.all_of("COPY"):
            words = [word for word in value.split() if not word.startswith("--")]
            if "--from=" not in value:
                yield from words[:-1]


def test_what_no_target_is_named_for_is_the_image_without_a_browser() -> None:
    last = list(stages().values())[-1]
    assert (last.name, last.base) == ("floodmark", "runtime")
    assert stages()["browser"].base == "runtime"


@pytest.mark.parametrize("image", ["floodmark", "browser"])
def test_an_image_runs_as_a_numbered_user_who_is_not_root(image: str) -> None:
    uid, gid = (stages()[image].all_of("USER") or stages()["runtime"].all_of("USER"))[-1].split(":")
    assert f"{uid}:{gid}" == image_user()
    assert int(uid) > 1000
    assert f"--uid {uid} --gid {gid}" in " ".join(stages()["runtime"].all_of("RUN"))


@pytest.mark.parametrize("image", ["floodmark", "browser"])
def test_the_variables_of_an_image_are_settings(image: str, tmp_path: Path) -> None:
    environ = image_environ(image)
    settings = checked({key: value for key, value in environ.items() if key not in FOREIGN}, tmp_path)
    assert settings.host == "0.0.0.0"
    assert not FOREIGN & set(keys())


def test_ports_are_those_of_the_settings(healthcheck: ModuleType) -> None:
    defaults = {name: Settings.model_fields[name.lower()].default for name, _ in healthcheck.PORTS}
    [exposed] = stages()["runtime"].all_of("EXPOSE")
    assert dict(healthcheck.PORTS) == defaults
    assert exposed.split() == [str(port) for port in defaults.values()]


def test_everything_is_installed_by_a_lock() -> None:
    steps = " && ".join(command for name in ("build", "build-browser") for command in stages()[name].all_of("RUN"))
    installing = [step for step in steps.split(" && ") if "install" in step or "uv build" in step]
    assert len(installing) == 5
    for step in installing:
        assert "--require-hashes" in step or "--constraints requirements-dev.lock" in step or "--no-deps dist/" in step


@pytest.fixture
def healthcheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("healthcheck", DEPLOY / "healthcheck.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("status", "healthy", "alive"), [("ok", 0, 0), ("degraded", 0, 0), ("down", 1, 0), (None, 1, 1)]
)
async def test_a_container_knows_how_it_is(
    status: str | None, healthy: int, alive: int, healthcheck: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def health() -> dict[str, object]:
        return {"status": status}

    async with HttpServer(health_app(None, health)) as server:
        for key, _ in healthcheck.PORTS:
            monkeypatch.setenv(key, NOBODY_LISTENS)
        if status is not None:
            monkeypatch.setenv("SCHEDULER_PORT", str(server.port))
        assert await asyncio.to_thread(healthcheck.main, []) == healthy
        assert await asyncio.to_thread(healthcheck.main, ["--alive"]) == alive
