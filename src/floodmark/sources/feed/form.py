"""The form of `floodmark add feed`."""

from floodmark.sources.form import JobForm
from floodmark.sources.web.form import NEEDS, complete

FORM = JobForm(
    help="""Collect the entries of a feed; on demand if no schedule is given.

    floodmark add feed https://example.com/feed.xml --every 15m
    """,
    metavar="URL",
    target_help="URL of an RSS, Atom or JSON feed.",
    complete=complete,
    second_job_needs=NEEDS,
)
