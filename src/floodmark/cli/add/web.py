"""`add web`: the pages of a site."""

from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.job_options import JobOptions
from floodmark.model.spec import JobSpec
from floodmark.operations.declared import AsyncOperations
from floodmark.sources.web.targets import complete_spec

from .add_job import add_job, refuse_second_job

if TYPE_CHECKING:
    from floodmark.settings import Settings


def web(
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(metavar="URL", help="Start URL, as in https://example.com/news.")],
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Only paths like '/news/**' (* does not match a slash); can be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="No paths like '**/print'; can be repeated.")
    ] = None,
    max_pages: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of pages per crawl (1000).")
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of links from the start (5).")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two requests (default: WEB_DOMAIN_DELAY).")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Number of parallel requests (default: WEB_DOMAIN_CONCURRENCY).")
    ] = None,
    robots: Annotated[
        str | None, typer.Option(metavar="HOW", help="obey, or ignore for your own sites (obey).")
    ] = None,
    sitemaps: Annotated[
        bool | None, typer.Option("--sitemaps/--no-sitemaps", help="Find pages by sitemaps.", show_default="yes")
    ] = None,
    feeds: Annotated[
        bool | None, typer.Option("--feeds/--no-feeds", help="Find pages by feeds.", show_default="yes")
    ] = None,
    job: JobOptions,
) -> None:
    """Collect the new, changed and deleted pages of a site; on demand if no schedule is given.

    floodmark add web https://example.com/ --every 1h --include '/news/**'
    """
    params = {
        "include": include or None,
        "exclude": exclude or None,
        "max_pages": max_pages,
        "max_depth": max_depth,
        "delay": delay,
        "concurrency": concurrency,
        "robots": robots,
        "sitemaps": sitemaps,
        "feeds": feeds,
    }
    add_job(context, "web", target, job, params=params, complete=complete_url)


async def complete_url(operations: AsyncOperations, settings: "Settings", spec: JobSpec) -> tuple[JobSpec, str | None]:
    """Normalise the URL of a job, and refuse a second job for it without a name."""

    spec = complete_spec(spec)
    await refuse_second_job(operations, spec, needs="a --name and a --stream")
    return spec, None
