"""`add web`: a site, page by page."""

from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.errors import Conflict
from floodmark.model.spec import JobSpec
from floodmark.rules.streams import stream_name

from .making import add_job
from .options import JobOptions

if TYPE_CHECKING:
    from floodmark.operations.declared import AsyncOperations
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
    add_job(context, "web", target, job, params=params, complete=in_one_form)


async def in_one_form(operations: "AsyncOperations", settings: "Settings", spec: JobSpec) -> tuple[JobSpec, str | None]:
    """A job for an address in its one form; a second one for it has to be asked for by name."""
    # Opened for these sources alone: the others need none of it.
    from floodmark.operations.jobs import JobFilter  # noqa: PLC0415
    from floodmark.sources.web.targets import complete_spec  # noqa: PLC0415

    spec = complete_spec(spec)
    stream = stream_name(spec.stream, spec.source, spec.target)
    async for other in operations.each_job(JobFilter(source=spec.source, text=spec.target)):
        if other.stream == stream and spec.name is None:
            raise Conflict(
                f"{other.name} collects {spec.target} already",
                hint=f"see it with: floodmark show {other.name}; a second job for it needs a --name and a --stream",
            )
    return spec, None
