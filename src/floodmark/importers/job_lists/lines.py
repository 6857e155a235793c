"""A target per line. Text after a # at the beginning of a line or after a space is a comment."""

import re

from floodmark.errors import InvalidInput

from .rows import LONGEST_LINE, JobList

_COMMENT = re.compile(r"(?:^|\s)#.*")


def read_lines(text: str) -> JobList:
    """Return a row for each line that is not empty."""
    found = JobList()
    # Not `splitlines`, which also splits at characters that a target may contain.
    for number, line in enumerate(text.split("\n"), 1):
        where = f"line {number:,}"
        if len(line) > LONGEST_LINE:
            found.add(where, error=InvalidInput(f"it has {len(line):,} characters", hint="write one target per line"))
        elif target := _COMMENT.sub("", line).strip():
            found.add(where, {"target": target})
    return found
