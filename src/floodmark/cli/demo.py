"""Show the demo: a live table on a terminal, lines elsewhere, and a summary at the end."""

import asyncio
import webbrowser
from collections import deque
from datetime import datetime, timedelta
from typing import Protocol

import structlog
from rich.console import Group
from rich.live import Live
from rich.text import Text

from floodmark.demo import GUEST_CODE, GUEST_PHONE, ChannelView, Demo, DemoView, Summary, demo_folder
from floodmark.model.durations import format_duration
from floodmark.observability.logs import LogListener, configure
from floodmark.process.eventloop import run, stopped_by_signals

from .output import counted, plain, safe, short, table
from .root import CliContext

_TITLES_SHOWN = 6
_COLUMNS = ("channel", "mode", "posts", "collected", "new", "lag", "state")
_ENDING = "The channels have stopped posting; collecting the rest (Ctrl-C again stops at once)."
_STYLES = {"limit": "yellow", "retry": "red", "running": "cyan", "dead": "bold red"}


def run_demo(
    cli: CliContext, *, seconds: float | None, is_fresh: bool, port: int | None = None, opens: bool = False
) -> int:
    """Run the demo, and return exit code 0 if every post was collected once. `opens`: show its dashboard."""
    settings = cli.settings()
    if port is None and settings.origin("port") != "default":
        port = settings.port
    with demo_folder(settings.floodmark_home, is_fresh=is_fresh) as (folder, log):
        configure(settings.log_level, "json", log)
        demo = Demo(folder)
        LogListener(structlog.get_logger()).attach(demo.app.internal_events)
        cli.note(f"[dim]Folder {plain(folder)}; the log is in {plain(folder / 'demo.log')}. Press Ctrl-C to stop.[/]")
        summaries: list[Summary] = []
        screens: list[Screen] = []

        def served(url: str) -> None:
            cli.note(f"Dashboard: [bold]{plain(url)}[/]")
            cli.note(f"[dim]To add an account there, use the phone {GUEST_PHONE} and the code {GUEST_CODE}.[/]")
            screens.append(Table(cli) if cli.out.is_terminal else Lines(cli))
            if opens:
                webbrowser.open(url)

        def show(view: DemoView) -> None:
            screens[0].show(view)

        async def work() -> None:
            stop = asyncio.Event()
            with stopped_by_signals(stop, seconds, second=130):
                summaries.append(await demo.run(stop, show, port=port, served=served))

        try:
            run(work())
        finally:
            for screen in screens:
                screen.close()
        _summarize(cli, summaries[0])
        return 0 if summaries[0].is_right else 1


class Screen(Protocol):
    """Shows the demo while it runs."""

    def show(self, view: DemoView) -> None:
        """Show the current state."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class Table:
    """A live table."""

    def __init__(self, cli: CliContext) -> None:
        self._titles: deque[str] = deque(maxlen=_TITLES_SHOWN)
        self._live = Live(console=cli.out, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, view: DemoView) -> None:
        """Redraw the table."""
        self._titles.extend(view.arrived)
        rows = [_row(channel) for channel in view.channels]
        counts = f"{counted(view.done, 'run')}, {_count_troubles(view.waited, view.retried)}"
        counts += f". {_ENDING}" if view.is_ending else ""
        self._live.update(
            Group(
                "",
                table(*_COLUMNS, rows=rows, right=("posts", "collected", "new", "lag")),
                "",
                *(Text(f"  + {safe(title)}", style="dim", no_wrap=True) for title in self._titles),
                "",
                Text(counts, style="dim"),
            ),
            refresh=True,
        )

    def close(self) -> None:
        """Keep the last table on the screen."""
        self._live.stop()


def _row(channel: ChannelView) -> list[object]:
    behind = channel.collected < channel.posts
    return [
        Text(f"@{channel.name}", style="bold"),
        channel.mode,
        f"{channel.posts:,}",
        Text(f"{channel.collected:,}", style="yellow" if behind else "green"),
        f"{channel.new:,}",
        Text(_lag(channel.lag) if behind else "-", style="yellow" if behind else "dim"),
        Text(safe(channel.sentence), style=_STYLES.get(channel.code, "dim"), no_wrap=True, overflow="ellipsis"),
    ]


def _count_troubles(waited: int, retried: int) -> str:
    return f"{counted(waited, 'rate limit')}, {counted(retried, 'retry', 'retries')}"


def _lag(seconds: float) -> str:
    return format_duration(timedelta(seconds=int(seconds)))


class Lines:
    """One line per second, for pipes and logs; and one when a channel starts to wait."""

    def __init__(self, cli: CliContext) -> None:
        self._desk, self._turn = cli, 0
        self._arrived = 0
        self._latest = ""
        self._waiting: set[str] = set()
        self._is_ending = False

    def show(self, view: DemoView) -> None:
        """Print a line for every second view."""
        if view.is_ending and not self._is_ending:
            self._desk.note(_ENDING)
        self._is_ending = view.is_ending
        self._arrived += len(view.arrived)
        self._latest = view.arrived[-1] if view.arrived else self._latest
        self._turn += 1
        if self._turn % 2 == 0:
            self._line(view)
            self._trouble(view)
            self._arrived = 0

    def _line(self, view: DemoView) -> None:
        collected, posts = sum(c.collected for c in view.channels), sum(c.posts for c in view.channels)
        counts = f"{collected:,} of {posts:,} posts, lag {_lag(max(c.lag for c in view.channels))}"
        latest = f"; +{self._arrived}, latest {short(self._latest, 60)}" if self._arrived else ""
        self._desk.note(f"{datetime.now().astimezone():%H:%M:%S}  {counts}{plain(latest)}")

    def _trouble(self, view: DemoView) -> None:
        waiting = {c.name: c.sentence for c in view.channels if c.code in ("limit", "retry", "dead")}
        for name in [name for name in waiting if name not in self._waiting]:
            self._desk.note(f"          {plain(f'@{name}: {safe(waiting[name])}')}")
        self._waiting = set(waiting)

    def close(self) -> None:
        """Do nothing."""


def _summarize(cli: CliContext, summary: Summary) -> None:
    style = "green" if summary.is_right else "bold red"
    cli.out.print(
        f"\nThe channels have {counted(summary.posts, 'post')}. [{style}]Collected {summary.collected:,} items "
        f"({summary.new:,} new), {counted(summary.duplicates, 'duplicate')}, {summary.missing:,} missing.[/]",
    )
    if summary.doubled_sessions or summary.impatient_calls:
        cli.out.print(
            f"[bold red]{counted(summary.doubled_sessions, 'session')} opened twice, "
            f"{counted(summary.impatient_calls, 'call')} during a flood wait.[/]",
        )
    cli.note(
        f"[dim]{counted(summary.executions, 'run')} in {format_duration(summary.took)}; "
        f"{_count_troubles(summary.waited, summary.retried)}.[/]"
    )
    cli.note("[dim]Start it again to continue; use --fresh to start over.[/]")
