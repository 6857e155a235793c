"""What has changed between two texts: by lines, and by words within changed lines. Pure, bounded in size and time."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

# A comparison takes quadratic time at worst.
MOST_LINES, LONGEST_LINE = 1000, 2000
_MOST_WORDS = 400
# Unchanged lines that are shown before and after a change.
_CONTEXT = 2
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class TextPart(Struct, frozen=True):
    """A part of a line, and whether it differs."""

    text: str
    is_changed: bool = False


Parts = tuple[TextPart, ...]
RowKind = Literal["same", "changed", "removed", "added", "skipped"]


class DifferenceRow(Struct, frozen=True):
    """A line before and after; None where there is none. `skipped`: `count` unchanged lines that are left out."""

    kind: RowKind
    before: Parts | None = None
    after: Parts | None = None
    count: int = 0


class Difference(Struct, frozen=True):
    """The rows of two texts. `is_cut`: only the beginning was compared."""

    rows: tuple[DifferenceRow, ...]
    added: int
    removed: int
    is_cut: bool


def compare_texts(before: str, after: str) -> Difference:
    """Return what differs between two texts."""
    old, new = _lines(before), _lines(after)
    rows = tuple(_shorten(list(_rows(old, new))))
    is_cut = any(_is_long(text) for text in (before, after))
    added = sum(row.kind in ("added", "changed") for row in rows)
    removed = sum(row.kind in ("removed", "changed") for row in rows)
    return Difference(rows, added, removed, is_cut)


def _lines(text: str) -> list[str]:
    # Only as much as can be needed: a text may have a million lines.
    lines = text[: MOST_LINES * LONGEST_LINE].splitlines()[:MOST_LINES]
    return [line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…" for line in lines]


def _is_long(text: str) -> bool:
    lines = text[: MOST_LINES * LONGEST_LINE + 1].splitlines()
    return len(text) > MOST_LINES * LONGEST_LINE or len(lines) > MOST_LINES or any(len(x) > LONGEST_LINE for x in lines)


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[DifferenceRow]:
    for kind, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            yield from (DifferenceRow("same", _whole(line), _whole(line)) for line in new[c:d])
            continue
        both = min(b - a, d - c)
        yield from (_changed(one, other) for one, other in zip(old[a : a + both], new[c : c + both], strict=True))
        yield from (DifferenceRow("removed", _whole(line, is_changed=True)) for line in old[a + both : b])
        yield from (DifferenceRow("added", None, _whole(line, is_changed=True)) for line in new[c + both : d])


def _changed(before: str, after: str) -> DifferenceRow:
    old, new = _WORD.findall(before), _WORD.findall(after)
    if len(old) > _MOST_WORDS or len(new) > _MOST_WORDS:
        return DifferenceRow("changed", _whole(before, is_changed=True), _whole(after, is_changed=True))
    left, right = list[TextPart](), list[TextPart]()
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for parts, words in ((left, old[a:b]), (right, new[c:d])):
            if words:
                parts.append(TextPart("".join(words), kind != "equal"))
    return DifferenceRow("changed", tuple(left), tuple(right))


def _whole(line: str, *, is_changed: bool = False) -> Parts:
    return (TextPart(line, is_changed),)


def _shorten(rows: Sequence[DifferenceRow]) -> Iterator[DifferenceRow]:
    """Yield the rows; of long runs of unchanged ones only those next to a change."""
    near = {
        place + step for place, row in enumerate(rows) if row.kind != "same" for step in range(-_CONTEXT, _CONTEXT + 1)
    }
    skipped = 0
    for place, row in enumerate(rows):
        if place in near:
            if skipped:
                yield DifferenceRow("skipped", count=skipped)
            skipped = 0
            yield row
        else:
            skipped += 1
    if skipped:
        yield DifferenceRow("skipped", count=skipped)
