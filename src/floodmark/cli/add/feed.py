"""`add feed`: the entries of a feed."""

from typing import Annotated

import typer

from floodmark.cli.job_options import JobOptions

from .add_job import add_job
from .web import complete_url


def feed(
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(metavar="URL", help="URL of an RSS, Atom or JSON feed.")],
    job: JobOptions,
) -> None:
    """Collect the entries of a feed; on demand if no schedule is given.

    floodmark add feed https://example.com/feed.xml --every 15m
    """
    add_job(context, "feed", target, job, complete=complete_url)
