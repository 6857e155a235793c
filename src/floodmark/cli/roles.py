"""Commands that run until they are stopped: all roles in one process, or one role each."""

from typing import Annotated

import typer

from .root import AppOption, CliContext

Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port of /health and /metrics (default: a setting); 0: any free port."),
]
ApiPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port of the API, /health and /metrics (default: PORT); 0: any free port."),
]
Seconds = Annotated[float | None, typer.Option(metavar="N", min=0, help="Stop after this many seconds.")]


def up(
    context: typer.Context,
    *,
    port: ApiPort = None,
    app: AppOption = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Number of parallel executions.")] = None,
    seconds: Seconds = None,
) -> None:
    """Schedule and run jobs and serve the API in one process, until Ctrl-C."""
    _serve(context, app, slots, port=port, seconds=seconds)


def scheduler(context: typer.Context, port: Port = None, app: AppOption = None, seconds: Seconds = None) -> None:
    """Run a scheduler. Start any number; one of them leads."""
    _serve(context, app, None, port=port, seconds=seconds, worker=False)


def worker(
    context: typer.Context,
    *,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=256, help="Number of processes.")] = 1,
    port: Port = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Number of parallel executions per process.")] = None,
    app: AppOption = None,
    seconds: Seconds = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a worker. Start any number, on any number of machines."""
    if processes == 1:
        return _serve(context, app, slots, port=port, seconds=seconds, scheduler=False, parent=parent)
    cli = CliContext.of(context)
    cli.refuse_url("worker")
    cli.set("FLOODMARK_APP", app)
    cli.set("SCHEDULER_WORKER_POOL_SIZE", slots)
    from .serve import supervise  # noqa: PLC0415 - loads all of Floodmark

    return supervise(cli, processes, port=port, seconds=seconds)


def demo(
    context: typer.Context,
    seconds: Seconds = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the data of the last demo and start over.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the dashboard (default: PORT); 0: any free port.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
) -> None:
    """Run the demo: start a local Telegram server, collect its posts, and show them in a dashboard."""
    cli = CliContext.of(context)
    cli.refuse_url("demo")
    cli.note(
        "[bold]Floodmark demo.[/] A local Telegram server: ten channels post and two accounts read them, with rate"
    )
    cli.note("limits (FLOOD_WAIT) and lost connections. Every post must arrive exactly once.")
    from .demo import run_demo  # noqa: PLC0415 - loads all of Floodmark

    raise typer.Exit(run_demo(cli, seconds=seconds, is_fresh=fresh, port=port, opens=open_browser))


def _serve(
    context: typer.Context,
    app: str | None,
    slots: int | None,
    *,
    port: int | None,
    seconds: float | None,
    scheduler: bool = True,
    worker: bool = True,
    parent: int | None = None,
) -> None:
    cli = CliContext.of(context)
    cli.refuse_url("up" if scheduler and worker else "scheduler" if scheduler else "worker")
    cli.set("FLOODMARK_APP", app)
    cli.set("SCHEDULER_WORKER_POOL_SIZE", slots)
    from .serve import serve  # noqa: PLC0415 - loads all of Floodmark

    serve(cli, port=port, seconds=seconds, scheduler=scheduler, worker=worker, parent=parent)
