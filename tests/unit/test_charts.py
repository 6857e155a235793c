"""Charts: any numbers, none, huge ones and those that are none give valid pictures of bounded size."""

import math
import re
from datetime import date, timedelta
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from floodmark.dashboard.activity import item_calendar
from floodmark.dashboard.cells import Cell, Day, calendar, cells, heat_of
from floodmark.dashboard.charts import WIDTH, Bar, Point, bars, highest_of, line, nice_top, share_of, strip
from floodmark.dashboard.plots import HEIGHT, Axes, Series, lines, stacked
from floodmark.model.minutes import StreamDay

pytestmark = pytest.mark.spec("B10")

numbers = st.one_of(st.floats(), st.integers(-(10**400), 10**400).map(lambda n: float(str(n)[:300])), st.just(math.nan))
# What XML cannot hold no browser shows either.
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)
TODAY = date(2026, 6, 1)


def checked(markup: Markup, *, width: float, height: float) -> ET.Element:
    """Parse a picture, and check that nothing is drawn far outside of it."""
    root = ET.fromstring(f"<div>{markup}</div>")
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in ("x", "y", "width", "height", "x1", "x2", "y1", "y2", "points"):
                for number in map(float, re.findall(r"[^ ,%]+", value)):
                    assert math.isfinite(number), value
                    assert -width <= number <= 2 * max(width, height), (name, value)
                    assert name not in ("width", "height") or number >= 0
    return root


def axes(count: int, title: str = "x") -> Axes:
    return Axes("label", [title] * count, [(0, "a"), (count, "b")], lambda value: f"{value:g}")


@given(st.lists(st.lists(numbers, min_size=2, max_size=2), max_size=30), texts)
def test_bars_of_any_numbers_are_drawn_within_the_picture(values: list[list[float]], title: str) -> None:
    drawn = [Bar([("a", one), ("b", other)], title, href="/x") for one, other in values]
    for chart in (bars(drawn, label=title), strip(drawn, label=title)):
        root = checked(chart, width=WIDTH, height=120)
        assert len(root.findall(".//title")) == len(values)
    series = [Series(kind, title, [row[n] for row in values]) for n, kind in enumerate("ab")]
    root = checked(stacked(series, axes(len(values), title)), width=WIDTH, height=HEIGHT)
    for rect in root.iter("rect"):
        assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= HEIGHT + 0.2


@given(st.lists(st.one_of(st.none(), numbers), max_size=40), texts)
def test_lines_of_any_numbers_are_drawn_within_the_picture(values: list[float | None], title: str) -> None:
    checked(line([Point(value, title) for value in values], label=title), width=WIDTH, height=120)
    checked(lines([Series("a", title, values), Series("b", "", values)], axes(len(values))), width=WIDTH, height=HEIGHT)
    checked(lines([], axes(0)), width=WIDTH, height=HEIGHT)


@given(
    st.dictionaries(st.integers(-500, 20).map(lambda n: TODAY + timedelta(days=n)), numbers, max_size=60),
    st.integers(-5, 2000),
)
def test_a_calendar_of_any_days_has_a_square_for_each_day_of_its_weeks(found: dict[date, float], weeks: int) -> None:
    days = {day: Day(value, f"{day}") for day, value in found.items()}
    root = checked(calendar(days, until=TODAY, label="items", weeks=weeks), width=1500, height=120)
    squares = root.findall(".//rect")
    assert len(squares) == 7 * (max(1, min(weeks, 106)) - 1) + TODAY.weekday() + 1
    assert {square.get("class") for square in squares} <= {f"heat-{n}" for n in range(5)}


@given(numbers, numbers)
def test_every_value_has_a_heat_and_a_share(value: float, highest: float) -> None:
    assert 0 <= heat_of(value, highest) <= 4
    assert (heat_of(value, highest) == 0) == (not value > 0)
    assert 0 <= share_of(value, highest) <= 1
    assert nice_top(value) > 0
    assert 0 <= highest_of([value, highest]) < math.inf


@given(st.lists(texts, max_size=5))
def test_foreign_text_stays_text(names: list[str]) -> None:
    hostile = ["<script>alert(1)</script>", '" onload="x', "'><img src=x>", *names]
    found = cells([Cell("late", name, f"/jobs/{n}", f"{n}") for n, name in enumerate(hostile)])
    root = ET.fromstring(str(found))
    assert [one.get("aria-label") for one in root] == hostile
    assert all(set(one.keys()) <= {"class", "href", "id", "aria-label"} for one in root)
    assert len(root.findall(".//script")) == 0


def test_the_items_of_a_stream_are_a_calendar() -> None:
    days = [StreamDay(day=TODAY - timedelta(days=n), new=n, changed=1) for n in range(40)]
    root = checked(item_calendar(days, TODAY, weeks=10), width=1500, height=120)
    titles = [title.text for title in root.findall(".//title")]
    assert titles[-2:] == ["2026-05-31: 1 new, 1 changed", "2026-06-01: 0 new, 1 changed"]
    assert [text.text for text in root.findall(".//text")][:3] == ["Apr", "May", "Mon"]


def test_pictures_are_bounded() -> None:
    many = [1.0] * 20_000
    assert str(stacked([Series("a", "a", many)], axes(20_000))).count("<rect") < 3200
    assert str(lines([Series("a", "a", many)], axes(20_000, "y" * 10_000))).count("<rect") < 1600
    assert str(cells([Cell("late", "x", "/", f"{n}") for n in range(20_000)])).count("<a ") == 2000


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.1, 2), (3, 5), (7, 10), (0.03, 0.05), (999, 1000), (math.inf, 1)]
)
def test_the_top_of_an_axis_is_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)
