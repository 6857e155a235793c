"""OPML, as feed readers export it: an outline with `xmlUrl` is a feed, the names of the folders around it are tags."""

from collections.abc import Mapping
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from floodmark.errors import InvalidInput
from floodmark.sources.web.xml_trees import NotXml, open_strict_parser

from .rows import JobList

_MAX_DEPTH = 100
_LONGEST_TAG = 200


def read_opml(text: str) -> JobList:
    """Return a row for each feed."""
    found, folders = JobList(), list[str | None]()
    others = 0
    parser = open_strict_parser()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal others
        if name.lower() != "outline":
            return
        given = {key.lower(): value.strip() for key, value in attributes.items()}
        where = f"line {parser.CurrentLineNumber:,}"
        if len(folders) == _MAX_DEPTH:
            raise InvalidInput(f"{where}: outlines are nested deeper than {_MAX_DEPTH}", hint="flatten the folders")
        url = given.get("xmlurl")
        if url:
            tags = list(dict.fromkeys(folder for folder in folders if folder))
            found.add(where, {"target": url, "tags": tags} if tags else {"target": url})
        elif given.get("type") in ("link", "include") or given.get("url"):
            others += 1
        folders.append(None if url else _tag(given.get("title") or given.get("text") or ""))

    def end(name: str) -> None:
        if name.lower() == "outline":
            folders.pop()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(text, True)
    except NotXml as error:
        raise InvalidInput(f"line {parser.CurrentLineNumber:,}: the file {error}", hint="remove it") from None
    except expat.ExpatError as error:
        words = expat.errors.messages[error.code]
        raise InvalidInput(f"line {error.lineno:,}: it is not OPML: {words}", hint="export it again") from None
    if others:
        found.notes.append(f"Outlines that are not feeds were left out: {others:,}")
    return found


def _tag(text: str) -> str | None:
    """Return the name of a folder as a tag."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words[:_LONGEST_TAG].strip() or None


def write_opml(document: Mapping[str, Any]) -> str:
    """Return the feeds of an export as OPML. Tags are folders, one inside of the other; other jobs are left out."""
    folders: dict[tuple[str, ...], list[str]] = {}
    for job in document["jobs"]:
        if job["source"] == "feed":
            name, url = quoteattr(str(job["name"])), quoteattr(str(job["target"]))
            outline = f'<outline type="rss" text={name} title={name} xmlUrl={url}/>'
            folders.setdefault(tuple(job.get("tags") or ()), []).append(outline)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<opml version="2.0">',
        "  <head><title>Floodmark</title></head>",
    ]
    lines.append("  <body>")
    for tags, outlines in sorted(folders.items()):
        lines += [f"{_indent(depth)}<outline text={quoteattr(tag)}>" for depth, tag in enumerate(tags)]
        lines += [f"{_indent(len(tags))}{outline}" for outline in outlines]
        lines += [f"{_indent(depth)}</outline>" for depth in reversed(range(len(tags)))]
    return "\n".join([*lines, "  </body>", "</opml>", ""])


def _indent(depth: int) -> str:
    return "  " * (depth + 2)
