"""When a sighting of a post counts as a sample, and when due posts are read."""

from datetime import UTC, datetime, timedelta

import pytest

from floodmark.errors import InvalidInput
from floodmark.model.engagement import counts_of, points_reached
from floodmark.sources.collected_items import CollectedKey
from floodmark.sources.telegram.sampling import is_time
from floodmark.sources.telegram.targets import parse_params

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.spec("B12")
def test_a_sighting_counts_for_the_ages_it_has_reached_but_not_long_after() -> None:
    points = (HOUR, DAY, 7 * DAY)
    assert points_reached(timedelta(minutes=59), points) == []
    assert points_reached(HOUR, points) == [HOUR]
    assert points_reached(3 * HOUR, points) == []
    assert points_reached(30 * HOUR, points) == [DAY]
    assert points_reached(90 * timedelta(minutes=1), (HOUR, 80 * timedelta(minutes=1))) == [
        HOUR,
        80 * timedelta(minutes=1),
    ]


def due(*ages: timedelta) -> list[CollectedKey]:
    return [CollectedKey(key=str(number), occurred_at=NOW - age) for number, age in enumerate(ages)]


@pytest.mark.spec("B12")
def test_due_posts_wait_for_each_other_for_a_tenth_of_the_age() -> None:
    assert not is_time({HOUR: [], DAY: []}, NOW)
    assert not is_time({HOUR: due(timedelta(minutes=65))}, NOW)
    assert is_time({HOUR: due(timedelta(minutes=66))}, NOW)
    assert not is_time({DAY: due(26 * HOUR)}, NOW)
    assert is_time({DAY: due(26 * HOUR), HOUR: due(HOUR + HOUR / 10)}, NOW)
    assert is_time({DAY: due(*[DAY] * 100)}, NOW)


def test_only_counts_that_were_sent_are_taken() -> None:
    assert counts_of({"text": "x", "views": 0, "forwards": None}) == {"views": 0}


def test_the_param_names_ages_or_those_of_the_settings() -> None:
    assert parse_params({}).engagement is None
    assert parse_params({"engagement": "off"}).engagement is None
    assert parse_params({"engagement": "default"}).engagement == ()
    assert parse_params({"engagement": "7d, 1h,1h"}).engagement == (HOUR, 7 * DAY)
    for wrong in ("soon", "5s", "800d", ",", ",".join(f"{n}h" for n in range(1, 30))):
        with pytest.raises(InvalidInput, match="engagement: ") as refused:
            parse_params({"engagement": wrong})
        assert "--engagement 1h,1d,7d" in refused.value.hint
