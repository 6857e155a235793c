"""Scans as values, and kept in a store, without a browser."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from floodmark.model.batch import Batch, Item
from floodmark.sinks.sql import SqlSink
from floodmark.sources.cookies.findings import Banner, Cookie, PhaseFound, ScanRecord, Visit
from floodmark.sources.cookies.report import make_report
from floodmark.testing.factories import given_lease
from floodmark.wiring.resources import Resources

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def a_cookie(name: str = "session", **fields: Any) -> Cookie:
    usual: dict[str, Any] = {
        "name": name,
        "domain": "example.com",
        "path": "/",
        "party": "first",
        "expires": None,
        "lifetime_seconds": None,
        "http_only": False,
        "secure": True,
        "same_site": "Lax",
        "partition": None,
        "size": 10,
        "value_sha256": "0" * 64,
        "set_by": "header",
    }
    return Cookie(**{**usual, **fields})


def a_scan(*cookies: Cookie, **fields: Any) -> ScanRecord:
    before = PhaseFound(
        phase="before",
        result="complete",
        visits=(Visit(url="https://example.com/", result="complete", status=200),),
        cookies=cookies,
        **fields,
    )
    accept = replace(before, phase="accept", banner=Banner(name="OneTrust", button="Fine", steps=("Fine",), layer=1))
    return ScanRecord(
        domain="example.com",
        start="https://example.com/",
        final="https://example.com/",
        browser="Chromium 1",
        phases=(before, accept),
    )


async def keep_scans(
    resources: Resources, *scans: ScanRecord, stream: str = "cookies:example.com", **columns: Any
) -> None:
    """Keep them as a worker does, one an hour. Their keys are scan-1, scan-2, ..."""
    usual = {"source": "cookies", "target": "example.com", "stream": stream, "name": "cookies-example-com"}
    lease = await given_lease(resources, **{**usual, **columns})
    for number, found in enumerate(scans, start=1):
        at = NOON + timedelta(hours=number)
        report, blobs = make_report(found, began=at, seconds=2.5)
        item = Item(f"scan-{number}", report, occurred_at=at)
        await SqlSink(resources.keeping, resources.events).keep(
            lease, Batch([item], {"execution": item.key}, blobs=blobs)
        )
