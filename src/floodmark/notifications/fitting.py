"""Fits messages into the limits of their channels. Pure."""

import re
from collections.abc import Callable, Sequence
from urllib.parse import quote

_LONGEST_LINK = 500
_WEB = re.compile(r"https?://[^\s/]", re.IGNORECASE | re.ASCII)


def join_fitting(
    head: str, lines: Sequence[str], end: str, *, longest: int, measure: Callable[[str], int] = len
) -> str:
    """Return head, lines and end, each on a line, at most `longest` long. Whole lines are left out, and counted."""
    room = longest - measure(head) - measure(end) - 1
    lengths = [measure(line) + 1 for line in lines]
    if sum(lengths) <= room:
        return "\n".join([head, *lines, end])
    room -= measure(_left_out(len(lines))) + 1
    shown = 0
    for length in lengths:
        if length > room:
            break
        room -= length
        shown += 1
    return "\n".join([head, *lines[:shown], _left_out(len(lines) - shown), end])


def utf16_length(text: str) -> int:
    """Return the length as Discord and Telegram count it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def safe_link(url: str | None) -> str | None:
    """Return a web address that ends neither a link nor an attribute of any channel; None if there is none."""
    if not url or not _WEB.match(url) or len(url) > _LONGEST_LINK:
        return None
    return quote(url, safe="%/:=&?~#+!$,;'@()*[]", errors="replace")


def _left_out(count: int) -> str:
    return f"… and {count} more line{'' if count == 1 else 's'}"
