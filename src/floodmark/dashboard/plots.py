"""Charts over time with axes and a legend. Pure: values in, markup out. Colours are classes of the style sheet.

The picture is an SVG that is stretched to the width of the page; texts are HTML around it, so that they are not
stretched. Each moment has an area that shows its values when the mouse is over it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from .charts import WIDTH, highest_of, nice_top, share_of

HEIGHT = 120
# More moments would be thinner than a pixel.
_MOST = 1500
_MOST_MARKS = 12
_GRID = (0.0, 0.5, 1.0)


class Series(NamedTuple):
    """The values of one thing over time: its class, its name in the legend, a value for each moment, and its total."""

    kind: str
    name: str
    values: Sequence[float | None]
    total: str = ""


class Axes(NamedTuple):
    """What is written on a chart: what it shows, the title of each moment, the marks of the time axis.

    A mark has the number of its moment and a text. `unit` returns the text for a number of the value axis,
    `round_up` its highest number.
    """

    label: str
    titles: Sequence[str]
    marks: Sequence[tuple[int, str]]
    unit: Callable[[float], str]
    round_up: Callable[[float], float] = nice_top


def stacked(series: Sequence[Series], axes: Axes) -> Markup:
    """Return a chart of bars on top of each other. All series have as many values."""
    moments = zip(*(one.values[-_MOST:] for one in series), strict=True)
    columns = [[value or 0.0 for value in moment] for moment in moments]
    top, step = axes.round_up(highest_of(map(sum, columns)) or 1), WIDTH / max(1, len(columns))
    bars = (bar for at, column in enumerate(columns) for bar in _bars(series, column, at * step, step, top))
    return _figure(axes, top, Markup("").join(bars), step) + legend(series)


def lines(series: Sequence[Series], axes: Axes) -> Markup:
    """Return a chart of lines. A value of None is a gap."""
    shown = [one._replace(values=one.values[-_MOST:]) for one in series]
    known = [value for one in shown for value in one.values if value is not None]
    top, step = axes.round_up(highest_of(known) or 1), WIDTH / max([1, *(len(one.values) for one in shown)])
    pieces = (piece for one in shown for piece in _line(one, step, top))
    return _figure(axes, top, Markup("").join(pieces), step) + legend(series)


def legend(series: Sequence[Series]) -> Markup:
    """Return the names of the series, each with its colour and its total."""
    swatch = Markup('<svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class="fill-{}" ')
    swatch += Markup('width="10" height="10" rx="2"/></svg>')
    entry, total = Markup("<li>{}{}{}</li>"), Markup(" <b>{}</b>")
    entries = (
        entry.format(swatch.format(one.kind), one.name, total.format(one.total) if one.total else "") for one in series
    )
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))


def _bars(series: Sequence[Series], column: Sequence[float], left: float, step: float, top: float) -> list[Markup]:
    rect = Markup('<rect class="fill-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
    drawn, used = list[Markup](), 0.0
    for one, value in zip(series, column, strict=True):
        # A bar that is there can be seen.
        size = max(1.0, HEIGHT * share_of(value, top)) if value > 0 else 0.0
        size = min(size, HEIGHT - used)
        if size > 0:
            used += size
            drawn.append(rect.format(one.kind, left, HEIGHT - used, max(0.3, step * 0.9), size))
    return drawn


def _line(one: Series, step: float, top: float) -> list[Markup]:
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in enumerate(one.values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(((at + 0.5) * step, HEIGHT - HEIGHT * share_of(value, top)))
    line = Markup('<polyline class="stroke stroke-{}" points="{}"/>')
    # A single point is a short line.
    whole = (
        [*piece, (piece[0][0] + max(1.0, step / 2), piece[0][1])] if len(piece) == 1 else piece for piece in pieces
    )
    return [line.format(one.kind, " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)) for piece in whole if piece]


def _figure(axes: Axes, top: float, drawn: Markup, step: float) -> Markup:
    grid = Markup('<line class="grid" x1="0" y1="{y:.1f}" x2="{w}" y2="{y:.1f}"/>')
    cover = Markup('<rect class="cover" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>')
    head = Markup('<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">')
    rules = Markup("").join(grid.format(y=HEIGHT * share, w=WIDTH) for share in _GRID)
    covers = Markup("").join(
        cover.format(at * step, step, HEIGHT, title[:200]) for at, title in enumerate(axes.titles[-_MOST:])
    )
    picture = head.format(WIDTH, HEIGHT, axes.label) + rules + drawn + covers + Markup("</svg>")
    values = (Markup("<span>{}</span>").format(axes.unit(top * (1 - share))) for share in _GRID)
    body = Markup('<div class="plot"><div class="values" aria-hidden="true">{}</div>{}{}</div>')
    return body.format(Markup("").join(values), picture, _time_axis(axes.marks, max(1, len(axes.titles))))


def _time_axis(marks: Sequence[tuple[int, str]], count: int) -> Markup:
    """Return the marks in their places. In percent and without a view box, so that the texts are not stretched."""
    text = Markup('<text x="{:.1f}%" y="11" text-anchor="{}">{}</text>')
    places = [(100 * min(max(at, 0), count) / count, words) for at, words in marks[:_MOST_MARKS]]
    drawn = (text.format(x, "start" if x < 4 else "end" if x > 96 else "middle", words) for x, words in places)
    return Markup('<svg class="marks" aria-hidden="true">{}</svg>').format(Markup("").join(drawn))
