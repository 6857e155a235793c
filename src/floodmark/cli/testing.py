"""Start local servers to try Floodmark with."""

from pathlib import Path
from typing import Annotated

import typer

from .root import CliContext, command_group

testing = command_group("Start local servers to try Floodmark with.", default="--help")


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
    from .testing_servers import serve_telegram  # noqa: PLC0415 - loads the servers

    cli = CliContext.of(context)
    cli.refuse_url("testing telegram")
    plan = {"channels": channels, "rate": rate, "history": history, "accounts": accounts, "seed": seed}
    serve_telegram(cli, plan, state=state, port=port, flood_every=flood_every, seconds=seconds)


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
    from .testing_servers import serve_site  # noqa: PLC0415 - loads the servers

    cli = CliContext.of(context)
    cli.refuse_url("testing web")
    plan = {"pages": pages, "change_every": change_every or None, "busy_every": busy_every, "seed": seed}
    serve_site(cli, plan, port=port, seconds=seconds)
