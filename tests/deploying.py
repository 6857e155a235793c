"""What is in deploy/ for whoever starts an installation: the image, the compose file, the manifests."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from dockerfile_parse import DockerfileParser

from floodmark.settings import Settings, keys, load
from watching import DEPLOY, ROOT

RUN_LOCK, DEV_LOCK = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
_VARIABLE = re.compile(r"\$\{\w+(?::-([^}]*))?\}")


class Stage(NamedTuple):
    """One stage of the Dockerfile: what it starts from, and its instructions."""

    name: str
    base: str
    instructions: list[tuple[str, str]]

    def all_of(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]


@cache
def stages() -> dict[str, Stage]:
    """The stages of the Dockerfile by name, in their order."""
    found: dict[str, Stage] = {}
    for entry in DockerfileParser(path=str(DEPLOY / "Dockerfile"), cache_content=True).structure:
        if entry["instruction"] == "FROM":
            base, name = entry["value"].split(" AS ")
            found[name] = Stage(name, base, [])
        elif found:
            found[name].instructions.append((entry["instruction"], entry["value"]))
    return found


def image_environ(name: str = "floodmark") -> dict[str, str]:
    """What ENV sets in an image: by its stage and those it starts from."""
    stage = stages()[name]
    inherited = image_environ(stage.base) if stage.base in stages() else {}
    return inherited | dict(pair.split("=", 1) for value in stage.all_of("ENV") for pair in value.split())


def image_user() -> str:
    """The user that the image runs as, in numbers."""
    return stages()["runtime"].all_of("USER")[-1]


@cache
def services() -> dict[str, dict[str, Any]]:
    """The services of the compose file, with every variable at its default."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


@cache
def compose() -> dict[str, Any]:
    """The compose file, with every variable at its default."""
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(lambda match: match[1] or "", text))
    return found


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a YAML file."""
    return iter(yaml.safe_load_all(path.read_text("utf-8")))


def checked(environ: Mapping[str, str], folder: Path) -> Settings:
    """The settings of a process with these variables that is started in this folder. No other variable is let pass."""
    assert set(environ) <= set(keys())
    return load({}, folder=folder, environ=environ)


def commands() -> set[str]:
    """Everything that can be typed behind `floodmark`."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    return set(re.findall(r"^## floodmark ([a-z -]+)$", page, re.MULTILINE))


def pinned(lock: Path) -> dict[str, str]:
    """The packages of a lock that have a version and a hash, by name."""
    return dict(
        re.findall(r"^([a-z0-9._-]+)==(\S+)(?: ; .*)? \\\n +--hash=sha256:", lock.read_text("utf-8"), re.MULTILINE)
    )
