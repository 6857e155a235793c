"""Bytes of a page or feed as text, whatever they say about themselves. Pure.

In turn: the byte order mark, what the HTTP header says, what the document says, UTF-8, and what a detector makes of the
bytes. A statement that the bytes contradict is not believed; a few bad bytes in a document do not contradict it.
"""

import codecs
import re

# The marks of UTF-32 first: one of them begins like that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# How `<` and what follows it begin without a mark.
_WIDE = (
    (re.compile(rb"<\0\0\0"), "utf-32-le"),
    (re.compile(rb"\0\0\0<"), "utf-32-be"),
    (re.compile(rb"<\0[^\0]\0"), "utf-16-le"),
    (re.compile(rb"\0<\0[^\0]"), "utf-16-be"),
)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_\-:.]{2,40})", re.IGNORECASE)
_LOOKED_AT, _SAMPLE = 2048, 200_000
_ASCII = bytes(range(128))
_LATIN = "windows-1252"
# Names mean what browsers take them for: mostly the larger set that contains the one that is named.
_MEANT = {
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin-1", "latin1", "us-ascii", "ascii"), _LATIN),
    **dict.fromkeys(("gb2312", "gb_2312-80", "x-gbk", "gbk", "euc-cn", "hz-gb-2312"), "gb18030"),
    **dict.fromkeys(("euc-kr", "euc_kr", "ks_c_5601-1987", "ks_c_5601", "korean", "uhc", "x-windows-949"), "cp949"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("big5", "big-5", "x-x-big5", "cn-big5"), "big5hkscs"),
    **dict.fromkeys(("iso-8859-9",), "windows-1254"),
    **dict.fromkeys(("koi8-r", "koi8"), "koi8-u"),
}
# UTF-16 that a page claims in ASCII letters cannot be.
_IMPOSSIBLE = ("utf-16", "utf16", "utf-32", "utf32", "utf-7")
# What the detector may say; of the rest it is wrong more often than right.
_DETECTED = frozenset(
    {"gb18030", "cp949", "cp932", "big5hkscs", "euc-jp", "iso-2022-jp", "koi8-u", "ibm866", "tis-620",
     *(f"windows-{number}" for number in (874, *range(1250, 1259))), *(f"iso-8859-{number}" for number in range(2, 17))}
)  # fmt: skip


def decoded(body: bytes, told: str | None = None) -> str:
    """The text of a page. `told` is what its header says."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    head = body[:_LOOKED_AT]
    for pattern, name in _WIDE:
        if pattern.match(head):
            return body.decode(name, "replace")
    said = [] if told is None else [_meant(told)]
    said += [_meant(found[1].decode("ascii")) for found in (_META.search(head), _XML.match(head)) if found]
    if _LATIN in said:
        # Many a server says so of everything it sends, and hardly any other text is UTF-8 by chance.
        said.insert(0, "utf-8")
    for name in [*said, "utf-8"]:
        text = _strictly(body, name)
        if text is not None:
            return text
    return _nearly(body, said) or body.decode(_detected(body), "replace")


def _meant(name: str) -> str:
    return _MEANT.get(name.lower(), name.lower())


def _strictly(body: bytes, name: str) -> str | None:
    if name.startswith(_IMPOSSIBLE):
        return None
    try:
        return codecs.lookup(name).decode(body)[0] if _is_text(name) else None
    except (LookupError, UnicodeError, ValueError):
        return None


def _nearly(body: bytes, said: list[str]) -> str | None:
    """The text in UTF-8 or in what is said, if no more than a few bytes of it are bad."""
    others = len(body.translate(None, _ASCII))
    for name, share in (("utf-8", 4), *((name, 20) for name in said)):
        if name.startswith(_IMPOSSIBLE) or not _is_known(name):
            continue
        text = body.decode(name, "replace")
        if text.count("\ufffd") * share <= others:
            return text
    return None


def _detected(body: bytes) -> str:
    """What the bytes are most likely written in."""
    import cchardet  # noqa: PLC0415 - most pages say what they are

    found = cchardet.detect(body[:_SAMPLE])["encoding"]
    name = _meant(found) if found else _LATIN
    return name if name in _DETECTED and _is_known(name) else _LATIN


def _is_known(name: str) -> bool:
    try:
        return _is_text(name)
    except LookupError:
        return False


def _is_text(name: str) -> bool:
    # Python has codecs that are none: "hex", "zlib", "rot13".
    info = codecs.lookup(name)
    return bool(getattr(info, "_is_text_encoding", True)) and info.name not in {"idna", "punycode", "unicode_escape"}
