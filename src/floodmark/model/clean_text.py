"""Text that every database can store."""

import re
from typing import Any

_PAIR, _LONE = re.compile("[\ud800-\udbff][\udc00-\udfff]"), re.compile("[\ud800-\udfff]")


def clean(value: Any) -> Any:
    """Return the value with NUL replaced by U+2400 and lone surrogates by U+FFFD, in all of its texts."""
    if isinstance(value, str):
        # Most texts need no change, and most of those are ASCII, which is quick to check.
        return value if value.isascii() and "\0" not in value else _whole(value.replace("\0", "\u2400"))
    if isinstance(value, dict):
        return {clean(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    return value


def _whole(text: str) -> str:
    """Return the text if UTF-8 can encode it; otherwise join pairs of surrogates and replace lone ones."""
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        return _LONE.sub("\ufffd", joined)
    return text
