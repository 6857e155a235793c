"""How metrics are made: each on the registry of its process, with labels that cannot grow without end."""

import time
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

OTHER = "other"
LATENESS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
# Longer words than this are sentences.
_LONGEST_WORD = 60

M = TypeVar("M", bound=MetricWrapperBase)


def word(text: str) -> str:
    """A label of a closed set, such as the name of an error's class; anything else, free text above all, is "other"."""
    return text if text.replace("-", "_").isidentifier() and len(text) <= _LONGEST_WORD else OTHER


class Family(Generic[M]):
    """The children of one metric, each found by one lookup.

    The label at position `grows` takes at most `limit` values; later ones share the child "other".
    """

    def __init__(self, metric: M, limit: int, grows: int = 0) -> None:
        self._metric, self._limit, self._grows = metric, limit, grows
        self._children: dict[tuple[str, ...], M] = {}
        self._values: set[str] = set()

    def child(self, *labels: str) -> M:
        """The series with these labels."""
        return self._children.get(labels) or self._admit(labels)

    def _admit(self, labels: tuple[str, ...]) -> M:
        value = labels[self._grows]
        if value not in self._values and len(self._values) >= self._limit:
            # Only the folded labels are remembered: the values turned away have no end.
            labels = (*labels[: self._grows], OTHER, *labels[self._grows + 1 :])
        else:
            self._values.add(value)
        if labels not in self._children:
            self._children[labels] = self._metric.labels(*labels)
        return self._children[labels]


class AgeGauge(Gauge):
    """Is set to a moment, and shows how many seconds ago that is: it grows while nothing happens."""

    def collect(self) -> Iterable[Metric]:
        """The ages, at this moment."""
        return [aged(metric) for metric in super().collect()]


def aged(metric: Metric) -> Metric:
    """The same with moments turned into ages."""
    now = time.time()
    made = Metric(metric.name, metric.documentation, metric.type)
    made.samples = [sample._replace(value=max(0.0, now - sample.value)) for sample in metric.samples]
    return made


class Maker:
    """Makes the metrics of one process."""

    def __init__(self, registry: CollectorRegistry, limit: int) -> None:
        self._registry, self._limit = registry, limit

    def counter(self, name: str, text: str) -> Counter:
        """A number that grows."""
        return Counter(name, text, registry=self._registry)

    def counters(self, name: str, text: str, *labels: str, grows: int = 0) -> Family[Counter]:
        """One for each label; the label at `grows` is bounded."""
        return Family(Counter(name, text, labels, registry=self._registry), self._limit, grows)

    def gauges(self, name: str, text: str, *labels: str) -> Family[Gauge]:
        """Everyone sees the same queue and the same breakers: the last one to look knows best."""
        gauge = Gauge(name, text, labels, registry=self._registry, multiprocess_mode="livemostrecent")
        return Family(gauge, self._limit)

    def newest(self, name: str, text: str) -> Gauge:
        """The latest value of all processes, of those that are gone too."""
        return Gauge(name, text, registry=self._registry, multiprocess_mode="max")

    def ages(self, name: str, text: str, *labels: str) -> Family[Gauge]:
        """How long ago it was, set to when that was. Of several processes the latest counts, alive or not."""
        gauge: Gauge = AgeGauge(name, text, labels, registry=self._registry, multiprocess_mode="max")
        return Family(gauge, self._limit)

    def latest(self, name: str, text: str) -> Gauge:
        """What whoever looked last has seen."""
        return Gauge(name, text, registry=self._registry, multiprocess_mode="livemostrecent")

    def largest(self, name: str, text: str) -> Gauge:
        """The largest value of the processes that are alive."""
        return Gauge(name, text, registry=self._registry, multiprocess_mode="livemax")

    def sum(self, name: str, text: str) -> Gauge:
        """The values of all processes that are alive, added up."""
        return Gauge(name, text, registry=self._registry, multiprocess_mode="livesum")

    def histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        """How values are spread."""
        return Histogram(name, text, buckets=buckets, registry=self._registry)

    def histograms(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Family[Histogram]:
        """The same for each label."""
        return Family(Histogram(name, text, labels, buckets=buckets, registry=self._registry), self._limit)
