"""Choices of many streams are remembered for some seconds."""

import pytest

from floodmark.search.stream_choice import RecentChoices


@pytest.mark.spec("B5")
def test_choices_of_many_streams_are_remembered_for_some_seconds() -> None:
    now = 100.0
    recent = RecentChoices(lambda: now)
    many = frozenset(map(str, range(5000)))
    recent.put("small", frozenset({"a"}))
    recent.put("many", many)
    assert recent.get("small") is None
    assert recent.get("many") == many
    now += 60
    assert recent.get("many") is None
    for number in range(100):
        recent.put(number, many)
    assert [number for number in range(100) if recent.get(number) is not None] == list(range(92, 100))
