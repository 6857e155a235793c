"""Pages that would cost far more to take apart than to send. Pure.

A parser of HTML needs time by the square of how deep elements are nested; and every paragraph repeats the elements for
letters (`<b>`, `<font>`) that were left open before it, so that twenty kilobytes can become a gigabyte of tree.
"""

import re
from collections import Counter

DEEPEST = 2000
# As many elements that are repeated: about as many times 300 bytes.
MOST_REPEATED = 500_000
# With fewer tags than this there is nothing to fear, and most pages have fewer.
_FEW_TAGS = 1000
# Without those that end by themselves. One that is left open and is not among them is taken for deep.
_TAG = re.compile(
    r"<(/?)(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr|p|li|dt|dd|option|optgroup|tr|td|th|"
    r"thead|tbody|tfoot|colgroup|rb|rt|rp|rtc|a|nobr|html|head|body)[\s/>])([a-z][^\s/>]*)([^>]*)",
    re.IGNORECASE,
)
_LETTERS = frozenset({"b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u"})


class TooNested(ValueError):
    """It is better not parsed."""

    def __init__(self) -> None:
        super().__init__("its elements are nested too deeply to be read")


def check_nesting(html: str) -> None:
    """Raise `TooNested` for a page that is made, or broken, so that a parser chokes on it."""
    tags = html.count("<")
    if tags < _FEW_TAGS:
        return
    still_open: Counter[str] = Counter()
    # What a parser repeats; of those that are the same in everything, a few.
    letters: dict[str, set[str]] = {}
    depth = repeated = 0
    for closing, said, attributes in _TAG.findall(html):
        name = said.lower()
        if not closing:
            depth, still_open[name] = depth + 1, still_open[name] + 1
            if name in _LETTERS:
                letters.setdefault(name, set()).add(attributes)
                repeated = max(repeated, len(letters[name]))
        elif still_open[name]:
            depth, still_open[name] = depth - 1, still_open[name] - 1
            if not still_open[name]:
                letters.pop(name, None)
        if depth > DEEPEST or repeated * tags > MOST_REPEATED:
            raise TooNested
