"""JSON and TOML: a list of targets, a list of jobs, or an export of jobs."""

import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.strict_json import NotJson, TooDeep, read_json, require_shallow

from .rows import JobList

# The version of the form in which jobs are exported.
VERSION = 1
_PARTS = ("version", "defaults", "selection", "jobs")


def read_json_list(text: str) -> JobList:
    """Return the rows of a JSON document."""
    try:
        return _rows_of(read_json(text))
    except NotJson as error:
        raise InvalidInput(f"it is not JSON: {error}", hint="correct it, or name the format with --format") from None


def read_toml(text: str) -> JobList:
    """Return the rows of a TOML document."""
    try:
        found = tomllib.loads(text)
        require_shallow(found)
        return _rows_of(found)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"it is not TOML: {error}", hint="correct it, or name the format with --format") from None
    except (RecursionError, TooDeep):
        raise InvalidInput(f"it is {TooDeep()}", hint="use flatter values") from None


def _rows_of(value: Any) -> JobList:
    found = JobList()
    entries = value
    if isinstance(value, Mapping):
        entries = _open_document(value, found)
    if not isinstance(entries, list):
        raise InvalidInput("it has no list of jobs", hint='for example ["@a", "@b"], or [{"target": "@a"}]')
    for number, entry in enumerate(entries, 1):
        _add_entry(found, f"entry {number:,}", entry)
    return found


def _open_document(document: Mapping[str, Any], found: JobList) -> Any:
    """Read the parts of an export around its jobs."""
    unknown = [name for name in document if name not in _PARTS]
    if unknown:
        raise InvalidInput(f"it has an unknown part {unknown[0][:60]!r}", hint=f"the parts are {', '.join(_PARTS)}")
    version = document.get("version", VERSION)
    if version != VERSION:
        hint = "use the version of Floodmark that wrote it"
        raise InvalidInput(f"it has version {str(version)[:20]}, and {VERSION} is known here", hint=hint)
    for part in ("defaults", "selection"):
        given = document.get(part)
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInput(f"{part} is not an object", hint=f"for example {part} = {{}}")
    found.defaults, found.selection = document.get("defaults") or {}, document.get("selection")
    return document.get("jobs", [])


def _add_entry(found: JobList, where: str, entry: Any) -> None:
    if isinstance(entry, str):
        found.add(where, {"target": entry})
    elif not isinstance(entry, Mapping):
        found.add(where, error=InvalidInput("it is neither a text nor an object", hint='for example {"target": "@a"}'))
    elif name := _find_date(entry):
        found.add(where, error=InvalidInput(f"{name} is a date", hint="put it in quotes"))
    else:
        found.add(where, entry)


def _find_date(value: Any, name: str = "") -> str | None:
    """Return where TOML has a date, which JSON does not know."""
    if isinstance(value, datetime | date | time):
        return name
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return next((found for key, inner in entries if (found := _find_date(inner, f"{name}.{key}".strip(".")))), None)
