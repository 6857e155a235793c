"""The wheel: the dashboard is in it as a whole, small, and without anything from elsewhere."""

import re
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

pytestmark = pytest.mark.spec("B10")

ROOT = Path(__file__).parents[2]
DASHBOARD = "floodmark/dashboard"
MOST_BYTES = 350_000


def test_the_whole_dashboard_is_in_the_wheel_and_small(tmp_path: Path) -> None:
    [built] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        sizes = {entry.filename: entry.compress_size for entry in wheel.infolist()}
    of_pages = {name: size for name, size in sizes.items() if re.match(rf"{DASHBOARD}/(templates|static)/", name)}
    source = ROOT / "src"
    there = {
        path.relative_to(source).as_posix()
        for folder in ("templates", "static")
        for path in (source / DASHBOARD / folder).iterdir()
    }
    assert set(of_pages) == there
    assert sum(of_pages.values()) <= MOST_BYTES
    assert f"{DASHBOARD}/pages/overview.py" in sizes
    # One style sheet and one script, both our own.
    assert sorted(Path(name).name for name in there if "/static/" in name) == ["app.css", "app.js", "icon.svg"]


def test_no_template_or_static_file_loads_anything_from_elsewhere() -> None:
    elsewhere = r"(?:src|href|action)=[\"'](?:https?:)?//|@import|\beval\(|new Function\("
    for path in (ROOT / "src" / DASHBOARD).glob("*/*.*"):
        if path.suffix in (".html", ".css", ".js", ".svg"):
            text = path.read_text(encoding="utf-8")
            assert re.findall(elsewhere, text) == [], path
            assert path.suffix != ".css" or "url(" not in text
            assert "|safe" not in text.replace(" ", ""), path
