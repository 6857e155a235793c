"""`api`: only serve the HTTP API. `openapi`: what it is like."""

import typer

from .root import AppOption, Desk
from .running import Seconds
from .showing import print_json

_PORT = typer.Option(None, min=0, max=65535, help="Port to listen on (default: PORT, 8060); 0: any free port.")


def api(context: typer.Context, port: int | None = _PORT, app: AppOption = None, seconds: Seconds = None) -> None:
    """Serve the API. Start any number; `floodmark up` serves it too."""
    desk = Desk.of(context)
    desk.refuse_url("api")
    desk.set("FLOODMARK_APP", app)
    from .service import serve  # noqa: PLC0415 - heavy

    serve(desk, port=port, seconds=seconds, scheduler=False, worker=False, parent=None)


def openapi() -> None:
    """Print the OpenAPI document of the API, without a server or a database."""
    from floodmark.api.app import create_app  # noqa: PLC0415 - heavy

    print_json(create_app(None).openapi())
