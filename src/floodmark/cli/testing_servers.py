"""Run the local servers of `floodmark testing` and show what they count."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.process.eventloop import stopped_by_signals
from floodmark.testing.telegram.live_channels import LiveChannels, LivePlan, load_plan
from floodmark.testing.telegram.preview import LoopbackPreview
from floodmark.testing.telegram.server import LoopbackTelegram
from floodmark.testing.web.news_site import NewsSite, SitePlan
from floodmark.testing.web.site import Site

from .output import counted, plain, table
from .root import CliContext

_REFRESH_SECONDS = 0.5
_CHANNELS_SHOWN = 20


def serve_site(cli: CliContext, plan: Mapping[str, Any], *, port: int, seconds: float | None) -> None:
    """Serve a web site until it is stopped."""

    async def serve() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop, seconds):
            async with Site(port=port, remembered=1000) as site:
                news = NewsSite(site, SitePlan(**plan))
                with cli.busy("creating the pages"):
                    news.build()
                _print_site(cli, news)
                await _run_until(stop, cli, [news.run()], lambda: _site_counts(news))
                cli.note(_site_counts(news))

    asyncio.run(serve())


def _print_site(cli: CliContext, news: NewsSite) -> None:
    url = news.site.url
    articles = counted(news.plan.pages, "article")
    cli.note(f"[bold]A local web site[/] at {url} with {articles}. Press Ctrl-C to stop.\n")
    cli.note("[bold]Next[/], in another terminal:")
    _print_commands(
        cli,
        (
            "export HTTP_ALLOW_HOSTS=127.0.0.1 WEB_DOMAIN_DELAY=0",
            f"floodmark try {url}/articles/1",
            f"floodmark add web {url}/ --every 30s",
            f"floodmark add feed {url}/feed.xml --every 10s",
            "floodmark up",
        ),
    )
    cli.note("")


def _site_counts(news: NewsSite) -> str:
    counts = f"{counted(news.site.count, 'request')}, {counted(news.changes, 'change')}"
    return counts + (f", {counted(news.waits, '429 response')}" if news.waits else "")


def serve_telegram(
    cli: CliContext,
    plan: Mapping[str, Any],
    *,
    state: Path | None,
    port: int,
    flood_every: float | None,
    seconds: float | None,
) -> None:
    """Serve Telegram channels until it is stopped."""
    with cli.busy("creating the channels"):
        live = LiveChannels(load_plan(state, LivePlan(**plan, began=time.time())))

    async def serve() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop, seconds):
            async with (
                LoopbackTelegram(live.backend, port) as server,
                LoopbackPreview(live.backend, remembered=1000) as preview,
            ):
                _print_telegram(cli, live, server)
                _print_preview(cli, live, preview)
                work = [live.run()]
                if flood_every is not None:
                    work.append(live.flood(server, flood_every))
                try:
                    await _run_until(stop, cli, work, lambda: _telegram_counts(live, server))
                finally:
                    cli.note(_telegram_counts(live, server))

    asyncio.run(serve())


def _print_telegram(cli: CliContext, live: LiveChannels, server: LoopbackTelegram) -> None:
    cli.note(f"[bold]A local Telegram server[/] at 127.0.0.1:{server.port}. Press Ctrl-C to stop.\n")
    rows = [
        (
            f"@{channel.username}",
            channel.channel_id,
            f"{channel.history.top:,}",
            f"{60 * live.pace(number):.3g} a minute",
        )
        for number, channel in enumerate(live.channels[:_CHANNELS_SHOWN])
    ]
    cli.out.print(table("channel", "id", "posts", "new", rows=rows, right=("posts", "new")))
    if len(live.channels) > _CHANNELS_SHOWN:
        cli.note(f"[dim]and {len(live.channels) - _CHANNELS_SHOWN} more[/]")
    cli.note("\n[bold]Next[/], in another terminal:")
    _print_commands(cli, _telegram_commands(live, server))
    name, account = list(live.backend.accounts.items())[-1]
    cli.note(
        f"\n[dim]Or log in by phone, with the code {account.code}: "
        f"floodmark accounts add {name} --phone +{account.phone} --server 127.0.0.1:{server.port} "
        "--api-id 1 --api-hash loopback[/]\n"
    )


def _print_preview(cli: CliContext, live: LiveChannels, preview: LoopbackPreview) -> None:
    cli.note("[bold]Or without an account[/]:")
    _print_commands(
        cli,
        (
            f"export TELEGRAM_PREVIEW_URL={preview.url} TELEGRAM_PREVIEW_DELAY=0 HTTP_ALLOW_HOSTS=127.0.0.1",
            f"floodmark add telegram @{live.channels[-1].username} --preview --every 10s",
        ),
    )
    cli.note("")


def _telegram_commands(live: LiveChannels, server: LoopbackTelegram) -> Iterator[str]:
    for name in live.backend.accounts:
        yield f"floodmark accounts add {name} --session {server.session(name)} --api-id 1 --api-hash loopback"
    for channel in live.channels[:3]:
        yield f"floodmark add telegram @{channel.username} --every 10s"
    yield "floodmark up"


def _telegram_counts(live: LiveChannels, server: LoopbackTelegram) -> str:
    calls = server.calls()
    waits = sum(call.result.startswith("FLOOD_WAIT") for call in calls)
    posts = sum(channel.history.top for channel in live.channels)
    counts = f"{counted(posts, 'post')}, {counted(len(calls), 'call')}, {counted(waits, 'flood wait')}"
    if server.violations:
        counts += f", {counted(len(server.violations), 'call')} during a wait"
    return counts + (f", a session used twice {len(server.duplicates)}x" if server.duplicates else "")


def _print_commands(cli: CliContext, lines: Iterable[str]) -> None:
    for line in lines:
        # Not wrapped, so that it can be copied.
        cli.out.print(f"  {line}", soft_wrap=True, markup=False)


async def _run_until(
    stop: asyncio.Event, cli: CliContext, work: Sequence[Coroutine[Any, Any, None]], counts: Callable[[], str]
) -> None:
    """Do the work until stopped, with the counts on the terminal; raise the error of what failed meanwhile."""
    with cli.busy("") as status:

        async def refresh() -> None:
            while True:
                status.update(plain(counts()))
                await asyncio.sleep(_REFRESH_SECONDS)

        tasks = [asyncio.create_task(each) for each in (*work, refresh())]
        await stop.wait()
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
