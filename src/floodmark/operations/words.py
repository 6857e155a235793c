"""Types of arguments that many operations share."""

from typing import Annotated

from msgspec import Meta

from .declaration import MOST_ROWS, Query

Label = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(min_length=1, max_length=2000)]

Cursor = Annotated[str | None, Query("`next` of the previous page; left out for the first.", max_length=4000)]
Limit = Annotated[int, Query("The maximum number.", ge=1, le=MOST_ROWS)]
