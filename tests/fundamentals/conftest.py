"""An application for each page of the tutorial: embedded, in a folder of its own, and in no mood to wait."""

from datetime import timedelta
from pathlib import Path

import pytest

from floodmark import Floodmark, Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """One SQLite file, one slot. Failed runs are tried again soon."""
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
    """What `app = Floodmark()` is at the top of a module of yours."""
    return Floodmark(settings)
