"""`add KIND`: a source that an app or a package brings."""

from typing import Annotated

import typer

from .making import add_job
from .options import JobOptions


def other(
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Target, in the format of the source.")],
    job: JobOptions,
) -> None:
    """Collect from your own source or the source of a package; on demand if no schedule is given.

    floodmark add folder inbox --every 1m --app myapp:app
    """
    add_job(context, context.info_name or "", target, job)
