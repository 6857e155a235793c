"""A crawl that selects parts of pages and stores evidence is killed at each step: every match is an item once, and
every item has its evidence."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator

from chaos.fleet import Fleet, Probe, eventually
from chaos.invariants import check_events, prepare
from chaos.process import Order
from floodmark.process.failpoints import ARCHIVE_POINTS
from floodmark.testing.web import Site
from web_desk import opened

PAGES, MATCHES = 24, 3
# Written and synced in the archive; written, committed and not yet settled in the store.
POINTS = ("archive.written:kill@8", "archive.synced:kill@2", "keep.written:kill@2", "keep.after:kill@2")
SETTINGS: dict[str, Any] = {
    "execution_lease": "1",
    "scheduler_leader_ttl": "1",
    "execution_rescue_max": 1000,
    # So slow that a run makes several batches.
    "web_domain_delay": "0.4",
    "hostname": "chaos",
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        for number in range(PAGES):
            rows = "".join(f"<li>{number}-{match}</li>" for match in range(MATCHES))
            links = [f"/{other}" for other in range(1, PAGES)] if not number else []
            site.page(f"/{number or ''}", "A list of things", body=f"<ol>{rows}</ol>", links=links)
        yield site


@pytest.mark.spec("B15", "G3", "G4")
@pytest.mark.thorough
async def test_matches_and_evidence_survive_kills_at_each_step(
    fleet: Fleet, site: Site, sqlite_url: str, tmp_path: Path
) -> None:
    chosen = {**SETTINGS, **site.settings(), "database_url": sqlite_url, "artifacts_dir": str(tmp_path)}
    await prepare(sqlite_url)
    probe = Probe(sqlite_url)

    def order(name: str, failpoint: str = "") -> Order:
        return Order(
            name=name, settings=chosen, folder=str(fleet.folder), scheduler=True, worker=True, failpoint=failpoint
        )

    assert {point.partition(":")[0] for point in POINTS} >= set(ARCHIVE_POINTS)
    async with opened(site, **chosen) as desk:
        job = await desk.job(select="ol li", fields=["name=."], warc=True, raw=True, sitemaps=False, concurrency=1)
        execution = await desk.ask(job)
        for number, point in enumerate(POINTS):
            fleet.start(order(f"victim-{number}", point))
            assert await fleet.ended(f"victim-{number}", 180) == -9, fleet.tails()
        fleet.start(order("survivor"))

        async def state() -> Any:
            return await probe.value(f"SELECT state FROM executions WHERE execution_id = '{execution}'")

        async def unsent() -> int:
            return int(await probe.value("SELECT count(*) FROM outbox WHERE position IS NULL"))

        await eventually(state, lambda found: found == "done", seconds=180, what="the crawl is done")
        await eventually(unsent, lambda count: count == 0, seconds=120, what="all events sent")
        fleet.stop_all()

    rows = await probe.rows("SELECT key, revision, deleted, data FROM items")
    expected = {f"{site.url}/{page or ''}#{page}-{match}" for page in range(PAGES) for match in range(MATCHES)}
    assert {key for key, *_ in rows} == expected
    assert {(revision, bool(deleted)) for _, revision, deleted, _ in rows} == {(1, False)}
    assert await probe.value("SELECT count(*) FROM page_matches") == PAGES
    archived = _archived(tmp_path)
    for _, _, _, data in rows:
        item = msgspec.json.decode(data)
        assert item["raw"] in archived[item["url"]]
        assert _hash_of(tmp_path, item["raw"]) == item["raw"]
    await check_events(probe)


def _archived(root: Path) -> dict[str, set[str]]:
    """The hashes of the stored responses by URL; every file is complete."""
    assert not list(root.glob("warc/*/*.open"))
    found: dict[str, set[str]] = {}
    for path in root.glob("warc/*/*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type == "response":
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    body = record.content_stream().read()
                    found.setdefault(url, set()).add(hashlib.sha256(body).hexdigest())
    return found


def _hash_of(root: Path, digest: str) -> str:
    return hashlib.sha256((root / "raw" / digest[:2] / f"{digest}.html").read_bytes()).hexdigest()
