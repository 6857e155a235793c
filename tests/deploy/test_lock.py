"""The lock has everything that the image is made of."""

import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploying import DEV_LOCK, pinned
from watching import DEPLOY, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize("extra", ["", "browser"])
def test_all_that_is_installed_is_in_the_lock_with_hashes(extra: str) -> None:
    """The builder gets the lock as constraints, which bind only what they name: so they must name everything."""
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].get(extra, ())]
    locked = pinned(DEV_LOCK)
    assert "telethon" in locked
    assert closure(wanted) <= set(locked)
    assert closure(PROJECT["build-system"]["requires"]) <= set(locked)
    assert set(pinned(DEPLOY / "build.lock")) == {"setuptools", "uv"}


def closure(wanted: Iterable[str]) -> set[str]:
    """These requirements and all that they require in turn, on Linux, as they are installed here."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in wanted]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"sys_platform": "linux", "extra": extra}):
            continue
        for wish in {"", *requirement.extras}:
            name = canonicalize_name(requirement.name)
            if (name, wish) not in found:
                found.add((name, wish))
                waiting += [(Requirement(text), wish) for text in distribution(name).requires or ()]
    return {name for name, _ in found}
