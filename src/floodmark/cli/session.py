"""The stores behind the commands, opened for one command. The only module of the CLI that loads everything."""

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from floodmark.app import Floodmark
from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.explain import Explanation, explain
from floodmark.job import Job
from floodmark.parts import Parts, open_parts
from floodmark.settings import Settings, load
from floodmark.signals.port import Topic
from floodmark.store.breakers import Breakers
from floodmark.store.dead_letters import DeadLetters
from floodmark.store.events import EventLog
from floodmark.store.fleet import Fleet
from floodmark.store.history import History
from floodmark.store.jobs import Jobs
from floodmark.store.limits import Limits
from floodmark.store.views import Views
from floodmark.store.watermarks import Watermarks


class Session(Struct, frozen=True, kw_only=True):
    """Everything a command can ask or tell."""

    parts: Parts
    jobs: Jobs
    history: History
    letters: DeadLetters
    watermarks: Watermarks
    log: EventLog
    fleet: Fleet
    limits: Limits
    breakers: Breakers
    views: Views

    async def leader(self) -> str | None:
        """Who schedules."""
        return await self.parts.leases.holder(self.parts.settings.scheduler_leader_key)

    async def explain(self, job: Job) -> Explanation:
        """Why the job is not running, or that it is."""
        return explain(await self.views.load(job, leader=await self.leader()))

    async def job_id(self, text: str | None) -> str | None:
        """The id of a job that may have been deleted: what is no job is taken for its id or name."""
        if text is None:
            return None
        try:
            return (await self.jobs.get(text)).job_id
        except NotFound:
            return text

    async def stream(self, text: str) -> str:
        """A stream by its name, or by the name of a job that collects it."""
        try:
            return (await self.watermarks.show(text)).stream
        except NotFound as unknown:
            try:
                return (await self.jobs.get(text)).stream
            except FloodmarkError:
                raise unknown from None

    async def items_stream(self, text: str) -> str:
        """Where the items of a stream or job are: of a channel, under its number, whatever its name."""
        if await self.watermarks.holds_items(text):
            return text
        name = await self.stream(text)
        try:
            state = await self.watermarks.show(name)
        except NotFound:
            # A job that has not run yet.
            return name
        return state.items_stream or state.stream

    async def wake(self, topic: Topic) -> None:
        """Let those who wait notice at once what was changed."""
        await self.parts.signals.notify(topic)


@asynccontextmanager
async def open_session(settings: Settings) -> AsyncIterator[Session]:
    """Open everything for one command."""
    async with open_parts(settings) as parts:
        yield session_of(parts)


def session_of(parts: Parts) -> Session:
    """The same for a process that is open already."""
    given = (parts.database, parts.clock)
    return Session(
        parts=parts,
        jobs=Jobs(*given),
        history=History(*given),
        letters=DeadLetters(*given),
        watermarks=Watermarks(*given),
        log=EventLog(*given),
        fleet=Fleet(*given),
        limits=Limits(*given),
        breakers=Breakers(*given),
        views=Views(*given),
    )


def application(overrides: Mapping[str, str]) -> Floodmark:
    """The application that FLOODMARK_APP names, else an empty one. The command line has the last word on settings."""
    settings = load(overrides, folder=Path.cwd(), environ=os.environ)
    folder = str(Path.cwd())
    if folder not in sys.path:
        # Last of all our own imports: a module of the user's must not hide one that Floodmark needs.
        sys.path.insert(0, folder)
    if settings.floodmark_app is None:
        return Floodmark(settings)
    app = _imported(settings.floodmark_app)
    app.settings = _overlaid(app.settings, settings, overrides)
    return app


def _imported(reference: str) -> Floodmark:
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
