"""Serve the HTTP API, and print its OpenAPI document."""

import typer

from .output import print_json
from .roles import Seconds
from .root import AppOption, CliContext

_PORT = typer.Option(None, min=0, max=65535, help="Port to listen on (default: PORT, 8060); 0: any free port.")


def api(context: typer.Context, port: int | None = _PORT, app: AppOption = None, seconds: Seconds = None) -> None:
    """Serve the API. Start any number; `floodmark up` serves it too."""
    cli = CliContext.of(context)
    cli.refuse_url("api")
    cli.set("FLOODMARK_APP", app)
    from .serve import serve  # noqa: PLC0415 - loads all of Floodmark

    serve(cli, port=port, seconds=seconds, scheduler=False, worker=False, parent=None)


def openapi() -> None:
    """Print the OpenAPI document of the API, without a server or a database."""
    from floodmark.api.app import create_app  # noqa: PLC0415 - loads all of Floodmark

    print_json(create_app(None).openapi())
