"""The number of hops of an arrival: how many times in a row Floodmark's own events have led to it."""

import re

from floodmark.errors import InvalidInput

MOST_HOPS = 3
"""A chain of triggers may be longer than one; a loop has no end."""
_NUMBER = re.compile(r"\d{1,6}", re.ASCII)


class TooManyHops(InvalidInput):
    """An arrival at the end of a chain of Floodmark's own events. Nothing was fired."""

    reason = "too many hops"


def read_hops(text: str) -> int:
    """Return the number in a header or field."""
    if not _NUMBER.fullmatch(text):
        raise InvalidInput("the number of hops is not a number", hint="forward X-Floodmark-Hops as it was received")
    return int(text)


def check_hops(hops: int) -> None:
    """Refuse an arrival to which Floodmark's own events have led too many times in a row."""
    if hops > MOST_HOPS:
        raise TooManyHops(
            f"Floodmark's own events have led to this one {hops} times in a row: it is part of a loop",
            hint="a job whose events fire it again, directly or through other jobs and programs, must not be fired by "
            "them: change the trigger, or the streams of the sink",
        )
