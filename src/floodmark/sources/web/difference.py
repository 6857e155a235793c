"""The difference between two texts as a unified diff, bounded in size and time. Pure."""

import difflib

_CONTEXT = 1
# The comparison takes quadratic time at worst.
_MOST_LINES, _MOST_CHARACTERS = 2000, 8000


def difference(before: str, after: str) -> str:
    """Return the removed (-) and added (+) lines with one line of context, as `diff -u` does."""
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
