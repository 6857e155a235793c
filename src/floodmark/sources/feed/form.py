"""The form of `floodmark add feed`."""

from floodmark.sources.form import JobForm
from floodmark.sources.web.form import NEEDS, complete, preview
from floodmark.sources.web.targets import is_feed_url, is_url

FORM = JobForm(
    help="""Collect the entries of a feed; on demand if no schedule is given.

    floodmark add feed https://example.com/feed.xml --every 15m
    """,
    metavar="URL",
    target_help="URL of an RSS, Atom or JSON feed.",
    complete=complete,
    second_job_needs=NEEDS,
    fit=lambda text: 0.6 if is_feed_url(text) else 0.3 if is_url(text) else 0.0,
    collects="Every entry of the feed, and entries that were changed later.",
    preview=preview,
)
