"""What is stored beside posts in exports: their files, and how often they were seen over time."""

import csv
import json
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pytest

from dashboard.given import given_items
from dashboard.site import serving_site
from dashboard.test_collected import HARBOUR, NOW
from dashboard.test_media import given_files
from floodmark.client.client import Client
from floodmark.dashboard.downloads import SilentProgress
from floodmark.exports.engagement import export_engagement
from floodmark.exports.export import run_export
from floodmark.exports.formats import FORMATS
from floodmark.exports.request import ExportRequest
from floodmark.model.batch import Item
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B11", "B12"), pytest.mark.asyncio(loop_scope="session")]


async def test_files_and_latest_counts_are_columns_here_and_over_http(sqlite: Opened, tmp_path: Path) -> None:
    request = ExportRequest(format="jsonl", out=None, streams=(HARBOUR,))
    async with serving_site(sqlite, artifacts_dir=tmp_path) as site, Client(site.url) as client:
        await given_files(site, tmp_path)
        await given_items(site, "test:others", Item("1", {"media": {"id": "11"}}), name="others")
        written = []
        for operations in (site.operations, client):
            stream = BytesIO()
            await run_export(operations, request, SilentProgress(), stream)
            written.append(stream.getvalue())
        assert written[0] == written[1]
        rows = {row["key"]: row for row in map(json.loads, written[0].splitlines())}
        first, failed, waiting = (rows[f"1000001:{number}"] for number in (1, 4, 5))
        photo, thumb = first["files"]
        assert (photo["kind"], thumb["kind"], photo["state"]) == ("photo", "thumbnail", "stored")
        assert (tmp_path / photo["path"]).stat().st_size == photo["size"]
        assert photo["path"].endswith(photo["sha256"])
        assert (first["views"], first["latest_views"], first["latest_forwards"]) == (10, 4000, 3)
        assert first["latest_seen_at"].startswith(f"{NOW:%Y-%m-%dT%H:%M:%S}")
        assert [(one["state"], one["path"]) for one in (*failed["files"], *waiting["files"])] == [
            ("failed", None),
            ("wanted", None),
        ]
        assert waiting["latest_views"] is None


async def test_every_sample_of_a_stream_is_exported(sqlite: Opened, tmp_path: Path) -> None:
    async with serving_site(sqlite, artifacts_dir=tmp_path) as site:
        await given_files(site, tmp_path)
        out = tmp_path / "samples.csv"
        count = await export_engagement(site.operations, HARBOUR, FORMATS["csv"], out, BytesIO())
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count
        first = [row for row in rows if row["key"] == "1000001:1"]
        assert {row["occasion"] for row in first} == {"collected", "sample", "newest"}
        day = f"{timedelta(days=1).total_seconds():.0f}"
        assert [row["views"] for row in first if row["after_seconds"] == day] == ["4000"]
