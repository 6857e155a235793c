"""The operations, opened for one command: of the server that was named, or on the database.

A command for a server loads no database library.
"""

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
from floodmark.settings import Settings, load

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.operations.local import LocalOperations


@asynccontextmanager
async def open_operations(overrides: Mapping[str, str], *, only_reads: bool = False) -> AsyncIterator[AsyncOperations]:
    """Yield the operations of the server that was named, else those on the database."""
    settings = loaded(overrides)
    if settings.floodmark_url is None:
        async with open_here(overrides, only_reads=only_reads) as operations:
            yield operations
        return
    # An HTTP client, which takes a while to import.
    from floodmark.client import Client  # noqa: PLC0415

    token = settings.floodmark_token
    async with Client(settings.floodmark_url, None if token is None else token.get_secret_value()) as client:
        yield client


@asynccontextmanager
async def open_here(overrides: Mapping[str, str], *, only_reads: bool = False) -> AsyncIterator["LocalOperations"]:
    """Yield the operations on the database; the user of this machine is the actor.

    A command that `only_reads` creates no database: where there is none yet it reads an empty one.
    """
    from floodmark.operations.local import LocalOperations  # noqa: PLC0415 - loads the database
    from floodmark.wiring.resources import open_resources  # noqa: PLC0415 - as above

    app = application(overrides)
    settings = app.settings
    with ExitStack() as stack:
        if only_reads and is_missing(settings.database_url):
            empty = stack.enter_context(TemporaryDirectory(prefix="floodmark-"))
            settings = settings.model_copy(update={"database_url": f"sqlite:///{empty}/floodmark.db"})
        async with open_resources(settings, validation=app.validation) as resources:
            yield LocalOperations(resources, Actor(who=whoever_types(), via="cli"))


def is_missing(database_url: str) -> bool:
    """Whether it names a SQLite file that is not there."""
    from sqlalchemy import make_url  # noqa: PLC0415 - takes a while

    url = make_url(database_url)
    return url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()


def whoever_types() -> str:
    """The name of the user of this machine; in a container there may be none, only a number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"


def loaded(overrides: Mapping[str, str]) -> Settings:
    """The settings as far as they are not an application's own."""
    return load(overrides, folder=Path.cwd(), environ=os.environ)


def application(overrides: Mapping[str, str]) -> "Floodmark":
    """The application that FLOODMARK_APP names, else an empty one. The command line has the last word on settings."""
    from floodmark.app import Floodmark  # noqa: PLC0415 - loads the database

    settings = loaded(overrides)
    folder = str(Path.cwd())
    if folder not in sys.path:
        # Last of all our own imports: a module of the user's must not hide one that Floodmark needs.
        sys.path.insert(0, folder)
    if settings.floodmark_app is None:
        return Floodmark(settings)
    app = _imported(settings.floodmark_app)
    app.settings = _overlaid(app.settings, settings, overrides)
    return app


def _imported(reference: str) -> "Floodmark":
    from floodmark.app import Floodmark  # noqa: PLC0415 - loads the database

    module, _, name = reference.partition(":")
    hint = "start in the folder that holds the module, and name it as in: floodmark up --app package.module:app"
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except FloodmarkError:
        raise
    except Exception as error:
        # Code of the user's, run by importing it: whatever it raises is theirs to see.
        raise InvalidInput(f"{reference!r} cannot be imported: {type(error).__name__}: {error}", hint=hint) from error
    if not isinstance(found, Floodmark):
        raise InvalidInput(f"{reference!r} is {type(found).__name__!r}, not a Floodmark instance", hint=hint)
    return found


def _overlaid(base: Settings, loaded: Settings, overrides: Mapping[str, str]) -> Settings:
    """What the application was made with, but for what the command line says."""
    said = [key.lower() for key in overrides]
    origins = {name: base.origin(name) for name in type(base).model_fields}
    changed = base.model_copy(update={name: getattr(loaded, name) for name in said})
    return changed.with_origins(origins | {name: loaded.origin(name) for name in said})
