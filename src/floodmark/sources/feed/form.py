"""The form of `floodmark add feed`."""

from typing import TYPE_CHECKING

from floodmark.sources.form import JobForm, ParamOption
from floodmark.sources.web.extraction import plan as packages
from floodmark.sources.web.form import NEEDS, PROXY_OPTION, complete, preview
from floodmark.sources.web.targets import is_feed_url, is_url

from .params import FOLDER_HINT, NO_FOLDER, parse_params

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.model.accounts import AccountRow
    from floodmark.model.spec import JobSpec
    from floodmark.settings import Settings


def _find_missing(spec: "JobSpec", settings: "Settings", accounts: "Sequence[AccountRow]") -> str | None:
    if settings.floodmark_url is not None:
        # The workers of a server run on other machines.
        return None
    params = parse_params(spec.params)
    if (missing := packages.find_missing(params.plan.packages)) is not None:
        return f"It cannot run on this machine yet: it has no {missing}; {packages.INSTALL}"
    return f"{NO_FOLDER}; {FOLDER_HINT}" if params.enclosures and settings.artifacts_dir is None else None


FORM = JobForm(
    help="""Collect the entries of a feed; on demand if no schedule is given.

    floodmark add feed https://example.com/feed.xml --every 15m
    """,
    metavar="URL",
    target_help="URL of an RSS, Atom or JSON feed, or of a page that names one.",
    complete=complete,
    second_job_needs=NEEDS,
    fit=lambda text: 0.6 if is_feed_url(text) else 0.3 if is_url(text) else 0.0,
    collects="Every entry of the feed, and entries that were changed later.",
    preview=preview,
    find_missing=_find_missing,
    options=(
        ParamOption("full_text", "Read the text of the page of each new entry.", kind=bool, flags="--full-text"),
        ParamOption("extractor", "With --full-text: built-in or trafilatura (built-in).", metavar="NAME"),
        ParamOption(
            "enclosures", "Download the files of new entries to ARTIFACTS_DIR.", kind=bool, flags="--enclosures"
        ),
        PROXY_OPTION,
        ParamOption("robots", "obey, or ignore for your own sites (obey).", metavar="HOW"),
    ),
)
