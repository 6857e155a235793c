"""`add python`: the items of a Python function."""

from typing import Annotated

import typer

from floodmark.cli.job_options import JobOptions

from .add_job import add_job


def python(
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="package.module:name of a function.")],
    key: Annotated[str | None, typer.Option(metavar="FIELD", help="Field that identifies an item.")] = None,
    watermark: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Field whose last value becomes `since` of the next run.")
    ] = None,
    job: JobOptions,
) -> None:
    """Collect the items that a Python function yields; on demand if no schedule is given.

    floodmark add python myapp.feeds:news --every 15m --key id --watermark id
    """
    add_job(context, "python", target, job, params={"key": key, "watermark": watermark})
