"""The form of `floodmark add web`."""

import os
from typing import TYPE_CHECKING

from floodmark.model.previews import SourcePreview
from floodmark.model.spec import JobSpec
from floodmark.sources.cookies.browser import BrowserMissing, require_browser
from floodmark.sources.form import JobForm, ParamOption, PreviewTools

from .extraction import plan as packages
from .params import FOLDER_HINT, NO_FOLDER, parse_params
from .targets import complete_spec, is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.model.accounts import AccountRow
    from floodmark.settings import Settings

NEEDS = "a --name and a --stream"


def complete(spec: JobSpec, settings: "Settings") -> JobSpec:
    """Return the job with its normalized URL. The installation that stores it checks whether the URL is allowed."""
    return complete_spec(spec)


async def preview(spec: JobSpec, tools: PreviewTools) -> SourcePreview:
    """Fetch the start page or the feed once, and return what would be collected."""
    from .target_preview import preview_target  # noqa: PLC0415 - loads the parsers; the command line needs none

    return await preview_target(spec, tools)


def find_missing(spec: JobSpec, settings: "Settings", accounts: "Sequence[AccountRow]") -> str | None:
    """Return what the job needs that this machine does not have. The workers of a server run on other machines."""
    if settings.floodmark_url is not None:
        return None
    params = parse_params(spec.params)
    if (missing := packages.find_missing(params.packages)) is not None:
        return f"It cannot run on this machine yet: it has no {missing}. {_sentence(packages.INSTALL)}"
    if params.needs_folder and settings.artifacts_dir is None:
        return f"{_sentence(NO_FOLDER)}. {_sentence(FOLDER_HINT)}"
    try:
        if params.render:
            require_browser(settings.floodmark_chromium, os.environ)
    except BrowserMissing as error:
        return f"It cannot run on this machine yet: {error.in_full()}"
    return None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


PROXY_OPTION = ParamOption(
    "proxy", "Connect through the proxy in this secret, an http:// or socks5:// URL (WEB_PROXY).", metavar="NAME"
)
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
    find_missing=find_missing,
    options=(
        ParamOption(
            "include",
            "Only paths like '/news/**' (* does not match a slash); can be repeated.",
            kind=list[str],
            metavar="GLOB",
        ),
        ParamOption("exclude", "No paths like '**/print'; can be repeated.", kind=list[str], metavar="GLOB"),
        ParamOption(
            "select",
            "Make an item of each match instead of each page: CSS, XPath ('//tr') or JSONPath ('$.items[*]').",
            metavar="SELECTOR",
        ),
        ParamOption(
            "fields",
            "A field of each match, as in 'price:number=td.price'; can be repeated.",
            kind=list[str],
            flags="--field",
            metavar="NAME[:TYPE]=SELECTOR",
        ),
        ParamOption(
            "key_fields",
            "Fields that identify a match on its page, separated by commas (the first field).",
            flags="--key",
            metavar="FIELDS",
        ),
        ParamOption(
            "ignore",
            "Parts that do not count as a change, as in '.clock' (CSS); can be repeated.",
            kind=list[str],
            metavar="CSS",
        ),
        ParamOption("extractor", "built-in, or trafilatura for the main text of articles (built-in).", metavar="NAME"),
        ParamOption("pdf", "Collect the text of PDF documents too.", kind=bool, flags="--pdf"),
        ParamOption(
            "sitemap_only", "Visit only pages of sitemaps; follow no links.", kind=bool, flags="--sitemap-only"
        ),
        ParamOption("subdomains", "Visit pages of subdomains too.", kind=bool, flags="--subdomains"),
        ParamOption("render", "Load pages in Chromium and read what they show.", kind=bool, flags="--render"),
        ParamOption(
            "wait_for",
            "With --render: wait for an element (CSS), or for a quiet network (network).",
            metavar="CSS|network",
        ),
        ParamOption(
            "headers",
            "A header of requests to the site; {secret:SHOP} is the secret SHOP; can be repeated.",
            kind=list[str],
            flags="--header",
            metavar="NAME: VALUE",
        ),
        ParamOption(
            "basic_auth",
            "Basic authentication with a secret user:password (floodmark secrets set NAME).",
            metavar="NAME",
        ),
        ParamOption("login_url", "Log in with the form of this page first.", metavar="URL"),
        ParamOption("login", "For --login-url: the name of a secret user:password.", metavar="NAME"),
        PROXY_OPTION,
        ParamOption("warc", "Store all responses in WARC files in ARTIFACTS_DIR.", kind=bool, flags="--warc"),
        ParamOption("raw", "Store the content of each revision in ARTIFACTS_DIR.", kind=bool, flags="--raw"),
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
