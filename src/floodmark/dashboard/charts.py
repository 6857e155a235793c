"""Charts as SVG. Pure: values in, markup out. Colours are classes of the style sheet."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

# The size of a chart in its own units; the style sheet sets how wide it is shown.
WIDTH, HEIGHT = 600, 120
_LEAST_SPAN = 3.0
# Higher numbers are taken for errors.
_HIGHEST = 1e18


class Bar(NamedTuple):
    """One bar of a chart: its parts from the bottom up, as class and value, and its title."""

    parts: Sequence[tuple[str, float]]
    title: str
    href: str | None = None


class Point(NamedTuple):
    """One point of a line."""

    value: float | None
    title: str


def bars(values: Sequence[Bar], *, label: str, height: int = HEIGHT, highest: float | None = None) -> Markup:
    """Return a bar chart. `label` says what it shows, for those who cannot see it."""
    top = nice_top(highest_of(sum(value for _, value in bar.parts) for bar in values) or highest or 1)
    step = WIDTH / max(1, len(values))
    drawn = Markup("").join(_bar(bar, at * step, step, height, top=top) for at, bar in enumerate(values))
    return _svg("chart bars", label, height, drawn + _scale(top, height))


def line(values: Sequence[Point], *, label: str, height: int = HEIGHT) -> Markup:
    """Return a line chart with a filled area; a value of None is a gap."""
    known = [point.value for point in values if point.value is not None]
    top, step = nice_top(highest_of(known) or 1), WIDTH / max(1, len(values) - 1)
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, point in enumerate(values):
        if point.value is None:
            pieces.append([])
        else:
            pieces[-1].append((at * step, height - height * share_of(point.value, top)))
    drawn = Markup("").join(_area(piece, height) for piece in pieces if piece)
    hovers = Markup("").join(_hover(point, at * step, step, height) for at, point in enumerate(values))
    return _svg("chart line", label, height, drawn + hovers + _scale(top, height))


def strip(values: Sequence[Bar], *, label: str, height: int = 36, slots: int = 100) -> Markup:
    """Return a strip of thin bars, as for the last executions of a job. Bars with a link can be followed.

    It has room for at least `slots` bars.
    """
    step = WIDTH / max(slots, len(values))
    top = max((sum(value for _, value in bar.parts) for bar in values), default=0) or 1
    drawn = Markup("").join(_bar(bar, at * step, step, height, top=top, least=3) for at, bar in enumerate(values))
    # Its links are for the mouse; a list next to it has the same ones.
    role = "group" if any(bar.href for bar in values) else "img"
    return _svg("chart strip", label, height, drawn, role=role)


def spark(values: Sequence[Bar], *, label: str, slots: int = 20) -> Markup:
    """Return a small strip for a row of a list: no links, and as little markup as possible."""
    step, top = 10, max((value for bar in values for _, value in bar.parts), default=0) or 1
    rect = Markup('<rect class="{}" x="{}" y="{:.0f}" width="9" height="{:.0f}"><title>{}</title></rect>')
    drawn = Markup("").join(
        rect.format(bar.parts[0][0], at * step, 24 - size, size, bar.title)
        for at, bar in enumerate(values)
        for size in [max(3, 24 * bar.parts[0][1] / top)]
    )
    head = Markup('<svg class="chart spark" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">')
    return head.format(step * slots, label) + drawn + Markup("</svg>")


class ChartSpan(NamedTuple):
    """A part of a line of time: its class, its begin and end as parts of the whole from 0 to 1, and its title."""

    kind: str
    begin: float
    end: float
    title: str


def spans(values: Sequence[ChartSpan], *, label: str, height: int = 28) -> Markup:
    """Return a line of time. Short parts stay visible."""
    rect = Markup('<rect class="fill-{}" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>')
    drawn = Markup("")
    for span in values:
        wide = max(_LEAST_SPAN, (span.end - span.begin) * WIDTH)
        drawn += rect.format(span.kind, min(span.begin * WIDTH, WIDTH - wide), wide, height, span.title)
    return _svg("chart spans", label, height, drawn)


def nice_top(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50 ... that is not below a value; 1 if the value is no such number."""
    if not 0 < value < _HIGHEST:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    # The last one also if a tiny number is not exact.
    return next((factor * power for factor in (1, 2, 5) if factor * power >= value), 10 * power)


def highest_of(values: Iterable[float]) -> float:
    """Return the highest of the values that can be drawn; 0 if there is none."""
    return max((value for value in values if 0 < value < _HIGHEST), default=0)


def share_of(value: float, top: float) -> float:
    """Return the part of a value in the height of a chart, from 0 to 1; 0 for what is no number."""
    share = value / top if top > 0 and not math.isnan(value) else 0.0
    return 0.0 if math.isnan(share) else min(1.0, max(0.0, share))


def _bar(bar: Bar, left: float, step: float, height: int, *, top: float, least: float = 0) -> Markup:
    drawn, used = Markup(""), 0.0
    for kind, value in bar.parts:
        if value > 0:
            size = max(least, height * share_of(value, top))
            used += size
            rect = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
            drawn += rect.format(kind, left + 0.5, height - used, max(0.5, step - 1), size)
    cover = Markup('<rect class="cover" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>')
    drawn += cover.format(left, step, height, bar.title)
    if bar.href is None:
        return drawn
    return Markup('<a href="{}" aria-label="{}" tabindex="-1">{}</a>').format(bar.href, bar.title, drawn)


def _area(piece: Sequence[tuple[float, float]], height: int) -> Markup:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
    area = f"{piece[0][0]:.1f},{height} {path} {piece[-1][0]:.1f},{height}"
    return Markup('<polygon class="area" points="{}"/><polyline class="stroke" points="{}"/>').format(area, path)


def _hover(point: Point, middle: float, step: float, height: int) -> Markup:
    cover = Markup('<rect class="cover" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>')
    return cover.format(middle - step / 2, step, height, point.title)


def _scale(top: float, height: int) -> Markup:
    text = Markup('<line class="grid" x1="0" y1="{y}" x2="{w}" y2="{y}"/>')
    return text.format(y=0.5, w=WIDTH) + text.format(y=height - 0.5, w=WIDTH)


def _svg(kind: str, label: str, height: int, content: Markup, *, role: str = "img") -> Markup:
    head = Markup('<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="{}" aria-label="{}">')
    return head.format(kind, WIDTH, height, role, label) + content + Markup("</svg>")
