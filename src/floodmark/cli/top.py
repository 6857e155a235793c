"""`top`: a live overview of the installation."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.console import Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from floodmark.errors import Unavailable
from floodmark.model.durations import format_duration
from floodmark.model.fleet import Overview
from floodmark.operations.declared import AsyncOperations

from .output import print_json, safe, short
from .roles import Seconds
from .root import AsJson, CliContext

_EVERY_SECONDS = 1.0
# Terminals with at least these widths show more columns.
_WIDE, _NARROW = 110, 70
# Terminals with at least this width show two columns of sections.
_TWO_COLUMNS, _GAP = 180, 3
_LEFT = ("Running", "Waiting", "Limits", "Breakers")
_ROWS_ONCE = 10
_COUNTED, _KEPT = 10_000, 5_000
_LEAST = 8
_SECOND = timedelta(seconds=1)

Rows = list[list[Text | str]]


class Section:
    """A heading and a table.

    A column with one or two leading dots is shown on wider terminals only; `#` ends the name of a numeric column.
    """

    def __init__(
        self, title: str, columns: Sequence[str], rows: Rows, *, total: int | None = None, note: str = ""
    ) -> None:
        self.title, self.columns, self.rows, self.note = title, columns, rows, note
        self.total = len(rows) if total is None else total

    def draw(self, width: int, rows: int) -> list[RenderableType]:
        """Return the heading and at most this many rows."""
        keep = [n for n, name in enumerate(self.columns) if width >= _level(name)]
        shown = [[_text(row[n]) for n in keep] for row in self.rows[:rows]]
        names = [self.columns[n].lstrip(".") for n in keep]
        drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name, room in zip(names, _widths(names, shown, width), strict=True):
            side: JustifyMethod = "right" if name.endswith("#") else "left"
            drawn.add_column(name.rstrip("#"), justify=side, no_wrap=True, overflow="ellipsis", width=room)
        for row in shown:
            drawn.add_row(*row)
        more = self.total - min(rows, len(self.rows))
        note = f"{more:,} more" if more > 0 else self.note
        return [Text(), Text.assemble((self.title, "bold"), (note and f"  {note}", "dim")), drawn]


def _text(cell: Text | str) -> Text:
    # A table would parse a string as markup.
    return cell if isinstance(cell, Text) else Text(cell)


def _widths(names: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Return the widths of the columns: at most a third each, and the rest for the last."""
    needs = [max([len(name.rstrip("#")), *(row[n].cell_len for row in rows)]) for n, name in enumerate(names)]
    firsts = [min(need, max(_LEAST, width // 3)) for need in needs[:-1]]
    rest = width - sum(firsts) - 2 * len(firsts)
    return [*firsts, max(_LEAST, min(needs[-1], rest))]


def _level(name: str) -> int:
    """Return the terminal width that a column needs, by the dots before its name."""
    return (0, _NARROW, _WIDE)[len(name) - len(name.lstrip("."))]


def top(
    context: typer.Context,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Print it once; default if the output is not a terminal.")
    ] = False,
    seconds: Seconds = None,
    as_json: AsJson = False,
) -> None:
    """Show a live overview: leader, workers, and running, waiting and failed executions. Ctrl-C ends it."""
    cli = CliContext.of(context)
    if as_json:
        return print_json(cli.work(lambda operations: operations.overview()))
    if once or not cli.out.is_terminal:
        return cli.out.print(frame(cli.work(lambda operations: operations.overview()), width=cli.out.width))
    cli.require_database()
    try:
        return cli.work(lambda operations: _watch(cli, operations, seconds))
    except KeyboardInterrupt:
        return None


async def _watch(cli: CliContext, operations: AsyncOperations, seconds: float | None) -> None:
    """Refresh until Ctrl-C. While the data is unavailable, the last overview stays on the screen."""
    clock = asyncio.get_running_loop().time
    ends, last, trouble = None if seconds is None else clock() + seconds, None, ""
    # An error of the first read ends the command.
    last = await operations.overview()
    with Live(console=cli.out, screen=True, auto_refresh=False) as live:
        while ends is None or clock() < ends:
            size = cli.out.size
            live.update(frame(last, width=size.width, height=size.height, trouble=trouble), refresh=True)
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                last, trouble = await operations.overview(), ""
            except Unavailable as error:
                trouble = str(error)


def frame(seen: Overview, *, width: int, height: int | None = None, trouble: str = "") -> RenderableType:
    """Return one screen that fits into this width and height."""
    heads = [_head(seen, width), _numbers(seen)]
    if trouble:
        text = f"Not available, showing the last data: {safe(trouble)}"
        heads.append(Text(text, style="bold red", no_wrap=True, overflow="ellipsis"))
    sections = [section for section in _sections(seen) if section.rows]
    room = None if height is None else height - len(heads)
    # Current work on the left, status on the right.
    left = [section for section in sections if section.title in _LEFT]
    right = [section for section in sections if section.title not in _LEFT]
    if width < _TWO_COLUMNS or not left or not right:
        return Group(*heads, *_column(sections, width, room))
    half = (width - _GAP) // 2
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(width=half)
    grid.add_column(width=half)
    grid.add_row(Group(*_column(left, half, room)), Group(*_column(right, half, room)))
    return Group(*heads, grid)


def _column(sections: Sequence[Section], width: int, height: int | None) -> list[RenderableType]:
    drawn: list[RenderableType] = []
    shares = _shares([len(section.rows) for section in sections], height)
    for section, share in zip(sections, shares, strict=True):
        drawn += section.draw(width, share) if share else []
    return drawn


def _shares(wanted: Sequence[int], height: int | None) -> list[int]:
    """Return the number of rows per section, given out one at a time from the top, so that no section starves."""
    if height is None:
        return [min(count, _ROWS_ONCE) for count in wanted]
    room, shares = height, [0] * len(wanted)
    # A section needs an empty line, a title and the column names besides its first row.
    for n in range(len(wanted)):
        if room >= 4:
            room, shares[n] = room - 4, 1
    while room > 0 and any(0 < share < count for share, count in zip(shares, wanted, strict=True)):
        for n, count in enumerate(wanted):
            if room > 0 and 0 < shares[n] < count:
                room, shares[n] = room - 1, shares[n] + 1
    return shares


def _head(seen: Overview, width: int) -> Text:
    working = [info for info in seen.workers if info.alive and info.role == "worker"]
    busy, slots = sum(info.busy for info in working), sum(info.slots for info in working)
    status = {"ok": "green", "stale": "yellow", "down": "bold red"}[seen.scheduler]
    leader = "no leader" if seen.leader is None else f"leader {short(seen.leader, 40)}"
    parts = [
        ("floodmark", "bold"),
        (f"  {seen.at.astimezone():%H:%M:%S}", "dim"),
        ("   ● ", status),
        (leader if seen.scheduler == "ok" else f"{leader}, the scheduler is {seen.scheduler}", ""),
        ("   ● ", "green" if working else "bold red"),
        (f"{len(working)} worker{'' if len(working) == 1 else 's'}, {busy} of {slots} slots busy", ""),
    ]
    if seen.draining:
        parts.append(("   draining", "bold yellow"))
    head = Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
    head.truncate(width, overflow="ellipsis")
    return head


def _numbers(seen: Overview) -> Text:
    queued = sum(seen.queue.values())
    by_priority = ", ".join(f"{name} {count:,}" for name, count in seen.queue.items() if count)
    numbers = [
        (f"{queued:,}", "bold blue" if queued else "dim", f" queued{f' ({by_priority})' if by_priority else ''}"),
        (_show_count(seen.running_count), "bold cyan" if seen.running_count else "dim", " running"),
        (_show_count(seen.waiting_count), "bold yellow" if seen.waiting_count else "dim", " waiting"),
        (_show_count(seen.dead_letters), "bold red" if seen.dead_letters else "dim", " dead"),
        (_show_count(seen.kept_last_minute, _KEPT), "bold green" if seen.kept_last_minute else "dim", " kept/min"),
    ]
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, style, words in numbers:
        line.append("   " if line else "")
        line.append(number, style=style)
        line.append(words)
    return line


def _show_count(count: int, most: int = _COUNTED) -> str:
    return f"{count:,}{'+' if count >= most else ''}"


def _sections(seen: Overview) -> list[Section]:
    now = seen.at
    runs = ("job", ".source", "for#", "kept#", ".last batch#", "..attempt#", "..worker")
    fresh = ("source", "jobs#", "stale#", "last checked", ".longest unchecked", ".last new item")
    return [
        Section("Running", runs, _running(seen, now), total=seen.running_count),
        Section("Limits", ("key", "ends in#", "..times#", "reason"), _limits(seen, now)),
        Section("Breakers", ("key", "state", "probed in#", ".reason"), _breakers(seen, now)),
        Section("Waiting", ("job", "starts in#", "because"), _waiting(seen, now), total=seen.waiting_count),
        Section("Freshness", fresh, _freshness(seen, now), note=f"measured {_ago(seen.measured_at, now)} ago"),
        Section("Failed", ("job", "when", ".", "error"), _failed(seen, now)),
        Section("Workers", ("name", ".role", "busy#", "state", ".since"), _workers(seen, now)),
    ]


def _running(seen: Overview, now: datetime) -> Rows:
    return [
        [
            Text(safe(run.job_name), style="cyan"),
            safe(run.source or "-"),
            _ago(run.started_at, now),
            f"{run.kept:,}{'+' if run.is_least else ''}",
            "-" if run.kept_at is None else f"{_ago(run.kept_at, now)} ago",
            str(run.attempt),
            short(run.worker or "-", 40),
        ]
        for run in seen.running
    ]


def _limits(seen: Overview, now: datetime) -> Rows:
    return [
        [Text(safe(row.key), style="yellow"), _until(row.until, now), f"{row.hits:,}", short(row.reason, 200)]
        for row in seen.limits
    ]


def _breakers(seen: Overview, now: datetime) -> Rows:
    return [
        [
            Text(safe(row.key), style="red"),
            row.state,
            "-" if row.open_until is None else _until(row.open_until, now),
            short(row.reason or "", 200),
        ]
        for row in seen.breakers
    ]


def _waiting(seen: Overview, now: datetime) -> Rows:
    return [
        [
            Text(safe(row.job_name), style="yellow"),
            "-" if row.until is None else _until(row.until, now),
            short(row.reason or row.hold or "", 200),
        ]
        for row in seen.waiting
    ]


def _freshness(seen: Overview, now: datetime) -> Rows:
    rows: Rows = [
        [
            safe(row.source),
            f"{row.jobs:,}",
            Text(f"{row.stale:,}", style="bold red" if row.stale else "dim"),
            "never" if row.checked_at is None else f"{_ago(row.checked_at, now)} ago",
            "-" if row.longest_at is None else _ago(row.longest_at, now),
            "never" if row.parsed_at is None else f"{_ago(row.parsed_at, now)} ago",
        ]
        for row in seen.freshness
    ]
    return rows


def _failed(seen: Overview, now: datetime) -> Rows:
    return [
        [
            safe(row.job_name),
            f"{_ago(row.at, now)} ago",
            Text("dead", style="red") if row.state == "dead" else Text("retried", style="yellow"),
            short(row.error.partition("\n")[0], 200),
        ]
        for row in seen.failed
    ]


def _workers(seen: Overview, now: datetime) -> Rows:
    rows: Rows = []
    for info in seen.workers:
        state = "silent" if not info.alive else "draining" if info.draining else "working"
        state = "scheduling" if state == "working" and info.role == "scheduler" else state
        rows.append(
            [
                Text(short(info.worker, 40), style="bold" if info.worker == seen.leader else ""),
                f"{info.role}{', leader' if info.worker == seen.leader else ''}",
                f"{info.busy}/{info.slots}" if info.slots else "-",
                Text(state, style={"silent": "red", "draining": "yellow"}.get(state, "green")),
                f"{_ago(info.started_at, now)}",
            ]
        )
    return rows


def _ago(moment: datetime | None, now: datetime) -> str:
    return "-" if moment is None else _length(now - moment)


def _until(moment: datetime, now: datetime) -> str:
    return "now" if moment - now < _SECOND else _length(moment - now)


def _length(length: timedelta) -> str:
    """Return a duration in whole seconds, so that the screen does not flicker."""
    return format_duration(max(length, timedelta()) // _SECOND * _SECOND)
