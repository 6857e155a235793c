"""Modules that take long to import, imported when they are first used."""

from importlib import import_module
from typing import Any


class LazyModule:
    """A stand-in for the module `name`; use it where the type checker sees a plain `import`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
