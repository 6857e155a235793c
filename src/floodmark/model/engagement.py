"""Views, forwards, replies and reactions of posts over time."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Occasion = Literal["collected", "sample", "newest"]


class EngagementSample(Struct, frozen=True, kw_only=True):
    """The counts of a post at one moment."""

    occasion: Annotated[
        Occasion,
        Meta(description="`collected` with the post, a `sample` at an age, or the `newest` change that was seen."),
    ]
    after_seconds: Annotated[int | None, Meta(description="The age that a sample counts for; else null.")] = None
    seen_at: datetime
    views: int | None = None
    forwards: int | None = None
    replies: int | None = None
    reactions: Annotated[list[dict[str, Any]] | None, Meta(description="Reactions with their counts.")] = None


class PostEngagement(Struct, frozen=True, kw_only=True):
    """A post and its counts over time, oldest first."""

    key: str
    occurred_at: datetime | None
    samples: tuple[EngagementSample, ...]


COUNTS = ("views", "forwards", "replies", "reactions")
# A sample that is taken later than this many times its age would be misleading.
LATEST = 2


def counts_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts in the data of a post; empty if it has none."""
    return {name: data[name] for name in COUNTS if data.get(name) is not None}


def points_reached(age: timedelta, points: tuple[timedelta, ...]) -> list[timedelta]:
    """Return the ages for which a sighting at this age counts as a sample."""
    return [point for point in points if point <= age <= LATEST * point]
