"""Bytes of a page as text, whatever it says about itself. Pure."""

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE)
_LOOKED_AT = 2048
# Who says Latin-1 means Windows, as browsers have it; UTF-16 that a page claims in ASCII letters cannot be.
_MEANT = {"iso-8859-1": "windows-1252", "latin-1": "windows-1252", "latin1": "windows-1252", "us-ascii": "windows-1252"}
_IMPOSSIBLE = ("utf-16", "utf16", "utf-32", "utf-7")


def decoded(body: bytes, told: str | None = None) -> str:
    """The text of a page. Its byte order mark, its header and its head are asked in turn; a wrong answer is noticed."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    said = [] if told is None else [told]
    head = body[:_LOOKED_AT]
    said += [found[1].decode("ascii") for found in (_META.search(head), _XML.match(head)) if found]
    for name in [*said, "utf-8"]:
        text = _strictly(body, name)
        if text is not None:
            return text
    # Every byte means something there, and it is what pages that say nothing were mostly written in.
    return body.decode("windows-1252", "replace")


def _strictly(body: bytes, name: str) -> str | None:
    name = _MEANT.get(name.lower(), name.lower())
    if name.startswith(_IMPOSSIBLE):
        return None
    try:
        return codecs.lookup(name).decode(body)[0] if _is_text(name) else None
    except (LookupError, UnicodeError, ValueError):
        return None


def _is_text(name: str) -> bool:
    # Python has codecs that are none: "hex", "zlib", "rot13".
    info = codecs.lookup(name)
    return bool(getattr(info, "_is_text_encoding", True)) and info.name not in {"idna", "punycode", "unicode_escape"}
