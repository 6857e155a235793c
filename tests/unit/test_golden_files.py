"""Documents and watermarks of earlier versions are still read. Never change a file in `golden`: add one."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from floodmark.sources.web.watermark import parse_mark
from system.channel_posts import validate

GOLDEN = Path(__file__).parent / "golden"


def read_golden(name: str) -> Any:
    return msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes())


@pytest.mark.spec("T7")
@pytest.mark.parametrize("name", ["artifact-1.0.0", "PostParsedEventV1"])
def test_a_document_of_an_earlier_version_is_valid(name: str) -> None:
    validate(name, read_golden(name))


@pytest.mark.spec("G3")
def test_a_crawl_of_an_earlier_version_is_resumed() -> None:
    """Fields that are new have their defaults; those that a later version adds are ignored."""
    stored = read_golden("watermark-web")
    mark = parse_mark({**stored, "of_a_later_version": 1})
    assert mark.start_or_resume(3, stored["terms"], 0.0) is mark
    assert {name: mark.watermark()[name] for name in ("crawl", "visited", "found")} == {
        "crawl": 3,
        "visited": 12,
        "found": 40,
    }
    assert mark.notes() == ["2 pages, such as https://example.com/a: has no text"]
    assert mark.rests == {}
