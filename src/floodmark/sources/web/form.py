"""The form of `floodmark add web`."""

from typing import TYPE_CHECKING

from floodmark.model.previews import SourcePreview
from floodmark.model.spec import JobSpec
from floodmark.sources.form import JobForm, ParamOption, PreviewTools

from .targets import complete_spec, is_url

if TYPE_CHECKING:
    from floodmark.settings import Settings

NEEDS = "a --name and a --stream"


def complete(spec: JobSpec, settings: "Settings") -> JobSpec:
    """Return the job with its normalized URL. The installation that stores it checks whether the URL is allowed."""
    return complete_spec(spec)


async def preview(spec: JobSpec, tools: PreviewTools) -> SourcePreview:
    """Fetch the start page or the feed once, and return what would be collected."""
    from .target_preview import preview_target  # noqa: PLC0415 - loads the parsers; the command line needs none

    return await preview_target(spec, tools)


FORM = JobForm(
    help="""Collect the new, changed and deleted pages of a site; on demand if no schedule is given.

    floodmark add web https://example.com/ --every 1h --include '/news/**'
    """,
    metavar="URL",
    target_help="Start URL, as in https://example.com/news.",
    complete=complete,
    second_job_needs=NEEDS,
    fit=lambda text: 0.5 if is_url(text) else 0.0,
    collects="Every page of the site that is new, changed or deleted since the last run.",
    preview=preview,
    options=(
        ParamOption(
            "include",
            "Only paths like '/news/**' (* does not match a slash); can be repeated.",
            kind=list[str],
            metavar="GLOB",
        ),
        ParamOption("exclude", "No paths like '**/print'; can be repeated.", kind=list[str], metavar="GLOB"),
        ParamOption("max_pages", "Maximum number of pages per crawl (1000).", kind=int, metavar="N"),
        ParamOption("max_depth", "Maximum number of links from the start (5).", kind=int, metavar="N"),
        ParamOption("delay", "Time between two requests (default: WEB_DOMAIN_DELAY).", metavar="TIME"),
        ParamOption(
            "concurrency", "Number of parallel requests (default: WEB_DOMAIN_CONCURRENCY).", kind=int, metavar="N"
        ),
        ParamOption("robots", "obey, or ignore for your own sites (obey).", metavar="HOW"),
        ParamOption("sitemaps", "Find pages by sitemaps.", kind=bool, flags="--sitemaps/--no-sitemaps", default="yes"),
        ParamOption("feeds", "Find pages by feeds.", kind=bool, flags="--feeds/--no-feeds", default="yes"),
        ParamOption(
            "trust_lastmod",
            "Do not request pages that their sitemap reports as unchanged.",
            kind=bool,
            flags="--trust-lastmod",
        ),
    ),
)
