"""The declaration of a field of a job: its meaning and bounds, used where it is checked, shown or documented."""

from typing import Any

from msgspec import Meta, Struct

# Ten years: more is a mistake, and much more does not fit a timedelta.
TEN_YEARS = 315_360_000

NAME = Meta(min_length=1, max_length=200)
TEXT = Meta(min_length=1, max_length=2000)
SECONDS = Meta(ge=0, le=TEN_YEARS)
POSITIVE_SECONDS = Meta(gt=0, le=TEN_YEARS)


class Option(Struct, frozen=True):
    """The option of `floodmark add` and `floodmark edit` that sets a field."""

    name: str
    panel: str | None = None
    metavar: str | None = None
    help: str | None = None  # if the command line needs another text than the description


class Field(Struct, frozen=True):
    """The meaning of a field: `job: Annotated[int, Field("How many ...", bounds=Meta(ge=0))] = 1`."""

    description: str
    bounds: Meta | None = None  # of the value itself, of the seconds of a duration, of each word of a list
    example: Any = None
    unset: str | None = None  # what applies if nothing is given, if the default does not show it
    option: Option | None = None
    is_column: bool = True
