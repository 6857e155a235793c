"""The chart of views and forwards of a post over time. Pure."""

from datetime import timedelta

from markupsafe import Markup

from floodmark.model.durations import format_duration
from floodmark.model.engagement import EngagementSample, PostEngagement

from .plots import Axes, Series, lines

_LINES = (("items", "views", "Views"), ("warn", "forwards", "Forwards"))


def draw_engagement(post: PostEngagement) -> Markup:
    """Return the chart: one moment for each sample, with its age below it."""
    samples = post.samples
    series = [
        Series(kind, name, [getattr(one, field) for one in samples], _number(_last(post, field)))
        for kind, field, name in _LINES
        if any(getattr(one, field) is not None for one in samples)
    ]
    marks = [(at, _age(post, one)) for at, one in enumerate(samples)]
    titles = [f"{_age(post, one)}: {_number(one.views)} views, {_number(one.forwards)} forwards" for one in samples]
    label = "Views and forwards of this post over time"
    return lines(series, Axes(label=label, titles=titles, marks=marks, unit=lambda value: _number(round(value))))


def _age(post: PostEngagement, sample: EngagementSample) -> str:
    if sample.after_seconds is not None:
        return format_duration(timedelta(seconds=sample.after_seconds))
    if post.occurred_at is None:
        return sample.occasion
    return format_duration(max(timedelta(), sample.seen_at - post.occurred_at))


def _last(post: PostEngagement, field: str) -> int | None:
    return next((value for one in reversed(post.samples) if (value := getattr(one, field)) is not None), None)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
