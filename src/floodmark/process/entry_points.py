"""Find sources, sinks, triggers and notification channels by entry point. Nothing is imported before it is used.

Floodmark registers its own in its `pyproject.toml`, as any other package does.
"""

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any

from floodmark.errors import FloodmarkError, InvalidInput

_PACKAGE = "floodmark"
_CHECKOUT = Path(__file__).parents[3]


def find_extensions(group: str) -> dict[str, EntryPoint]:
    """Return every entry point of a group by name. Where names clash, Floodmark's own win."""
    installed = _find_installed(group, tuple(sys.path))
    return {**{entry.name: entry for entry in installed}, **_find_own(group)}


def load_extension(group: str, name: str) -> Any:
    """Import the object that an entry point names. `InvalidInput` lists the names there are."""
    # Floodmark's own are found without reading the metadata of every installed package.
    entry = _find_own(group).get(name) or find_extensions(group).get(name)
    if entry is None:
        names = ", ".join(sorted(find_extensions(group)))
        raise InvalidInput(f"{name[:60]!r} is not in {group}", hint=f"use one of: {names}; or install its package")
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        package = entry.dist.name if entry.dist is not None else entry.module
        raise InvalidInput(
            f"{name} of {group} cannot be loaded from {package}: {error}", hint=f"reinstall or remove {package}"
        ) from error


def open_extensions(group: str, services_for: Callable[[str], Any]) -> dict[str, Any]:
    """Return every configured extension of a group by name. An opener returns None for one that is not configured."""
    opened = {name: load_extension(group, name)(services_for(name)) for name in sorted(find_extensions(group))}
    return {name: extension for name, extension in opened.items() if extension is not None}


@cache
def _find_installed(group: str, _search_path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """Return the entry points of all packages on the search path.

    A process looks once: reading the metadata of every package takes as long as opening the database.
    """
    return tuple(entry_points(group=group))


@cache
def _find_own(group: str) -> Mapping[str, EntryPoint]:
    values = _read_own().get(group, {})
    return {name: EntryPoint(name, value, group) for name, value in values.items()}


@cache
def _read_own() -> Mapping[str, Mapping[str, str]]:
    """Return the entry points of this package by group.

    In a checkout they come from `pyproject.toml`: the metadata of an editable install stays as it was when installed.
    """
    project = _CHECKOUT / "pyproject.toml"
    if Path(__file__).parents[2].name == "src" and project.is_file():
        groups: Mapping[str, Mapping[str, str]] = tomllib.loads(project.read_text("utf-8"))["project"]["entry-points"]
        return groups
    try:
        found = distribution(_PACKAGE).entry_points
    except PackageNotFoundError as error:
        raise FloodmarkError(
            "Floodmark is not installed: its sources cannot be found", hint="pip install floodmark"
        ) from error
    by_group: dict[str, dict[str, str]] = {}
    for entry in found:
        by_group.setdefault(entry.group, {})[entry.name] = entry.value
    return by_group
