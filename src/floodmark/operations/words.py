"""Types of arguments that many operations share."""

from typing import Annotated

from msgspec import Meta

from .declaration import MOST_ROWS, Query

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(min_length=1, max_length=2000)]

Cursor = Annotated[
    str | None, Query(description="`next` of the previous page; left out for the first.", max_length=4000)
]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="The maximum number.")]
