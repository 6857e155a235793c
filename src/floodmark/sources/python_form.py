"""The form of `floodmark add python`."""

import re

from .form import JobForm, ParamOption

_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

FORM = JobForm(
    help="""Collect the items that a Python function yields; on demand if no schedule is given.

    floodmark add python myapp.feeds:news --every 15m --key id --watermark id
    """,
    target_help="package.module:name of a function.",
    fit=lambda text: 0.7 if _FUNCTION.fullmatch(text.strip()) else 0.0,
    collects="The items that the function yields.",
    options=(
        ParamOption("key", "Field that identifies an item.", metavar="FIELD"),
        ParamOption("watermark", "Field whose last value becomes `since` of the next run.", metavar="FIELD"),
    ),
)
