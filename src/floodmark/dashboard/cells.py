"""Small squares: a calendar of days, and a map of many things. Pure: values in, markup out."""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from markupsafe import Markup

_SIZE, _GAP = 11, 2
_STEP = _SIZE + _GAP
_LEFT, _TOP = 26, 14
_LEVELS = 4
_MOST_WEEKS, _MOST_CELLS = 106, 2000
_WEEKDAYS = ((0, "Mon"), (2, "Wed"), (4, "Fri"))


class Day(NamedTuple):
    """One day of a calendar: what decides its colour, and its title."""

    value: float
    title: str


class Cell(NamedTuple):
    """One square of a map: its class, its title, where it leads, and a name that stays the same."""

    kind: str
    title: str
    href: str
    key: str


def calendar(days: Mapping[date, Day], *, until: date, label: str, weeks: int = 53) -> Markup:
    """Return a calendar of the weeks up to a day: a column for each week, a row for each day of the week."""
    shown = max(1, min(weeks, _MOST_WEEKS))
    first = until - timedelta(days=until.weekday(), weeks=shown - 1)
    highest = max((day.value for day in days.values() if math.isfinite(day.value)), default=0)
    squares = Markup("").join(
        _square(first + timedelta(days=number), days, number, highest) for number in range((until - first).days + 1)
    )
    width, height = _LEFT + shown * _STEP, _TOP + 7 * _STEP
    head = Markup('<svg class="calendar" viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return head.format(width, height, label) + _months(first, shown) + _weekdays() + squares + Markup("</svg>")


def heat_of(value: float, highest: float) -> int:
    """Return the level of a value from 0, nothing, to 4, by its logarithm."""
    if not value > 0:
        return 0
    if not (value < highest and math.isfinite(value)):
        return _LEVELS
    return max(1, math.ceil(_LEVELS * math.log1p(value) / math.log1p(highest)))


def cells(values: Sequence[Cell]) -> Markup:
    """Return a map of links as small squares. The script moves among them with the arrow keys."""
    # The style sheet shows the label of the square under the mouse.
    one = Markup('<a class="cell {}" href="{}" id="cell-{}" aria-label="{}"></a>')
    drawn = (one.format(cell.kind, cell.href, cell.key, cell.title) for cell in values[:_MOST_CELLS])
    return Markup('<div class="cells" data-arrows="">{}</div>').format(Markup("").join(drawn))


def _square(day: date, days: Mapping[date, Day], number: int, highest: float) -> Markup:
    found = days.get(day, Day(0, f"{day}: nothing"))
    x, y = _LEFT + number // 7 * _STEP, _TOP + number % 7 * _STEP
    rect = Markup('<rect class="heat-{}" x="{}" y="{}" width="{}" height="{}" rx="2"><title>{}</title></rect>')
    return rect.format(heat_of(found.value, highest), x, y, _SIZE, _SIZE, found.title[:200])


def _months(first: date, weeks: int) -> Markup:
    text, drawn, last = Markup('<text x="{}" y="10">{}</text>'), list[Markup](), -9
    for week in range(weeks):
        monday = first + timedelta(weeks=week)
        # The week in which a month begins, and the first one, unless there is no room for the name.
        is_long = week == 0 and (monday + timedelta(weeks=3)).month == monday.month
        if (monday.day <= 7 or is_long) and week - last >= 3 and week <= weeks - 2:
            drawn.append(text.format(_LEFT + week * _STEP, f"{monday:%b}"))
            last = week
    return Markup("").join(drawn)


def _weekdays() -> Markup:
    text = Markup('<text x="0" y="{}">{}</text>')
    return Markup("").join(text.format(_TOP + row * _STEP + 9, name) for row, name in _WEEKDAYS)
