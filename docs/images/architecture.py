"""Draw flow.svg and layers.svg for docs/generate.py.

The layers are read from the docstring of the package, so they are always the same.
"""

import re
from collections.abc import Iterator
from html import escape

import floodmark

WIDTH = 960
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
text {{ font: 14px sans-serif; fill: #1f2933; }}
.name {{ font-weight: bold; }}
.note {{ font-size: 12px; fill: #52606d; }}
.box {{ fill: #e3f0fb; stroke: #2b6cb0; }}
.store {{ fill: #fdf3d8; stroke: #b7791f; }}
.plain {{ fill: #f1f3f5; stroke: #7b8794; }}
.optional {{ stroke-dasharray: 5 4; }} path {{ stroke: #52606d; stroke-width: 1.5; fill: none; marker-end: url(#tip); }}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
<polygon points="0,0 8,4 0,8" fill="#52606d"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff"/>
"""
STAGES = (
    ("triggers", "when", "a job is due"),
    ("scheduler", "fires jobs", "that are due"),
    ("queue", "hands out", "executions"),
    ("worker", "runs one lease", "per slot"),
    ("sources", "fetch newer", "items"),
    ("sinks", "store items and", "watermark"),
)


def flow() -> str:
    """Return the picture of the stages and the store."""
    return _picture("The flow of Floodmark", _flow(), 376)


def _picture(label: str, parts: Iterator[str], height: int) -> str:
    return "\n".join([HEAD.format(width=WIDTH, height=height, label=label).rstrip(), *parts, "</svg>", ""])


def _flow() -> Iterator[str]:
    people = "command line, HTTP API, Python client: all call the same operations"
    yield from _box((40, 20, 880, 56), "plain", "people and programs", people)
    for place, (name, *notes) in enumerate(STAGES):
        yield from _box((40 + place * 152, 120, 120, 84), "box", name, *notes)
        if place:
            yield f'<path d="M{10 + place * 152},162 h26"/>'
    kept = "items, revisions, watermarks, outbox: written in one transaction"
    yield from _box(
        (40, 270, 576, 84), "store", "store: SQLite or PostgreSQL", "jobs, executions, leases, limits", kept
    )
    copied = ("queue and events as streams,", "wake-ups; may be lost at any time")
    yield from _box((648, 270, 272, 84), "plain optional", "Redis or Valkey (optional)", *copied)
    # The scheduler, queue and worker read and write the store. Sinks write to it. Redis only gets copies.
    for x in (252, 404, 556):
        yield f'<path d="M{x},208 v56" marker-start="url(#tip)"/>'
    yield '<path d="M860,208 v24 h-270 v32"/>'
    yield '<path d="M620,312 h22"/>'
    yield '<path d="M28,76 v236 h6"/>'
    yield '<text class="note" x="690" y="226">one transaction per batch</text>'


def _box(place: tuple[int, int, int, int], kind: str, name: str, *notes: str) -> Iterator[str]:
    x, y, width, height = place
    yield f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    middle = x + width // 2
    yield f'<text class="name" x="{middle}" y="{y + 28}" text-anchor="middle">{escape(name)}</text>'
    for line, note in enumerate(notes):
        yield f'<text class="note" x="{middle}" y="{y + 48 + line * 17}" text-anchor="middle">{escape(note)}</text>'


def layers() -> str:
    """Return the picture of the packages in groups, the topmost group first."""
    parts, y = [], 20
    for title, packages in reversed(_groups()):
        height = 44 + 22 * len(packages)
        parts.append(f'<rect class="box" x="40" y="{y}" width="880" height="{height}" rx="8"/>')
        parts.append(f'<text class="name" x="60" y="{y + 26}">{escape(title)}</text>')
        for line, (name, note) in enumerate(packages):
            row = y + 50 + line * 22
            parts.append(f'<text x="60" y="{row}">{escape(name)}</text>')
            parts.append(f'<text class="note" x="190" y="{row}">{escape(note)}</text>')
        y += height + 34
        parts.append(f'<path d="M480,{y - 30} v22"/>')
    return _picture("The layers of Floodmark's packages", iter(parts[:-1]), y - 14)


def _groups() -> list[tuple[str, list[tuple[str, str]]]]:
    described = (floodmark.__doc__ or "").partition("Imports go down only")[2].replace("`", "")
    found = re.findall(r"^([A-Z][^\n]*):\n\n((?:    .+\n)+)", described, re.MULTILINE)
    return [(title, re.findall(r"^    (\S+) +(.+)$", rows, re.MULTILINE)) for title, rows in found]
