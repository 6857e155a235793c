"""The pictures of the dashboard in the docs: small, of one size, and each of them is shown somewhere or can be."""

import importlib.util
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def pictures() -> Any:
    spec = importlib.util.spec_from_file_location("dashboard_pictures", _IMAGES / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_small_and_of_the_same_size(pictures: Any) -> None:
    found = sorted(_IMAGES.glob("dashboard-*.png"))
    assert {path.stem.removeprefix("dashboard-") for path in found} <= set(pictures.PAGES)
    assert {"overview", "overview-dark", "accounts", "docs"} <= {path.stem.removeprefix("dashboard-") for path in found}
    for path in found:
        content = path.read_bytes()
        assert len(content) < _MOST_BYTES, path.name
        height = pictures.height_of(path.stem.removeprefix("dashboard-"))
        assert struct.unpack(">II", content[16:24]) == (pictures.WIDTH, height)


def a_png(pixels: Any, kinds: list[int]) -> bytes:
    """A picture as a browser writes it, with these filters for its rows."""
    height, width, _ = pixels.shape
    rows = b""
    for at, kind in enumerate(kinds):
        line = pixels[at].astype(int)
        above = pixels[at - 1].astype(int) if at else np.zeros_like(line)
        left = np.vstack([np.zeros((1, 3), int), line[:-1]])
        corner = np.vstack([np.zeros((1, 3), int), above[:-1]])
        nearest = [abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)]
        paeth = np.choose(np.argmin(np.stack(nearest), axis=0), [left, above, corner])
        guess = [np.zeros_like(line), left, above, (left + above) // 2, paeth][kind]
        rows += bytes([kind]) + ((line - guess) % 256).astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    parts = [struct.pack(">I", len(data)) + kind + data + b"crc." for kind, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_a_picture_with_few_colours_is_not_changed(pictures: Any) -> None:
    colours = np.array([[255, 255, 255], [10, 200, 30], [0, 0, 90]], np.uint8)
    pixels = colours[np.random.default_rng(7).integers(0, 3, (5, 40))]
    png = a_png(pixels, [0, 1, 2, 3, 4])
    assert (pictures.read_png(png) == pixels).all()
    palette, chosen = pictures.choose_colours(pixels)
    assert (palette[chosen] == pixels).all()
    assert pictures.shrink(png)[25] == 3, "it has a palette"


def test_a_picture_with_many_colours_keeps_the_frequent_ones(pictures: Any) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (40, 40, 3)).astype(np.uint8)
    pixels[:20] = (1, 2, 3)
    palette, chosen = pictures.choose_colours(pixels)
    assert len(palette) == 256
    assert (palette[chosen][:20] == (1, 2, 3)).all()
