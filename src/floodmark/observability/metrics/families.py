"""Creation of metrics: each on the registry of its process, with a limited number of label values."""

import os
import time
from bisect import bisect_left
from collections import Counter as TallyOf
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .catalogue import CATALOGUE, Across

OTHER = "other"
# Longer values are sentences, not words.
_LONGEST_WORD = 60

M = TypeVar("M", bound=MetricWrapperBase)
T = TypeVar("T")


def word(text: str) -> str:
    """Return a label value of a closed set, such as the class name of an error; anything else becomes "other"."""
    return text if text.replace("-", "_").isidentifier() and len(text) <= _LONGEST_WORD else OTHER


class Family(Generic[M]):
    """The children of one metric, each found by one lookup.

    The labels at the positions `grows` have at most `limit` values each; later values share the child "other".
    """

    def __init__(self, metric: M, limit: int, grows: Iterable[int]) -> None:
        self._metric, self._limit = metric, limit
        self._children: dict[tuple[str, ...], M] = {}
        self._values: dict[int, set[str]] = {place: set() for place in grows}

    def child(self, *labels: str) -> M:
        """Return the series with these labels."""
        return self._children.get(labels) or self._admit(labels)

    def show_only(self: "Family[Gauge]", values: Mapping[tuple[str, ...], float], *, absent: float) -> None:
        """Set exactly these series, up to the limit, and remove all others.

        In multiprocess mode the library cannot remove a series: it is set to `absent` instead.
        """
        for labels in [labels for labels in self._children if labels not in values]:
            if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
                self._children[labels].set(absent)
            else:
                self._metric.remove(*labels)
            del self._children[labels]
        for place, known in self._values.items():
            known.intersection_update({labels[place] for labels in self._children})
        for labels, value in islice(values.items(), self._limit):
            self.child(*labels).set(value)

    def _admit(self, labels: tuple[str, ...]) -> M:
        # Only the folded labels are stored: the number of other values is unlimited.
        labels = tuple(self._fold(place, value) for place, value in enumerate(labels))
        if labels not in self._children:
            self._children[labels] = self._metric.labels(*labels)
        return self._children[labels]

    def _fold(self, place: int, value: str) -> str:
        values = self._values.get(place)
        if values is None or value in values:
            return value
        if len(values) >= self._limit:
            return OTHER
        values.add(value)
        return value


def observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """Observe all values at a fraction of the usual cost: each bucket is changed once.

    The library has no method for this, so it uses the internals of a histogram, which have been stable for years.
    """
    bounds = histogram._upper_bounds
    for place, count in TallyOf([bisect_left(bounds, value) for value in values]).items():
        histogram._buckets[place].inc(count)
    histogram._sum.inc(sum(values))


class Pile(Generic[T]):
    """A buffer for frequent events, which are counted together.

    Reading the metrics counts it first (`MetricMaker` does this); between reads the writer should.
    """

    def __init__(self, count: Callable[[list[T]], None]) -> None:
        self._things: list[T] = []
        self._count, self._lock = count, Lock()
        self.put = self._things.append

    def clear(self) -> None:
        """Count the buffered events. May be called from any thread."""
        with self._lock:
            things = self._things[:]
            del self._things[: len(things)]
            if things:
                self._count(things)


class AgeGauge(Gauge):
    """A gauge that is set to a point in time and exports its age in seconds, so it grows while nothing happens."""

    def collect(self) -> Iterable[Metric]:
        """Return the current ages."""
        return [to_ages(metric) for metric in super().collect()]


def to_ages(metric: Metric) -> Metric:
    """Return the metrics with points in time converted to ages."""
    now = time.time()
    made = Metric(metric.name, metric.documentation, metric.type)
    made.samples = [sample._replace(value=max(0.0, now - sample.value)) for sample in metric.samples]
    return made


class _Way(NamedTuple):
    type: type[Gauge]
    mode: str


# How the values of several processes are combined. All see the same queue and breakers: the most recent value counts.
# The newest point in time counts even if its process has ended.
_GAUGES: Mapping[Across, _Way] = {
    "sum": _Way(Gauge, "livesum"),
    "largest": _Way(Gauge, "livemax"),
    "latest": _Way(Gauge, "livemostrecent"),
    "newest": _Way(Gauge, "max"),
    "age": _Way(AgeGauge, "max"),
}


class _Piles(Collector):
    """A collector that only counts the buffered events and exports nothing."""

    def __init__(self) -> None:
        self.all: list[Pile[Any]] = []

    def collect(self) -> Iterable[Metric]:
        for pile in self.all:
            pile.clear()
        return ()


class MetricMaker:
    """Creates the metrics of one process, each once and as described in the catalogue.

    `made` are the names of the created metrics.
    """

    def __init__(self, registry: CollectorRegistry, limit: int) -> None:
        self._registry, self._limit = registry, limit
        self._piles = _Piles()
        # Registered first, so that all others export the counted events.
        registry.register(self._piles)
        self.made: set[str] = set()

    def pile(self, count: Callable[[list[T]], None]) -> "Pile[T]":
        """Create a buffer for events that are too frequent to count one by one."""
        made = Pile(count)
        self._piles.all.append(made)
        return made

    def counter(self, name: str) -> Counter:
        """Create a counter."""
        return self._make(Counter, name)

    def counters(self, name: str) -> Family[Counter]:
        """Create a counter with labels."""
        return self._family(Counter, name)

    def gauge(self, name: str) -> Gauge:
        """Create a gauge."""
        return self._make(_GAUGES[self._across(name)].type, name)

    def gauges(self, name: str) -> Family[Gauge]:
        """Create a gauge with labels; an age is set to the point in time from which it counts."""
        return self._family(_GAUGES[self._across(name)].type, name)

    def histogram(self, name: str) -> Histogram:
        """Create a histogram."""
        return self._make(Histogram, name)

    def histograms(self, name: str) -> Family[Histogram]:
        """Create a histogram with labels."""
        return self._family(Histogram, name)

    def _across(self, name: str) -> Across:
        across = CATALOGUE[name].across
        assert across is not None, f"{name} is no gauge"
        return across

    def _family(self, kind: type[M], name: str) -> Family[M]:
        described = CATALOGUE[name]
        grows = [place for place, label in enumerate(described.labels) if label in described.grows]
        return Family(self._make(kind, name), self._limit, grows)

    def _make(self, kind: type[M], name: str) -> M:
        described = CATALOGUE[name]
        self.made.add(name)
        options: dict[str, Any] = {}
        if described.across is not None:
            options["multiprocess_mode"] = _GAUGES[described.across].mode
        if described.buckets:
            options["buckets"] = described.buckets
        # The library adds the `_total` of a counter itself.
        return kind(name.removesuffix("_total"), described.help, described.labels, registry=self._registry, **options)
