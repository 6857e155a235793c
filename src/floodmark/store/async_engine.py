"""The asyncio engine of SQLAlchemy, imported without the ORM, which Floodmark does not use.

The package `sqlalchemy.ext.asyncio` imports the ORM for its sessions: one seventh of the time that a command takes to
start. Here only its module `engine` is imported. A program that imports the package itself gets the whole of it, with
the same classes.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

__all__ = ["AsyncConnection", "AsyncEngine", "create_async_engine"]

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
else:
    _PACKAGE = "sqlalchemy.ext.asyncio"

    def _import_engine():
        if _PACKAGE in sys.modules:
            return import_module(f"{_PACKAGE}.engine")
        # A package with a path and without content, for as long as the import takes.
        sys.modules[_PACKAGE] = module_from_spec(find_spec(_PACKAGE))
        try:
            return import_module(f"{_PACKAGE}.engine")
        finally:
            del sys.modules[_PACKAGE]

    _engine = _import_engine()
    AsyncConnection, AsyncEngine = _engine.AsyncConnection, _engine.AsyncEngine
    create_async_engine = _engine.create_async_engine
