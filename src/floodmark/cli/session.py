"""Open the operations for one command: those of a server, or those on the database.

Imports are inside the functions: help loads no settings, and a command for a server loads no database library.
"""
# ruff: noqa: PLC0415

import getpass
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.audit import Actor
from floodmark.operations.declared import AsyncOperations

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.operations.local import LocalOperations
    from floodmark.settings import Settings


@asynccontextmanager
async def open_operations(overrides: Mapping[str, str], *, only_reads: bool = False) -> AsyncIterator[AsyncOperations]:
    """Yield the operations of the server in FLOODMARK_URL; without one, those on the database."""
    settings = load_settings(overrides)
    if settings.floodmark_url is None:
        async with open_here(overrides, only_reads=only_reads) as operations:
            yield operations
        return
    from floodmark.client import Client

    token = settings.floodmark_token
    async with Client(settings.floodmark_url, None if token is None else token.get_secret_value()) as client:
        yield client


@asynccontextmanager
async def open_here(overrides: Mapping[str, str], *, only_reads: bool = False) -> AsyncIterator["LocalOperations"]:
    """Yield the operations on the database; the actor is the user of this machine.

    A command that `only_reads` creates no database: if there is none, it reads an empty temporary one.
    """
    from floodmark.operations.local import LocalOperations
    from floodmark.wiring.resources import open_resources

    app = load_application(overrides)
    settings = app.settings
    with ExitStack() as stack:
        if only_reads and is_database_missing(settings.database_url):
            empty = stack.enter_context(TemporaryDirectory(prefix="floodmark-"))
            settings = settings.model_copy(update={"database_url": f"sqlite:///{empty}/floodmark.db"})
        async with open_resources(settings, validation=app.validation) as resources:
            yield LocalOperations(resources, Actor(who=user_name(), via="cli"))


def is_database_missing(database_url: str) -> bool:
    """Return whether the URL names a SQLite file that does not exist."""
    from sqlalchemy import make_url

    url = make_url(database_url)
    return url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()


def user_name() -> str:
    """Return the name of the user of this machine; in a container there may be only a number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def load_settings(overrides: Mapping[str, str]) -> "Settings":
    """Return the settings of this folder and the environment, without those of an application."""
    from floodmark.settings import load

    return load(overrides, folder=Path.cwd(), environ=os.environ)


def load_application(overrides: Mapping[str, str]) -> "Floodmark":
    """Return the application of FLOODMARK_APP, or an empty one. `overrides` win over its own settings."""
    from floodmark.app import Floodmark

    settings = load_settings(overrides)
    folder = str(Path.cwd())
    if folder not in sys.path:
        # Only now, after our own imports: a module of the user must not hide one that Floodmark needs.
        sys.path.insert(0, folder)
    if settings.floodmark_app is None:
        return Floodmark(settings)
    app = _import_application(settings.floodmark_app)
    app.settings = _override(app.settings, settings, overrides)
    return app


def _import_application(reference: str) -> "Floodmark":
    from floodmark.app import Floodmark

    module, _, name = reference.partition(":")
    hint = "start in the folder that contains the module, and name it as in: floodmark up --app package.module:app"
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except FloodmarkError:
        raise
    except Exception as error:
        # The import runs code of the user, which may raise anything.
        raise InvalidInput(f"{reference!r} cannot be imported: {type(error).__name__}: {error}", hint=hint) from error
    if not isinstance(found, Floodmark):
        raise InvalidInput(f"{reference!r} is {type(found).__name__!r}, not a Floodmark instance", hint=hint)
    return found


def _override(base: "Settings", loaded: "Settings", overrides: Mapping[str, str]) -> "Settings":
    names = [key.lower() for key in overrides]
    origins = {name: base.origin(name) for name in type(base).model_fields}
    changed = base.model_copy(update={name: getattr(loaded, name) for name in names})
    return changed.with_origins(origins | {name: loaded.origin(name) for name in names})
