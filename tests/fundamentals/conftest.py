"""An application for each lesson of the tutorial: embedded, in its own folder, with short delays."""

from datetime import timedelta
from pathlib import Path

import pytest

from floodmark import Floodmark, Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings with one SQLite file, one slot and short retry delays."""
    return Settings(
        database_url=f"sqlite:///{tmp_path}/floodmark.db",
        floodmark_home=tmp_path,
        hostname="here",
        scheduler_worker_pool_size=1,
        execution_lease=timedelta(seconds=5),
        execution_retry_base=timedelta(seconds=0.05),
        shutdown_grace=timedelta(seconds=2),
    )


@pytest.fixture
def app(settings: Settings) -> Floodmark:
    """Return the application, as `app = Floodmark()` does in your own module."""
    return Floodmark(settings)
