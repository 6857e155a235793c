"""`logs`: what happened to a job, in order, and what happens to it now."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.execution import State
from floodmark.model.ids import floor_id
from floodmark.model.page import take

from .parsing import duration
from .root import AsJson, Desk
from .showing import json_line, safe
from .story import LEVELS, Level, StoryEntry, batches_of, changes_of, in_order, story_of
from .times import absolute

if TYPE_CHECKING:
    from floodmark.model.execution import Execution
    from floodmark.operations.declared import AsyncOperations
    from floodmark.store.port import Event

_LOOK_SECONDS = 0.5
# How many of the newest events are searched for batches of this job, and how many executions are read at most.
_EVENTS, _PAGE, _EXECUTIONS = 5_000, 1_000, 500
_CHANGES = 100
_RAN = [state for state in State if state is not State.SKIPPED]
_ID_SHOWN = 13
_STYLES = {"debug": "dim", "info": "", "warning": "yellow", "error": "bold red"}
_EVENT_STYLES = {"done": "green", "started": "cyan", "waits": "yellow", "kept": "blue"}


class LogFollower:
    """Looks at a job again and again, and tells each thing once."""

    def __init__(self, operations: "AsyncOperations", job: str, *, oldest: str, limit: int) -> None:
        self._operations, self._job, self._oldest, self._limit = operations, job, oldest, limit
        self._told: dict[tuple[datetime, str, str | None], None] = {}
        self._running: set[str] = set()
        self._position: int | None = None
        self._name: str | None = None

    async def entries(self) -> list[StoryEntry]:
        """What was not told before, in order."""
        executions = await self._executions()
        found = [entry for execution in executions for entry in self._story(execution)]
        found += batches_of(await self._events(), executions)
        found += await self._changes(executions)
        fresh = [entry for entry in in_order(found) if entry.key not in self._told]
        self._told |= dict.fromkeys(entry.key for entry in found)
        return fresh

    def _story(self, execution: "Execution") -> list[StoryEntry]:
        """When an attempt ends its beginning is dated anew, by the worker; it was told and is not told again."""
        was_running = execution.execution_id in self._running
        is_running = execution.state is State.RUNNING
        if is_running:
            self._running.add(execution.execution_id)
        else:
            self._running.discard(execution.execution_id)
        known = [entry for entry in story_of(execution) if entry.event == "started"] if was_running else []
        if not is_running:
            self._told |= dict.fromkeys(entry.key for entry in known)
        return story_of(execution)

    async def _executions(self) -> "list[Execution]":
        """Those that ran or will, and what was skipped meanwhile, of which there may be many."""
        page = await take(self._operations.each_execution(job=self._job, states=_RAN), self._limit)
        skips = await take(self._operations.each_execution(job=self._job, states=[State.SKIPPED]), self._limit)
        if self._name is None:
            self._name = await self._named([*page, *skips])
        first = min([execution.execution_id for execution in page], default="")
        oldest = max(self._oldest, first)
        return page_of(page, self._oldest) + page_of(skips, oldest)

    async def _named(self, page: "Sequence[Execution]") -> str:
        """The name of the job; it may be gone, and then only its executions know it."""
        try:
            return (await self._operations.job(self._job)).name
        except NotFound:
            if not page:
                raise
            return page[0].job_name

    async def _events(self) -> "list[Event]":
        newest = await self._operations.last_position()
        position = max(0, newest - _EVENTS) if self._position is None else self._position
        # Also if none of them is ours: what was searched once is not searched again.
        self._position = max(newest, position)
        found: list[Event] = []
        try:
            while position < self._position:
                page = await take(self._operations.each_event(after=position, stream=self._job), _PAGE)
                found += page
                position = page[-1].position if len(page) == _PAGE else self._position
            self._position = max([self._position, *(event.position for event in found)])
        except NotFound:
            # The job is gone, and with it the name of its stream.
            return []
        return found

    async def _changes(self, executions: "Sequence[Execution]") -> list[StoryEntry]:
        since = min((e.created_at for e in executions if e.created_at is not None), default=None)
        rows = await take(self._operations.each_audit_row(what=f"job:{self._name}"), _CHANGES)
        return [entry for entry in changes_of(rows) if since is None or entry.at >= since or self._told]


def page_of(executions: "Sequence[Execution]", oldest: str) -> "list[Execution]":
    """Those that are not older; of what is unfinished or has just ended, all."""
    return [e for e in executions if e.execution_id >= oldest or e.completed_at is None]


def logs(
    context: typer.Context,
    *,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name or id of a job, also of a deleted one.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep running and print new events.")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only the last 1h, 7d, ... (default: the last executions).")
    ] = None,
    level: Annotated[str, typer.Option(metavar="LEVEL", help=f"Lowest level to print: {', '.join(LEVELS)}.")] = "info",
    limit: Annotated[int, typer.Option(min=1, max=_EXECUTIONS, help="Number of executions, without --since.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the events of a job in order: starts, stored items, waits, failures and ends."""
    desk, least = Desk.of(context), _level(level)
    back = duration(since)
    oldest = "" if back is None else floor_id(datetime.now(UTC) - back)

    async def work(operations: "AsyncOperations") -> None:
        look = LogFollower(operations, job, oldest=oldest, limit=limit if back is None else _EXECUTIONS)
        entries = _from(await look.entries(), least)
        if not entries and not follow and not as_json:
            return desk.out.print("Nothing happened." if since is None else f"Nothing happened within {safe(since)}.",
                                  markup=False, highlight=False)  # fmt: skip
        _print(desk, entries, as_json=as_json)
        while follow:
            await asyncio.sleep(_LOOK_SECONDS)
            _print(desk, _from(await look.entries(), least), as_json=as_json)
        return None

    desk.work(work)


def _level(text: str) -> int:
    if text.lower() not in get_args(Level):
        raise InvalidInput(f"{text[:40]!r} is not a level", hint=f"use one of {', '.join(LEVELS)}")
    return [*LEVELS].index(text.lower())  # type: ignore[arg-type] # it is one of them


def _from(entries: Sequence[StoryEntry], least: int) -> list[StoryEntry]:
    return [entry for entry in entries if LEVELS.index(entry.level) >= least]


def _print(desk: Desk, entries: Sequence[StoryEntry], *, as_json: bool) -> None:
    now = datetime.now(UTC)
    for entry in entries:
        if as_json:
            sys.stdout.write(f"{json_line(entry)}\n")
        else:
            desk.out.print(_line(entry, now), soft_wrap=True)
    sys.stdout.flush()


def _line(entry: StoryEntry, now: datetime) -> Text:
    style = _STYLES[entry.level]
    return Text.assemble(
        (f"{absolute(entry.at, now):<8}  ", "dim"),
        (f"{(entry.execution_id or '')[:_ID_SHOWN]:<{_ID_SHOWN}}  ", "dim"),
        (f"{safe(entry.event):<9} ", _EVENT_STYLES.get(entry.event, style)),
        (safe(entry.text.partition("\n")[0]), style),
    )
