"""A browser, which may not be there, and something to scan."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cookies.shop import HOSTS, RESOLVE, Shop
from floodmark.settings import Settings
from floodmark.sources.cookies.browser import BrowserMissing, find_chromium
from skipping import not_tested


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser of this machine. Where there is none that is a loud skip, and in CI a failure."""
    try:
        return find_chromium(os.environ.get("FLOODMARK_CHROMIUM"), os.environ)
    except BrowserMissing as missing:
        not_tested(f"{missing} ({missing.hint}).")


@pytest.fixture(scope="session")
def shell(chromium: Path) -> Path:
    """Chromium's headless shell, where there is one: it shows pages the same for less than half of the CPU time.

    Not for scans: their visitor is a Chromium that hides that it has no window.
    """
    found = shutil.which("chromium-headless-shell")
    return Path(found) if found else chromium


@pytest.fixture(scope="module")
def shop(chromium: Path) -> Iterator[Shop]:
    with tempfile.TemporaryDirectory() as folder, Shop(Path(folder)) as made:
        yield made


@pytest.fixture(autouse=True)
def as_before(request: pytest.FixtureRequest) -> None:
    if "shop" in request.fixturenames:
        shop: Shop = request.getfixturevalue("shop")
        shop.later = ""
        shop.asked.clear()
        shop.held.clear()


def patient(**fields: Any) -> Settings:
    """Settings for scans of the shop: its hosts are private, its scripts are quick."""
    usual = {
        "http_allow_hosts": ", ".join(HOSTS),
        "http_resolve": RESOLVE,
        "cookies_settle": timedelta(seconds=0.1),
        "cookies_banner_wait": timedelta(seconds=0.1),
        "cookies_page_timeout": timedelta(seconds=30),
        "floodmark_chromium": os.environ.get("FLOODMARK_CHROMIUM"),
    }
    return Settings(**{**usual, **fields})
