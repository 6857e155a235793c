"""Metrics that are created at the first event or when they are first read: many commands need neither."""

from typing import TYPE_CHECKING

from .events import Events

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricsOnDemand:
    """The metrics of one process, fed by `events`."""

    def __init__(self, events: Events, max_label_values: int) -> None:
        self._events, self._limit = events, max_label_values
        events.before_first(self._create)

    @property
    def registry(self) -> "CollectorRegistry":
        """The registry that holds them."""
        self._events.prepare()
        return self._registry

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        from .metrics import render  # noqa: PLC0415 - see above

        return render(self.registry)

    def _create(self) -> None:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - see above

        from .metrics import Metrics  # noqa: PLC0415

        self._registry = CollectorRegistry()
        Metrics(self._registry, self._limit).attach(self._events)
