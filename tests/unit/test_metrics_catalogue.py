"""The catalogue is the truth about metrics: what is in it is made, and nothing else can be."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from floodmark.observability.metrics import Metrics, render
from floodmark.observability.metrics.catalogue import CATALOGUE, CHAPTERS
from floodmark.observability.metrics.families import Family, MetricMaker


@pytest.mark.spec("T9", "F7", "V9")
def test_every_metric_of_the_catalogue_is_made_and_no_other() -> None:
    metrics = Metrics(CollectorRegistry(), 10)
    assert metrics.made == set(CATALOGUE)
    declared = {
        line.split()[2] for line in render(metrics.registry).decode().splitlines() if line.startswith("# TYPE ")
    }
    assert declared == set(CATALOGUE)


def test_a_metric_that_is_not_in_the_catalogue_cannot_be_made() -> None:
    with pytest.raises(KeyError, match="floodmark_surprise_total"):
        MetricMaker(CollectorRegistry(), 10).counter("floodmark_surprise_total")


def test_names_and_labels_are_well_formed() -> None:
    described = [one for chapter in CHAPTERS for one in chapter.metrics]
    assert len(described) == len(CATALOGUE), "each once"
    for one in described:
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        assert bool(one.buckets) == (one.kind == "histogram"), one.name
        assert (one.across is not None) == (one.kind == "gauge"), one.name
        assert set(one.grows) <= set(one.labels), one.name
        assert one.help.endswith("."), one.name


GROWING = [(one.name, label) for one in CATALOGUE.values() for label in one.grows]


@pytest.mark.spec("G6")
@pytest.mark.parametrize(("name", "label"), GROWING, ids=[f"{name}-{label}" for name, label in GROWING])
def test_each_label_that_can_grow_is_capped(name: str, label: str) -> None:
    described, registry = CATALOGUE[name], CollectorRegistry()
    maker = MetricMaker(registry, 3)
    makes: dict[str, Callable[[str], Family[Any]]] = {"counter": maker.counters, "gauge": maker.gauges}
    family = makes.get(described.kind, maker.histograms)(name)
    for number in range(100):
        family.child(*(f"value-{number}" if one == label else "same" for one in described.labels))
    series = {
        tuple(sample.labels.get(one) for one in described.labels)
        for metric in registry.collect()
        for sample in metric.samples
    }
    place = described.labels.index(label)
    assert {labels[place] for labels in series} == {"value-0", "value-1", "value-2", "other"}


def test_labels_that_come_from_outside_are_known_to_grow() -> None:
    """Those that a person, a site or a channel can make up; all others are words of ours."""
    ours = {
        "schedule_type", "priority", "status", "type", "mode", "reason", "result", "operation", "version",
    }  # fmt: skip
    for one in CATALOGUE.values():
        closed = set(one.labels) - set(one.grows)
        assert closed <= ours | {"channel"}, f"{one.name}: can {closed - ours} grow?"
