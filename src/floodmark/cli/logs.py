"""`logs`: the timeline of a job."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, get_args

import typer
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.execution import Execution, State
from floodmark.model.ids import floor_id
from floodmark.model.page import take
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.timeline import (
    LEVELS,
    Level,
    TimelineEntry,
    batches_of,
    changes_of,
    sort_entries,
    timeline_of,
)
from floodmark.store.port import Event

from .output import json_line, plain, safe
from .parsing import duration
from .root import AsJson, CliContext
from .times import absolute

_POLL_SECONDS = 0.5
# Number of newest events that are searched for batches of this job; maximum number of executions.
_EVENTS, _PAGE, _EXECUTIONS = 5_000, 1_000, 500
_CHANGES = 100
_RAN = [state for state in State if state is not State.SKIPPED]
_ID_SHOWN = 13
_STYLES = {"debug": "dim", "info": "", "warning": "yellow", "error": "bold red"}
_EVENT_STYLES = {"done": "green", "started": "cyan", "waits": "yellow", "kept": "blue"}


class LogFollower:
    """Polls a job and returns each entry once."""

    def __init__(self, operations: AsyncOperations, job: str, *, oldest: str, limit: int) -> None:
        self._operations, self._job, self._oldest, self._limit = operations, job, oldest, limit
        self._seen: dict[tuple[datetime, str, str | None], None] = {}
        self._running: set[str] = set()
        self._position: int | None = None
        self._name: str | None = None

    async def entries(self) -> list[TimelineEntry]:
        """Return the new entries, in order."""
        executions = await self._executions()
        found = [entry for execution in executions for entry in self._timeline(execution)]
        found += batches_of(await self._events(), executions)
        found += await self._changes(executions)
        fresh = [entry for entry in sort_entries(found) if entry.key not in self._seen]
        self._seen |= dict.fromkeys(entry.key for entry in found)
        return fresh

    def _timeline(self, execution: Execution) -> list[TimelineEntry]:
        """Return the entries of an execution.

        When an attempt ends, the worker corrects its start time; a start that was returned is not returned again.
        """
        was_running = execution.execution_id in self._running
        is_running = execution.state is State.RUNNING
        if is_running:
            self._running.add(execution.execution_id)
        else:
            self._running.discard(execution.execution_id)
        known = [entry for entry in timeline_of(execution) if entry.event == "started"] if was_running else []
        if not is_running:
            self._seen |= dict.fromkeys(entry.key for entry in known)
        return timeline_of(execution)

    async def _executions(self) -> list[Execution]:
        """Return the executions, and those that were skipped in the same time."""
        page = await take(self._operations.each_execution(job=self._job, states=_RAN), self._limit)
        skips = await take(self._operations.each_execution(job=self._job, states=[State.SKIPPED]), self._limit)
        if self._name is None:
            self._name = await self._find_name([*page, *skips])
        first = min([execution.execution_id for execution in page], default="")
        oldest = max(self._oldest, first)
        return _not_older(page, self._oldest) + _not_older(skips, oldest)

    async def _find_name(self, page: Sequence[Execution]) -> str:
        """Return the name of the job, of a deleted one from its executions."""
        try:
            return (await self._operations.job(self._job)).name
        except NotFound:
            if not page:
                raise
            return page[0].job_name

    async def _events(self) -> list[Event]:
        newest = await self._operations.last_position()
        position = max(0, newest - _EVENTS) if self._position is None else self._position
        # Also if no event matches: each event is searched only once.
        self._position = max(newest, position)
        found: list[Event] = []
        try:
            while position < self._position:
                page = await take(self._operations.each_event(after=position, stream=self._job), _PAGE)
                found += page
                position = page[-1].position if len(page) == _PAGE else self._position
            self._position = max([self._position, *(event.position for event in found)])
        except NotFound:
            # The job was deleted, so its stream is unknown.
            return []
        return found

    async def _changes(self, executions: Sequence[Execution]) -> list[TimelineEntry]:
        since = min((e.created_at for e in executions if e.created_at is not None), default=None)
        rows = await take(self._operations.each_audit_row(what=f"job:{self._name}"), _CHANGES)
        return [entry for entry in changes_of(rows) if since is None or entry.at >= since or self._seen]


def _not_older(executions: Sequence[Execution], oldest: str) -> list[Execution]:
    """Return the executions that are not older, and all unfinished ones."""
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
    cli, least = CliContext.of(context), _level(level)
    back = duration(since)
    oldest = "" if back is None else floor_id(datetime.now(UTC) - back)

    async def work(operations: AsyncOperations) -> None:
        look = LogFollower(operations, job, oldest=oldest, limit=limit if back is None else _EXECUTIONS)
        entries = _from(await look.entries(), least)
        if not entries and not follow and not as_json:
            within = "" if since is None else f" within {plain(since)}"
            return cli.out.print(f"Nothing happened{within}.")
        _print(cli, entries, as_json=as_json)
        while follow:
            await asyncio.sleep(_POLL_SECONDS)
            _print(cli, _from(await look.entries(), least), as_json=as_json)
        return None

    cli.work(work)


def _level(text: str) -> int:
    if text.lower() not in get_args(Level):
        raise InvalidInput(f"{text[:40]!r} is not a level", hint=f"use one of {', '.join(LEVELS)}")
    return [*LEVELS].index(text.lower())  # type: ignore[arg-type] # it is one of them


def _from(entries: Sequence[TimelineEntry], least: int) -> list[TimelineEntry]:
    return [entry for entry in entries if LEVELS.index(entry.level) >= least]


def _print(cli: CliContext, entries: Sequence[TimelineEntry], *, as_json: bool) -> None:
    now = datetime.now(UTC)
    for entry in entries:
        if as_json:
            sys.stdout.write(f"{json_line(entry)}\n")
        else:
            cli.out.print(_line(entry, now), soft_wrap=True)
    sys.stdout.flush()


def _line(entry: TimelineEntry, now: datetime) -> Text:
    style = _STYLES[entry.level]
    return Text.assemble(
        (f"{absolute(entry.at, now):<8}  ", "dim"),
        (f"{(entry.execution_id or '')[:_ID_SHOWN]:<{_ID_SHOWN}}  ", "dim"),
        (f"{safe(entry.event):<9} ", _EVENT_STYLES.get(entry.event, style)),
        (safe(entry.text.partition("\n")[0]), style),
    )
