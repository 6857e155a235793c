"""How a fetch is shown while it goes on, and in the end."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from floodmark.app import Floodmark
from floodmark.errors import InvalidInput, Unavailable
from floodmark.model.accounts import AccountRow
from floodmark.model.audit import Actor
from floodmark.model.durations import format_duration
from floodmark.observability.logs import configure
from floodmark.observability.metrics import render
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.local import LocalOperations
from floodmark.outbound.push import is_pushed, push_short_run, require_gateway
from floodmark.process.eventloop import ended_by_signals
from floodmark.runtime.fetch import Fetch, FetchedChat, RemoteFetch, Wanted
from floodmark.runtime.fetch import Progress as Stand
from floodmark.sources.telegram.hints import HOW_TO_ADD
from floodmark.sources.telegram.targets import normalise_target
from floodmark.wiring.resources import open_resources

from .root import Desk
from .session import open_operations, whoever_types
from .showing import console, counted, plain, print_json, safe, short, table

# With more chats than this, those that are fetched leave the board: a terminal has no room for them.
_MOST_ROWS = 16
_LONGEST_FETCH_DAYS = 3660
_AT_ONCE = 200


def run_fetch(
    desk: Desk,
    chats: Sequence[str],
    *,
    first: date,
    last: date,
    folder: Path,
    account: str | None,
    parallelism: int | None,
    as_json: bool,
) -> bool:
    """Fetch, show it, and say whether everything was fetched."""
    targets = tuple(dict.fromkeys(normalise_target(chat) for chat in chats))
    wanted = Wanted(targets=targets, first=first, last=last, account=account)
    _check(wanted)
    app = desk.maker()
    # What happens is on the board; only what went wrong is worth a line beside it.
    configure("warning", app.settings.log_format)
    at_once = parallelism or app.settings.parallelism_max
    fetching = _fetched_here if desk.url() is None else _fetched_far
    fetched = asyncio.run(fetching(desk, app, wanted, folder, at_once))
    if fetched is None:
        console(stderr=True).print("Stopped. The same command goes on from here.", highlight=False)
        return False
    print_json(_shape(fetched, folder)) if as_json else _show(desk, fetched, folder, days=len(wanted.days))
    return all(chat.error is None for chat in fetched)


def _check(wanted: Wanted) -> None:
    today = datetime.now(UTC).date()
    if wanted.last > today:
        raise InvalidInput(f"{wanted.last} has not come yet: it is {today} in UTC", hint=f"name a day up to {today}")
    if (wanted.last - wanted.first).days >= _LONGEST_FETCH_DAYS:
        raise InvalidInput(
            f"these are more than {_LONGEST_FETCH_DAYS:,} days",
            hint="for a whole history: floodmark add telegram @name --history all, then floodmark export files",
        )


async def _fetched_here(
    desk: Desk, app: Floodmark, wanted: Wanted, folder: Path, at_once: int
) -> list[FetchedChat] | None:
    """None if someone stopped it."""
    actor = Actor(who=whoever_types())
    if is_pushed(app.settings):
        require_gateway(app.settings)
    async with open_resources(app.settings, events=app.events, validation=app.validation) as resources:
        wanted = await _with_account(LocalOperations(resources, actor), wanted)
        async with (
            push_short_run(app.settings, lambda: render(resources.registry), resources.events),
            app.opened_sources(resources) as sources,
        ):
            with _Board(desk, wanted).shown() as board:
                fetch = Fetch(resources, sources, folder, parallelism=at_once, actor=actor)
                return await _unless_stopped(fetch.run(wanted, board.watch))


async def _fetched_far(
    desk: Desk, app: Floodmark, wanted: Wanted, folder: Path, at_once: int
) -> list[FetchedChat] | None:
    """The same, read by the server that was named."""
    async with open_operations(desk.overrides) as operations:
        wanted = await _with_account(operations, wanted)
        with _Board(desk, wanted).shown() as board:
            fetch = RemoteFetch(
                operations,
                folder,
                parallelism=at_once,
                schema_version=app.settings.schema_version,
                give_up_after=app.settings.fetch_give_up_after,
            )
            return await _unless_stopped(fetch.run(wanted, board.watch))


async def _unless_stopped(work: Coroutine[Any, Any, list[FetchedChat]]) -> list[FetchedChat] | None:
    """Ctrl-C and SIGTERM end it in good order."""
    fetching = asyncio.create_task(work, name="fetch")
    with ended_by_signals(fetching.cancel):
        await asyncio.wait([fetching])
    return None if fetching.cancelled() else fetching.result()


async def _with_account(operations: AsyncOperations, wanted: Wanted) -> Wanted:
    """The same for the tenant whose account reads; refused before anything is written if nobody can."""
    rows = list[AccountRow]()
    if wanted.account is not None:
        row = (await operations.account(wanted.account)).account
        if row.state != "active":
            raise Unavailable(
                f"the account {row.name} cannot be used: {row.reason}",
                hint=f"log in again: floodmark accounts add {row.name} --replace",
            )
        rows.append(row)
    else:
        rows.extend([row async for row in operations.each_account() if row.state == "active"])
    if not rows:
        raise Unavailable("no Telegram account is set up", hint=HOW_TO_ADD)
    tenants = {row.tenant_id for row in rows}
    if len(tenants) > 1:
        raise InvalidInput(
            "the accounts belong to several tenants: whose posts shall these be?",
            hint=f"say it with --account, one of: {', '.join(row.name for row in rows[:10])}",
        )
    return Wanted(
        targets=wanted.targets, first=wanted.first, last=wanted.last, account=wanted.account, tenant_id=tenants.pop()
    )


class _Board:
    """A row for each chat that is being read; without a terminal, a line for each wait, and for what is in the way."""

    def __init__(self, desk: Desk, wanted: Wanted) -> None:
        self._err, self._is_quiet, self._days = console(stderr=True), desk.is_quiet, len(wanted.days)
        self._is_short = len(wanted.targets) <= _MOST_ROWS
        self._rows: dict[str, TaskID] = {}
        self._told: set[tuple[str, datetime | str]] = set()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("days  {task.fields[messages]}", markup=False),
            # Where there is little room this is what is shortened: how far it is must be read in any case.
            TextColumn("{task.fields[note]}", markup=False, style="yellow", table_column=Column(no_wrap=True, ratio=1)),
            expand=True,
            console=self._err,
            transient=True,
            disable=not self._err.is_terminal or desk.is_quiet,
        )

    @contextmanager
    def shown(self) -> Iterator["_Board"]:
        """As long as the block lasts."""
        with self._progress:
            yield self

    def watch(self, stand: Stand) -> None:
        """Show where a chat stands."""
        if self._progress.disable:
            return self._line(stand)
        if stand.target not in self._rows:
            self._rows[stand.target] = self._progress.add_task(stand.target, total=self._days, messages="", note="")
        self._progress.update(
            self._rows[stand.target],
            completed=stand.days_done,
            messages=counted(stand.messages, "message"),
            note=_note(stand),
            visible=self._is_short or stand.days_done < self._days,
        )
        return None

    def _line(self, stand: Stand) -> None:
        """One line for each wait, the clock aside."""
        why = stand.waits_until or stand.reason
        if why is None or self._is_quiet or (stand.target, why) in self._told:
            return
        self._told.add((stand.target, why))
        self._err.print(f"{plain(stand.target)} {stand.day}: {plain(_note(stand))}", highlight=False, soft_wrap=True)


def _note(stand: Stand) -> str:
    if stand.waits_until is None:
        return "" if stand.reason is None else short(stand.reason, 80)
    rest = stand.waits_until - datetime.now(UTC)
    for_how_long = f" {format_duration(rest)}" if rest.total_seconds() >= 1 else ""
    return f"waits{for_how_long}: {short(stand.reason or '', 80)}"


def _shape(fetched: Sequence[FetchedChat], folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "chats": [
            {
                "chat": chat.target,
                "error": chat.error,
                "execution_id": chat.execution_id,
                "days": [
                    {
                        "date": day.day,
                        "new_messages": day.messages,
                        "last_processed_msg_id": day.last_processed_msg_id,
                        "complete": day.complete,
                        "file": str(day.file),
                        "written": day.written,
                    }
                    for day in chat.days
                ],
            }
            for chat in fetched
        ],
    }


def _show(desk: Desk, fetched: Sequence[FetchedChat], folder: Path, *, days: int) -> None:
    rows: list[list[object]] = [
        [
            Text(safe(chat.target), style="bold"),
            f"{len(chat.days)} of {days}",
            f"{sum(day.messages for day in chat.days):,}",
            f"{sum(day.written for day in chat.days):,}",
            Text("fetched", style="green") if chat.error is None else Text(short(chat.error, 120), style="red"),
        ]
        for chat in fetched
    ]
    desk.out.print(table("chat", "days", "new messages", "files written", "", rows=rows, right=("new messages",)))
    failed = [chat for chat in fetched if chat.error is not None]
    if not failed:
        desk.note(f"[green]Done[/]: the files are in {plain(folder)}")
        open_days = sorted({day.day for chat in fetched for day in chat.days if not day.complete})
        if open_days:
            desk.note(f"[dim]{open_days[-1]} is not over yet: the same command brings what is still to come.[/]")
    for chat in failed:
        desk.note(f"[dim]{plain(chat.target)} in full: floodmark history --id {chat.execution_id}[/]")
