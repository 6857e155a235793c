"""The form of `floodmark add python`."""

from .form import JobForm, ParamOption

FORM = JobForm(
    help="""Collect the items that a Python function yields; on demand if no schedule is given.

    floodmark add python myapp.feeds:news --every 15m --key id --watermark id
    """,
    target_help="package.module:name of a function.",
    options=(
        ParamOption("key", "Field that identifies an item.", metavar="FIELD"),
        ParamOption("watermark", "Field whose last value becomes `since` of the next run.", metavar="FIELD"),
    ),
)
