"""References to environment variables in a file, for secrets that must not be in it: `${env:NAME}`."""

import re
from collections.abc import Mapping
from typing import Any

from floodmark.errors import InvalidInput

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
# The columns that may contain a secret.
_COLUMNS = ("target", "url", "stream", "params")


class References:
    """Replaces references by the values of variables, and hides these values in texts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._used: dict[str, str] = {}

    def resolve(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a job with the values of variables. `InvalidInput` if one is not set."""
        return {name: self._resolve(value) if name in _COLUMNS else value for name, value in columns.items()}

    def hide(self, text: str) -> str:
        """Return a text with the references instead of the values."""
        for value, reference in self._used.items():
            text = text.replace(value, reference)
        return text

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(self._value_of, value)
        if isinstance(value, Mapping):
            return {name: self._resolve(inner) for name, inner in value.items()}
        return [self._resolve(inner) for inner in value] if isinstance(value, list) else value

    def _value_of(self, found: re.Match[str]) -> str:
        value = self._environ.get(found[1], "")
        if not value:
            raise InvalidInput(
                f"the variable {found[1]} is not set", hint=f"set it: {found[1]}=... floodmark apply ..."
            )
        self._used[value] = found[0]
        return value
