"""Dead letters: executions that failed permanently, grouped by their error."""

import re
from datetime import datetime
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

# Quoted text, ids and numbers vary between failures with the same cause.
_VARIABLE = re.compile(
    r"""(?P<quoted>"[^"]*"|(?<!\w)'[^']*'(?!\w)|`[^`]*`)|(?P<hex>\b0x[0-9a-f]+\b|\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b)|\d+""",
    re.IGNORECASE,
)


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters with the same error."""

    fingerprint: Annotated[str, Meta(description="The error without its variable parts; identifies the group.")]
    count: int
    example: Annotated[str, Meta(description="The newest error, at most 2,000 characters of it.")]
    newest: Annotated[datetime, Meta(description="When the newest of them failed.")]
    oldest: Annotated[datetime, Meta(description="When the oldest of them failed.")]
    jobs: Annotated[tuple[str, ...], Meta(description="Up to ten of the affected jobs.")]


@lru_cache(maxsize=20_000)
def fingerprint(error: str | None) -> str:
    """Return the first line of an error without its variable parts: "user … not found after # s"."""
    first = (error or "").strip().partition("\n")[0][:300]
    return _VARIABLE.sub(lambda found: "…" if found["quoted"] else "#", first).strip() or "no error message"
