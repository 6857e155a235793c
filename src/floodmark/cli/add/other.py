"""`add KIND`: a source of an app or of another package."""

from typing import Annotated

import typer

from floodmark.cli.job_options import JobOptions

from .add_job import add_job


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
