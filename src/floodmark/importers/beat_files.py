"""Reads a schedule of Celery beat from a module, a JSON file, or the schedule file of beat."""

import dbm
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from floodmark.errors import InvalidInput

from .celery import Entries, read_schedule, read_shelf

_LARGEST = 10_000_000
_HINT = "for example: floodmark import celery myapp.celeryconfig:beat_schedule, beat.json or celerybeat-schedule"


def read_beat(what: str, *, timezone: str) -> Entries:
    """Return the entries, and the unreadable ones with name, reason and hint."""
    path = Path(what)
    is_json = path.suffix == ".json"
    if not is_json and (":" not in what or path.exists()):
        return read_shelf(_read_keys(path), timezone=timezone)
    schedule = _read_json(path) if is_json else _import_schedule(what)
    if not isinstance(schedule, Mapping):
        raise InvalidInput("a beat_schedule is a mapping from names to entries", hint=_HINT)
    return read_schedule(schedule, timezone=timezone)


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidInput(f"{path} is too large for a schedule", hint=_HINT)
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", hint=_HINT) from None


def _import_schedule(what: str) -> Any:
    """Import a module of the user, as Celery does."""
    module, _, name = what.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{what[:80]!r} cannot be imported: {error}", hint=_HINT) from error
    # A Celery app has it in its settings.
    return getattr(getattr(found, "conf", None), "beat_schedule", found)


def _read_keys(path: Path) -> dict[str, bytes]:
    """Return the keys to read. Nothing is unpickled here, and the file is not changed."""
    # Some formats add their own file extension.
    if not path.exists() and not list(path.parent.glob(f"{path.name}.*")):
        raise InvalidInput(f"there is no file {path}", hint=_HINT)
    try:
        with dbm.open(str(path), "r") as stored:
            return {key: stored[key] for key in ("entries", "__version__") if key in stored}
    except (dbm.error[0], OSError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", hint=_HINT) from None
