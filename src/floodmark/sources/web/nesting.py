"""Detects pages that are cheap to send and very expensive to parse. Pure.

Parsing HTML takes time quadratic in the depth of elements. In addition every paragraph repeats the formatting elements
(`<b>`, `<font>`) that were left open before it, so that 20 KB can become a tree of a gigabyte.
"""

import re
from collections import Counter

DEEPEST = 2000
# Repeated elements of about 300 bytes each.
MOST_REPEATED = 500_000
# Pages with fewer tags, which are most, are harmless.
_FEW_TAGS = 1000
# All elements except those with an optional end tag. Any other one that is not closed adds to the depth.
_TAG = re.compile(
    r"<(/?)(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr|p|li|dt|dd|option|optgroup|tr|td|th|"
    r"thead|tbody|tfoot|colgroup|rb|rt|rp|rtc|a|nobr|html|head|body)[\s/>])([a-z][^\s/>]*)([^>]*)",
    re.IGNORECASE,
)
_FORMATTING = frozenset({"b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u"})


class TooNested(ValueError):
    """The elements of a page are nested too deeply to parse it."""

    def __init__(self) -> None:
        super().__init__("its elements are nested too deeply to be read")


def check_nesting(html: str) -> None:
    """Raise `TooNested` for a page that would take a parser too much time or memory."""
    tags = html.count("<")
    if tags < _FEW_TAGS:
        return
    still_open: Counter[str] = Counter()
    # The parser repeats each distinct open formatting element.
    formatting: dict[str, set[str]] = {}
    depth = repeated = 0
    for closing, tag, attributes in _TAG.findall(html):
        name = tag.lower()
        if not closing:
            depth, still_open[name] = depth + 1, still_open[name] + 1
            if name in _FORMATTING:
                formatting.setdefault(name, set()).add(attributes)
                repeated = max(repeated, len(formatting[name]))
        elif still_open[name]:
            depth, still_open[name] = depth - 1, still_open[name] - 1
            if not still_open[name]:
                formatting.pop(name, None)
        if depth > DEEPEST or repeated * tags > MOST_REPEATED:
            raise TooNested
