"""Writes TOML, as far as the export of jobs needs it; `tomllib` only reads."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
# JSON leaves this character as it is, TOML does not allow it.
_DELETE = "\x7f"


def toml_value(value: Any) -> str:
    """Return a value on one line. Raises `TypeError` for null, which TOML does not have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace(_DELETE, "\\u007f")
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(str(name))} = {toml_value(inner)}" for name, inner in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def toml_table(values: Mapping[str, Any]) -> str:
    """Return the lines of a table."""
    return "".join(f"{_key(name)} = {toml_value(value)}\n" for name, value in values.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)
