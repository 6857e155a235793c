"""What to try Floodmark with when there is nothing to collect: servers on this machine."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.process.eventloop import stopped_by_signals

from .root import Desk
from .showing import counted, plain, table

if TYPE_CHECKING:
    from floodmark.testing.telegram.live_channels import LiveChannels
    from floodmark.testing.telegram.server import LoopbackTelegram
    from floodmark.testing.web.news_site import NewsSite, SitePlan

testing = typer.Typer(help="Start local servers to try Floodmark with.")

_SHOWN_EVERY = 0.5


@testing.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """Start local servers to try Floodmark with."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


@testing.command()
def telegram(
    context: typer.Context,
    *,
    channels: Annotated[int, typer.Option(min=1, max=1_000, help="Number of channels.")] = 10,
    rate: Annotated[
        float, typer.Option(min=0.001, max=1_000, help="Posts per second, of all channels together.")
    ] = 2.0,
    history: Annotated[int, typer.Option(min=0, max=1_000_000, help="Number of earlier posts per channel.")] = 500,
    accounts: Annotated[int, typer.Option(min=1, max=100, help="Number of accounts.")] = 2,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 0,
    flood_every: Annotated[
        float | None, typer.Option(metavar="N", min=1, help="Interval in seconds between flood waits of an account.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same channels, texts and sessions.")
    ] = 7,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File that stores the start time, so that a restart continues from there."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(metavar="N", min=0, help="Stop after this many seconds.")] = None,
) -> None:
    """Start a local Telegram server with active channels. It needs no account."""
    from floodmark.testing.telegram.live_channels import LiveChannels, LivePlan, load_plan  # noqa: PLC0415 - heavy

    desk = Desk.of(context)
    desk.refuse_url("testing telegram")
    plan = LivePlan(channels=channels, rate=rate, history=history, accounts=accounts, seed=seed, began=time.time())
    with desk.busy("writing the channels"):
        living = LiveChannels(load_plan(state, plan))
    _serve(desk, living, port=port, flood_every=flood_every, seconds=seconds)


@testing.command()
def web(
    context: typer.Context,
    *,
    pages: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of articles, besides some unusual pages.")
    ] = 200,
    change_every: Annotated[
        float, typer.Option(metavar="N", min=0, help="Interval in seconds between changes of an article; 0: never.")
    ] = 10.0,
    busy_every: Annotated[
        float | None, typer.Option(metavar="N", min=1, help="Interval in seconds between 429 responses.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same articles.")] = 7,
    seconds: Annotated[float | None, typer.Option(metavar="N", min=0, help="Stop after this many seconds.")] = None,
) -> None:
    """Start a local web site: changing articles, sitemaps, feeds, and unusual pages of real sites."""
    from floodmark.testing.web.news_site import SitePlan  # noqa: PLC0415 - heavy

    desk = Desk.of(context)
    desk.refuse_url("testing web")
    plan = SitePlan(pages=pages, change_every=change_every or None, busy_every=busy_every, seed=seed)
    asyncio.run(_serve_site(desk, plan, port=port, seconds=seconds))


async def _serve_site(desk: Desk, plan: "SitePlan", *, port: int, seconds: float | None) -> None:
    from floodmark.testing.web.news_site import NewsSite  # noqa: PLC0415 - heavy
    from floodmark.testing.web.site import Site  # noqa: PLC0415 - heavy

    stop = asyncio.Event()
    with stopped_by_signals(stop, seconds):
        async with Site(port=port, remembered=1000) as site:
            town = NewsSite(site, plan)
            with desk.busy("writing the pages"):
                town.build()
            _welcome_site(desk, town)
            with desk.busy("") as status:
                work = [town.run(), _shown(lambda: status.update(plain(_site_counts(town))))]
                await _until(stop, work)
            desk.note(_site_counts(town))


def _welcome_site(desk: Desk, town: "NewsSite") -> None:
    url = town.site.url
    desk.note(
        f"[bold]A web site on this machine[/], at {url} with {counted(town.plan.pages, 'article')}. Ctrl-C ends it.\n"
    )
    desk.note("[bold]Next[/], in another terminal:")
    for line in (
        "export HTTP_ALLOW_HOSTS=127.0.0.1 WEB_DOMAIN_DELAY=0",
        f"floodmark try {url}/articles/1",
        f"floodmark add web {url}/ --every 30s",
        f"floodmark add feed {url}/feed.xml --every 10s",
        "floodmark up",
    ):
        # Whole lines, however long: they are there to be copied.
        desk.out.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)
    desk.note("")


