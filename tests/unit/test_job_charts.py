"""Charts of executions as SVG."""

from xml.etree import ElementTree

import pytest

from floodmark.dashboard.charts import Bar, ChartSpan, spans, spark, strip

pytestmark = pytest.mark.spec("B10")

HOSTILE = '"><script>alert(1)</script>'


def test_a_strip_with_links_is_a_group_and_its_links_are_not_in_the_way_of_the_keyboard() -> None:
    drawn = ElementTree.fromstring(strip([Bar((("fill-done", 4.0),), HOSTILE, "/executions/1")], label=HOSTILE))
    assert (drawn.get("role"), drawn.get("aria-label")) == ("group", HOSTILE)
    [link] = drawn.findall("a")
    assert (link.get("href"), link.get("tabindex"), link.get("aria-label")) == ("/executions/1", "-1", HOSTILE)
    assert ElementTree.fromstring(strip([], label="none")).get("role") == "img"


def test_a_spark_has_one_rectangle_for_each_run() -> None:
    bars = [Bar(((f"fill-{state}", value),), HOSTILE) for state, value in (("done", 1.0), ("dead", 5.0), ("done", 0.0))]
    drawn = ElementTree.fromstring(spark(bars, label="runs"))
    heights = [float(rect.get("height", "0")) for rect in drawn.findall("rect")]
    assert heights == [5, 24, 3]
    assert [title.text for title in drawn.iter("title")] == [HOSTILE] * 3


def test_spans_stay_inside_and_short_ones_can_be_seen() -> None:
    values = [ChartSpan("queued", 0.0, 0.5, "a"), ChartSpan("failed", 1.0, 1.0, HOSTILE)]
    rects = ElementTree.fromstring(spans(values, label="phases")).findall("rect")
    assert [(rect.get("x"), rect.get("width")) for rect in rects] == [("0.0", "300.0"), ("597.0", "3.0")]
