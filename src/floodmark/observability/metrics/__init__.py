"""Prometheus metrics: described in `catalogue`, all fed by events.

If PROMETHEUS_MULTIPROC_DIR is set before Python starts, each /metrics shows the sum of all processes of the machine.
"""

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from floodmark.observability.events import Events

from .budgets import BudgetMetrics
from .calls import CallMetrics
from .catalogue import AGES
from .channels import ChannelMetrics
from .deliveries import PUSHES, DeliveryMetrics
from .families import MetricMaker, to_ages
from .scheduling import SchedulingMetrics
from .sinks import SinkMetrics
from .state import StateMetrics
from .web import WebMetrics

# To the library a counter is called without its `_total`.
_OWN = frozenset(name.removesuffix("_total") for name in PUSHES)
_PARTS = (
    SchedulingMetrics,
    BudgetMetrics,
    StateMetrics,
    SinkMetrics,
    ChannelMetrics,
    CallMetrics,
    WebMetrics,
    DeliveryMetrics,
)


class Metrics:
    """All metrics of one process, on their own registry. `made` are their names."""

    def __init__(self, registry: CollectorRegistry, max_label_values: int) -> None:
        self.registry = registry
        make = MetricMaker(registry, max_label_values)
        self._parts = tuple(part(make) for part in _PARTS)
        self.made = frozenset(make.made)

    def attach(self, events: Events) -> None:
        """Start to count."""
        for part in self._parts:
            part.attach(events)


def render(registry: CollectorRegistry) -> bytes:
    """Return the text that Prometheus scrapes; in multiprocess mode for all processes, independent of the registry."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return _render(registry)
    return _render(_AllProcesses())


def render_sum(registry: CollectorRegistry) -> bytes:
    """Return the same for a supervisor that writes no file itself: `registry` contains its own pushes."""
    return _render(_AllProcesses(registry))


def _render(counted: Collector) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Described(counted))
    return generate_latest(registry)


class _Described(Collector):
    """Exports only the metrics of the catalogue, without the creation time series that the library adds."""

    def __init__(self, counted: Collector) -> None:
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        for metric in self._counted.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _AllProcesses(Collector):
    """The values that the processes of this machine have written to their files, where ages are still points in time.

    Pushes are taken from `own`, if it is given.
    """

    def __init__(self, own: CollectorRegistry | None = None) -> None:
        self._own = own

    def collect(self) -> Iterator[Metric]:
        files = MultiProcessCollector(None)  # type: ignore[no-untyped-call]  # the library leaves it unannotated
        for metric in files.collect():  # type: ignore[no-untyped-call]  # as above
            if self._own is None or metric.name not in _OWN:
                yield to_ages(metric) if metric.name in AGES else metric
        if self._own is not None:
            yield from (metric for metric in self._own.collect() if metric.name in _OWN)
