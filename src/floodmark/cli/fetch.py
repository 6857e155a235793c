"""Run `fetch` and show its progress and result."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

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
from floodmark.runtime.fetch import Progress as FetchProgress
from floodmark.sources.telegram.hints import HOW_TO_ADD
from floodmark.sources.telegram.targets import normalise_target
from floodmark.wiring.resources import open_resources

from .output import console, counted, plain, print_json, safe, short, table
from .root import CliContext
from .session import open_operations, user_name

# With more chats than this, finished chats are hidden.
_MOST_ROWS = 16
_LONGEST_FETCH_DAYS = 3660


def run_fetch(
    cli: CliContext,
    chats: Sequence[str],
    *,
    first: date,
    last: date,
    folder: Path,
    account: str | None,
    parallelism: int | None,
    as_json: bool,
) -> bool:
    """Fetch, show the result, and return whether everything was fetched."""
    targets = tuple(dict.fromkeys(normalise_target(chat) for chat in chats))
    wanted = Wanted(targets=targets, first=first, last=last, account=account)
    _check(wanted)
    settings = cli.local_settings()
    # The progress is shown, so only warnings are logged.
    configure("warning", settings.log_format)
    at_once = parallelism or settings.parallelism_max
    fetch = _fetch_here if cli.url() is None else _fetch_remote
    fetched = asyncio.run(fetch(cli, wanted, folder, at_once))
    if fetched is None:
        console(stderr=True).print("Stopped. Repeat the command to continue.")
        return False
    print_json(_shape(fetched, folder)) if as_json else _show(cli, fetched, folder, days=len(wanted.days))
    return all(chat.error is None for chat in fetched)


def _check(wanted: Wanted) -> None:
    today = datetime.now(UTC).date()
    if wanted.last > today:
        raise InvalidInput(f"{wanted.last} is in the future: today is {today} in UTC", hint=f"name a day up to {today}")
    if (wanted.last - wanted.first).days >= _LONGEST_FETCH_DAYS:
        raise InvalidInput(
            f"the range is longer than {_LONGEST_FETCH_DAYS:,} days",
            hint="for a whole history: floodmark add telegram @name --history all, then floodmark export files",
        )


async def _fetch_here(cli: CliContext, wanted: Wanted, folder: Path, at_once: int) -> list[FetchedChat] | None:
    """Fetch into this installation; None if it was stopped."""
    app = cli.application()
    actor = Actor(who=user_name())
    if is_pushed(app.settings):
        require_gateway(app.settings)
    async with open_resources(app.settings, events=app.internal_events, validation=app.validation) as resources:
        wanted = await _with_account(LocalOperations(resources, actor), wanted)
        async with (
            push_short_run(app.settings, lambda: render(resources.registry), resources.events),
            app.opened_sources(resources) as sources,
        ):
            with _ProgressView(cli, wanted).show_progress() as view:
                fetch = Fetch(resources, sources, folder, parallelism=at_once, actor=actor)
                return await _run_until_signal(fetch.run(wanted, view.watch))


async def _fetch_remote(cli: CliContext, wanted: Wanted, folder: Path, at_once: int) -> list[FetchedChat] | None:
    """Fetch through the server; None if it was stopped."""
    settings = cli.local_settings()
    async with open_operations(cli.overrides) as operations:
        wanted = await _with_account(operations, wanted)
        with _ProgressView(cli, wanted).show_progress() as view:
            fetch = RemoteFetch(
                operations,
                folder,
                parallelism=at_once,
                schema_version=settings.schema_version,
                give_up_after=settings.fetch_give_up_after,
            )
            return await _run_until_signal(fetch.run(wanted, view.watch))


async def _run_until_signal(work: Coroutine[Any, Any, list[FetchedChat]]) -> list[FetchedChat] | None:
    """Return the result; None after Ctrl-C or SIGTERM."""
    fetching = asyncio.create_task(work, name="fetch")
    with ended_by_signals(fetching.cancel):
        await asyncio.wait([fetching])
    return None if fetching.cancelled() else fetching.result()


async def _with_account(operations: AsyncOperations, wanted: Wanted) -> Wanted:
    """Return `wanted` with the tenant of its account; raise an error if no account can read."""
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
            "the accounts belong to several tenants",
            hint=f"choose one with --account: {', '.join(row.name for row in rows[:10])}",
        )
    return Wanted(
        targets=wanted.targets, first=wanted.first, last=wanted.last, account=wanted.account, tenant_id=tenants.pop()
    )


class _ProgressView:
    """Shows a row per chat; without a terminal, a line per wait or problem."""

    def __init__(self, cli: CliContext, wanted: Wanted) -> None:
        self._err, self._is_quiet, self._days = console(stderr=True), cli.is_quiet, len(wanted.days)
        self._is_short = len(wanted.targets) <= _MOST_ROWS
        self._rows: dict[str, TaskID] = {}
        self._printed: set[tuple[str, datetime | str]] = set()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("days  {task.fields[messages]}", markup=False),
            # Only this column is cut on a narrow terminal.
            TextColumn("{task.fields[note]}", markup=False, style="yellow", table_column=Column(no_wrap=True, ratio=1)),
            expand=True,
            console=self._err,
            transient=True,
            disable=not self._err.is_terminal or cli.is_quiet,
        )

    @contextmanager
    def show_progress(self) -> Iterator["_ProgressView"]:
        """Show the progress within the block."""
        with self._progress:
            yield self

    def watch(self, progress: FetchProgress) -> None:
        """Show the progress of a chat."""
        if self._progress.disable:
            return self._line(progress)
        if progress.target not in self._rows:
            self._rows[progress.target] = self._progress.add_task(
                progress.target, total=self._days, messages="", note=""
            )
        self._progress.update(
            self._rows[progress.target],
            completed=progress.days_done,
            messages=counted(progress.messages, "message"),
            note=_note(progress),
            visible=self._is_short or progress.days_done < self._days,
        )
        return None

    def _line(self, progress: FetchProgress) -> None:
        """Print one line per wait or problem."""
        why = progress.waits_until or progress.reason
        if why is None or self._is_quiet or (progress.target, why) in self._printed:
            return
        self._printed.add((progress.target, why))
        self._err.print(f"{plain(progress.target)} {progress.day}: {plain(_note(progress))}", soft_wrap=True)


def _note(progress: FetchProgress) -> str:
    if progress.waits_until is None:
        return "" if progress.reason is None else short(progress.reason, 80)
    rest = progress.waits_until - datetime.now(UTC)
    length = f" {format_duration(rest)}" if rest.total_seconds() >= 1 else ""
    return f"waits{length}: {short(progress.reason or '', 80)}"


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


def _show(cli: CliContext, fetched: Sequence[FetchedChat], folder: Path, *, days: int) -> None:
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
    cli.out.print(table("chat", "days", "new messages", "files written", "", rows=rows, right=("new messages",)))
    failed = [chat for chat in fetched if chat.error is not None]
    if not failed:
        cli.note(f"[green]Done[/]: the files are in {plain(folder)}")
        open_days = sorted({day.day for chat in fetched for day in chat.days if not day.complete})
        if open_days:
            cli.note(f"[dim]{open_days[-1]} is not over yet: repeat the command to fetch the rest of it.[/]")
    for chat in failed:
        cli.note(f"[dim]{plain(chat.target)} details: floodmark history --id {chat.execution_id}[/]")