def _site_counts(town: "NewsSite") -> str:
    site = town.site
    told = f"{counted(site.count, 'request')}, {counted(town.changes, 'change')}"
    return told + (f", {counted(town.waits, 'wait')} told" if town.waits else "")


async def _until(stop: asyncio.Event, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do it all until stopped; what failed meanwhile is raised."""
    tasks = [asyncio.create_task(each) for each in work]
    await stop.wait()
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):
            raise error


def _serve(desk: Desk, living: "LiveChannels", *, port: int, flood_every: float | None, seconds: float | None) -> None:
    from floodmark.testing.telegram.server import LoopbackTelegram  # noqa: PLC0415 - heavy

    async def serve() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop, seconds):
            async with LoopbackTelegram(living.backend, port) as server:
                await work(server, stop)

    async def work(server: LoopbackTelegram, stop: asyncio.Event) -> None:
        _welcome(desk, living, server)
        try:
            with _picture(desk, living, server) as picture:
                doing = [living.run(), _shown(picture)]
                if flood_every is not None:
                    doing.append(living.flood(server, flood_every))
                await _until(stop, doing)
        finally:
            desk.note(_counts(living, server))

    asyncio.run(serve())


async def _shown(picture: Callable[[], None]) -> None:
    while True:
        picture()
        await asyncio.sleep(_SHOWN_EVERY)


def _welcome(desk: Desk, living: "LiveChannels", server: "LoopbackTelegram") -> None:
    out, names = desk.out, list(living.backend.accounts)
    desk.note(f"[bold]A Telegram on this machine[/], at 127.0.0.1:{server.port}. Ctrl-C ends it.\n")
    rows = [
        (
            f"@{channel.username}",
            channel.channel_id,
            f"{channel.history.top:,}",
            f"{60 * living.pace(number):.3g} a minute",
        )
        for number, channel in enumerate(living.channels[:20])
    ]
    out.print(table("channel", "id", "posts", "new", rows=rows, right=("posts", "new")))
    if len(living.channels) > 20:
        desk.note(f"[dim]and {len(living.channels) - 20} more[/]")
    desk.note("\n[bold]Next[/], in another terminal:")
    for line in _next(living, server):
        # Whole lines, however long: they are there to be copied.
        out.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)
    phone = living.backend.accounts[names[-1]]
    desk.note(
        f"\n[dim]Or sign in by phone, with the code {phone.code}: "
        f"floodmark accounts add {names[-1]} --phone +{phone.phone} --server 127.0.0.1:{server.port} "
        "--api-id 1 --api-hash loopback[/]\n"
    )


def _next(living: "LiveChannels", server: "LoopbackTelegram") -> Iterator[str]:
    for name in living.backend.accounts:
        yield f"floodmark accounts add {name} --session {server.session(name)} --api-id 1 --api-hash loopback"
    for channel in living.channels[:3]:
        yield f"floodmark add telegram @{channel.username} --every 10s"
    yield "floodmark up"


@contextmanager
def _picture(desk: Desk, living: "LiveChannels", server: "LoopbackTelegram") -> Iterator[Callable[[], None]]:
    """Something to call for a new picture: one line that changes in its place, on a terminal only."""
    with desk.busy("") as status:
        yield lambda: status.update(plain(_counts(living, server)))


def _counts(living: "LiveChannels", server: "LoopbackTelegram") -> str:
    calls = server.calls()
    waits = sum(call.result.startswith("FLOOD_WAIT") for call in calls)
    posts = sum(channel.history.top for channel in living.channels)
    told = f"{counted(posts, 'post')}, {counted(len(calls), 'call')}, {counted(waits, 'wait')} told"
    # Short, to fit a terminal: that somebody misbehaves is only said when it is so.
    broken, doubled = len(server.violations), len(server.duplicates)
    return (
        told
        + (f", {counted(broken, 'call')} during a wait" if broken else "")
        + (f", a session used twice {doubled}x" if doubled else "")
    )
