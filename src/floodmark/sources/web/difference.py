"""What has changed between two texts, for people. Pure, and bounded in what it costs."""

import difflib

_CONTEXT = 1
# Comparing takes the product of both lengths at worst.
_MOST_LINES, _MOST_CHARACTERS = 2000, 8000


def difference(before: str, after: str) -> str:
    """The lines that went (-) and came (+), with a line around them, as in `diff -u`."""
    old, new = before.splitlines()[:_MOST_LINES], after.splitlines()[:_MOST_LINES]
    lines: list[str] = []
    length = 0
    for line in list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]:
        if length + len(line) > _MOST_CHARACTERS:
            lines.append("… and more")
            break
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)
