"""Decodes pages and feeds. Pure.

Tried in this order: the byte order mark, the charset of the HTTP header, that of the document, UTF-8, and a detector.
A declared charset is ignored if the bytes contradict it; a few invalid bytes do not.
"""

import codecs
import re

# UTF-32 before UTF-16: one of its marks starts with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# The first bytes of a document that starts with `<`, without a byte order mark.
_WIDE = (
    (re.compile(rb"<\0\0\0"), "utf-32-le"),
    (re.compile(rb"\0\0\0<"), "utf-32-be"),
    (re.compile(rb"<\0[^\0]\0"), "utf-16-le"),
    (re.compile(rb"\0<\0[^\0]"), "utf-16-be"),
)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE)
_HEAD_BYTES, _SAMPLE_BYTES = 2048, 200_000
_ASCII = bytes(range(128))
_LATIN = "windows-1252"
# Charset names as browsers interpret them: mostly a larger set that contains the named one.
_BROWSER_NAMES = {
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin-1", "latin1", "us-ascii", "ascii"), _LATIN),
    **dict.fromkeys(("gb2312", "gb_2312-80", "x-gbk", "gbk", "euc-cn", "hz-gb-2312"), "gb18030"),
    **dict.fromkeys(("euc-kr", "euc_kr", "ks_c_5601-1987", "ks_c_5601", "korean", "uhc", "x-windows-949"), "cp949"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("big5", "big-5", "x-x-big5", "cn-big5"), "big5hkscs"),
    **dict.fromkeys(("iso-8859-9",), "windows-1254"),
    **dict.fromkeys(("koi8-r", "koi8"), "koi8-u"),
}
# A page that declares these in ASCII letters is not encoded so.
_IMPOSSIBLE = ("utf-16", "utf16", "utf-32", "utf32", "utf-7")
# The detector's other results are wrong more often than right.
_DETECTED = frozenset(
    {"gb18030", "cp949", "cp932", "big5hkscs", "euc-jp", "iso-2022-jp", "koi8-u", "ibm866", "tis-620",
     *(f"windows-{number}" for number in (874, *range(1250, 1259))), *(f"iso-8859-{number}" for number in range(2, 17))}
)  # fmt: skip


def decode_text(body: bytes, declared: str | None = None) -> str:
    """Return the text of a document. `declared` is the charset of its HTTP header."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    head = body[:_HEAD_BYTES]
    for pattern, name in _WIDE:
        if pattern.match(head):
            return body.decode(name, "replace")
    names = [] if declared is None else [_browser_name(declared)]
    names += [_browser_name(found[1].decode("ascii")) for found in (_META.search(head), _XML.match(head)) if found]
    if _LATIN in names:
        # Many servers declare it for everything, and text in another charset is hardly ever valid UTF-8.
        names.insert(0, "utf-8")
    for name in [*names, "utf-8"]:
        text = _decode_strictly(body, name)
        if text is not None:
            return text
    return _decode_leniently(body, names) or body.decode(_detect_charset(body), "replace")


def _browser_name(name: str) -> str:
    return _BROWSER_NAMES.get(name.lower(), name.lower())


def _decode_strictly(body: bytes, name: str) -> str | None:
    if name.startswith(_IMPOSSIBLE):
        return None
    try:
        return codecs.lookup(name).decode(body)[0] if _is_charset(name) else None
    except ValueError:
        return None


def _decode_leniently(body: bytes, names: list[str]) -> str | None:
    """Return the text in UTF-8 or a declared charset if only a few of its bytes are invalid."""
    others = len(body.translate(None, _ASCII))
    for name, share in (("utf-8", 4), *((name, 20) for name in names)):
        if name.startswith(_IMPOSSIBLE) or not _is_charset(name):
            continue
        text = body.decode(name, "replace")
        if text.count("\ufffd") * share <= others:
            return text
    return None


def _detect_charset(body: bytes) -> str:
    import cchardet  # noqa: PLC0415 - most pages declare their charset

    found = cchardet.detect(body[:_SAMPLE_BYTES])["encoding"]
    name = _browser_name(found) if found else _LATIN
    return name if name in _DETECTED and _is_charset(name) else _LATIN


def _is_charset(name: str) -> bool:
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    # Some Python codecs are not charsets: "hex", "zlib", "rot13".
    return bool(getattr(info, "_is_text_encoding", True)) and info.name not in {"idna", "punycode", "unicode_escape"}
