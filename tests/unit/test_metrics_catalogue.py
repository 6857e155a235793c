"""The catalogue is the truth about metrics: what is in it is made, and nothing else can be."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from floodmark.telemetry.metrics import Metrics, __main__, render
from floodmark.telemetry.metrics.catalogue import CATALOGUE, CHAPTERS
from floodmark.telemetry.metrics.families import Maker

ROOT = Path(__file__).parents[2]


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
        Maker(CollectorRegistry(), 10).counter("floodmark_surprise_total")


def test_names_and_labels_are_well_formed() -> None:
    described = [one for chapter in CHAPTERS for one in chapter.metrics]
    assert len(described) == len(CATALOGUE), "each once"
    for one in described:
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        assert bool(one.buckets) == (one.kind == "histogram"), one.name
        assert (one.across is not None) == (one.kind == "gauge"), one.name
        assert set(one.grows) <= set(one.labels), one.name
        assert one.help.endswith("."), one.name


def test_the_page_about_metrics_is_up_to_date() -> None:
    told = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert told == __main__.page(), "python -m floodmark.telemetry.metrics > docs/metrics.md"
