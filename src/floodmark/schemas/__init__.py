"""The JSON Schemas of what leaves Floodmark: one file for each kind of post event, one for artifacts."""

import json
from importlib.resources import files
from typing import Any

from floodmark.errors import NotFound


def names() -> list[str]:
    """Every schema there is."""
    return sorted(
        file.name.removesuffix(".json") for file in files(__package__).iterdir() if file.name.endswith(".json")
    )


def schema(name: str) -> dict[str, Any]:
    """One of them, for any validator of JSON Schema 2020-12."""
    if name not in names():
        raise NotFound(f"there is no schema {name[:60]!r}", hint=f"the schemas are: {', '.join(names())}")
    found: dict[str, Any] = json.loads((files(__package__) / f"{name}.json").read_text(encoding="utf-8"))
    return found
