"""Reads a file with jobs: decodes it and finds its format, by its name or by its content."""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath

from floodmark.errors import InvalidInput

from .csv_rows import looks_like_csv, read_csv
from .documents import read_json_list, read_toml
from .lines import read_lines
from .opml import read_opml
from .rows import JobList

LARGEST_FILE = 50_000_000

FORMATS: Mapping[str, Callable[[str], JobList]] = {
    "lines": read_lines,
    "csv": read_csv,
    "opml": read_opml,
    "json": read_json_list,
    "toml": read_toml,
}
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".opml": "opml", ".xml": "opml", ".json": "json", ".toml": "toml"}
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_TOML = re.compile(r"^\s*(?:\[\[?\w+\]\]?\s*$|version\s*=)", re.MULTILINE)
_CALLED = "choose one of: " + ", ".join(FORMATS)


def read_list(content: bytes, *, name: str = "", form: str | None = None) -> JobList:
    """Return the jobs in a file. `form` is its format, if it is known."""
    if len(content) > LARGEST_FILE:
        hint = "split it into several files"
        raise InvalidInput(f"the file has more than {LARGEST_FILE:,} bytes", hint=hint)
    text = decode_text(content)
    chosen = form or find_format(text, name)
    if chosen not in FORMATS:
        raise InvalidInput(f"{chosen[:40]!r} is not a format", hint=_CALLED)
    return FORMATS[chosen](text)


def decode_text(content: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with a byte order mark."""
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidInput(f"line {line:,}: it is not {encoding.upper()[:6]}", hint="save the file as UTF-8") from None


def find_format(text: str, name: str) -> str:
    """Return the format of a file: what its name says, else what its content looks like."""
    known = _SUFFIXES.get(PurePath(name).suffix.lower())
    if known is not None:
        return known
    begin = text.lstrip()[:1000]
    if begin.startswith("<"):
        return "opml"
    if _TOML.search(begin):
        return "toml"
    if begin.startswith(("[", "{")):
        return "json"
    return "csv" if looks_like_csv(text) else "lines"
