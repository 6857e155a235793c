"""Dead letters: executions that failed for good, grouped by their error."""

import re
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

# Quotes, ids and numbers differ from one failure to the next although the fault is the same.
_VARIABLE = re.compile(
    r"""(?P<quoted>"[^"]*"|(?<!\w)'[^']*'(?!\w)|`[^`]*`)|(?P<hex>\b0x[0-9a-f]+\b|\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b)|\d+""",
    re.IGNORECASE,
)


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters that died of the same error."""

    fingerprint: Annotated[str, Meta(description="The error without what differs each time; names the group.")]
    count: int
    example: Annotated[str, Meta(description="The newest error in full.")]
    newest: Annotated[datetime, Meta(description="When the newest of them died.")]
    jobs: Annotated[tuple[str, ...], Meta(description="At most ten of the jobs concerned.")]


def fingerprint(error: str | None) -> str:
    """Return the first line of an error without what differs each time: "user … not found after # s"."""
    first = (error or "").strip().partition("\n")[0][:300]
    return _VARIABLE.sub(lambda found: "…" if found["quoted"] else "#", first).strip() or "no error message"
