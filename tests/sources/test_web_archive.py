"""Evidence of crawls: WARC files that other tools read, and the content of each revision by its hash."""

import hashlib
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from warcio.archiveiterator import ArchiveIterator

from floodmark.outbound.client import HttpAnswer
from floodmark.sources.web.archive.files import finish_left_files, folder_name
from floodmark.sources.web.archive.warc import WarcArchive
from floodmark.testing.web import Site, redirect
from web_desk import LONG, working

pytest_plugins = ("backends",)

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


class Archived:
    """A record of a WARC file."""

    def __init__(self, record: Any) -> None:
        self.type, self.url = record.rec_type, record.rec_headers.get_header("WARC-Target-URI")
        self.headers = record.rec_headers
        self.status = record.http_headers.get_statuscode() if record.http_headers else None
        self.body = record.content_stream().read()


def read_file(path: Path) -> list[Archived]:
    """All records of a file; the digests of each are verified."""
    with path.open("rb") as file:
        return [Archived(record) for record in ArchiveIterator(file, check_digests="raise")]


def read_all(root: Path) -> list[Archived]:
    return [record for path in sorted(root.glob("warc/*/*.warc.gz")) for record in read_file(path)]


def found_files(root: Path, pattern: str) -> list[Path]:
    return list(root.glob(pattern))


def answer(body: bytes, status: int = 200, **headers: str) -> HttpAnswer:
    found = {"Content-Type": "text/html", "Content-Encoding": "gzip", **headers}
    return HttpAnswer(status=status, url="", headers=CIMultiDictProxy(CIMultiDict(found)), body=body)


@pytest.mark.spec("B15")
async def test_responses_are_in_warc_files_and_known_ones_are_revisits(
    site: Site, sqlite_copy: str, tmp_path: Path
) -> None:
    site.page("/", LONG, links=["/etag", "/old", "/gone"])
    site.page("/etag", LONG * 2, has_etag=True)
    site.always("/old", redirect("/etag", 301))
    async with working(site, sqlite_copy, artifacts_dir=tmp_path) as desk:
        job = await desk.job(warc=True, raw=True, sitemaps=False)
        await desk.run(job)
        first = {(record.url, record.type): record for record in read_all(tmp_path)}
        assert not found_files(tmp_path, "warc/*/*.open")
        statuses = {desk.path(url): record.status for (url, kind), record in first.items() if kind == "response"}
        assert statuses == {"/": "200", "/etag": "200", "/old": "301", "/gone": "404"}
        assert LONG.strip().encode() in first[f"{site.url}/", "response"].body
        data = (await desk.items(job))["/"]["data"]
        raw = tmp_path / "raw" / data["raw"][:2] / f"{data['raw']}.html"
        assert hashlib.sha256(raw.read_bytes()).hexdigest() == data["raw"]
        assert raw.read_bytes() == first[f"{site.url}/", "response"].body

        await desk.run(job)
        [start] = [found for found in read_all(tmp_path) if found.type == "revisit" and found.url == f"{site.url}/"]
        assert start.headers.get_header("WARC-Profile").endswith("/revisit/identical-payload-digest")
        assert start.headers.get_header("WARC-Refers-To-Target-URI") == f"{site.url}/"
        assert start.body == b""
        [same] = [found for found in read_all(tmp_path) if found.type == "revisit" and found.url.endswith("/etag")]
        assert (same.status, same.headers.get_header("WARC-Profile")[-19:]) == ("304", "server-not-modified")

        site.page("/", f"New. {LONG}", links=["/etag"])
        await desk.run(job)
        assert len({row["data"]["raw"] for row in (await desk.items(job)).values()}) == 2
        assert len(found_files(tmp_path, "raw/*/*.html")) == 3, "one file for each revision"


@pytest.mark.spec("B15")
async def test_archives_need_a_folder(site: Site, sqlite_copy: str) -> None:
    site.page("/", LONG)
    async with working(site, sqlite_copy) as desk:
        run = await desk.run(await desk.job(warc=True))
        assert run.state == "dead"
        assert "ARTIFACTS_DIR, which is not set" in str(run.error_message)


@pytest.mark.spec("B15")
def test_files_are_rotated_and_payloads_are_known_in_all_of_them(tmp_path: Path) -> None:
    for run in range(2):
        archive = WarcArchive(tmp_path, "web:x", f"execution{run}", most_bytes=2000)
        archive.open()
        for number in range(10):
            archive.add(f"https://example.com/{number}", answer(hashlib.sha512(bytes(number)).digest() * 8), NOW)
        archive.sync()
        archive.close()
    files = sorted((tmp_path / "warc" / folder_name("web:x")).glob("*.warc.gz"))
    assert len(files) > 4
    assert all(read_file(path)[0].type == "warcinfo" for path in files)
    records = [found for found in read_all(tmp_path) if found.type != "warcinfo"]
    assert [found.type for found in records].count("response") == 10
    assert [found.type for found in records].count("revisit") == 10
    coded = next(found for found in records if found.type == "response")
    assert len(coded.body) == 512


@pytest.mark.spec("B15")
def test_a_file_cut_anywhere_is_finished_without_its_incomplete_record(tmp_path: Path) -> None:
    archive = WarcArchive(tmp_path, "web:x", "execution", most_bytes=10**9)
    archive.open()
    for number in range(3):
        archive.add(f"https://example.com/{number}", answer(f"This is page {number}. ".encode() * 20), NOW)
    archive.sync()
    [written] = tmp_path.glob("warc/*/*.open")
    whole = written.read_bytes()
    assert finish_left_files(written.parent) == [], "it is still being written"
    archive.close()
    other = tmp_path / "other"
    other.mkdir()
    counts = []
    for length in range(0, len(whole) + 1, 7):
        (other / "x.warc.gz.open").write_bytes(whole[:length])
        finished = finish_left_files(other)
        counts.append(len(read_file(finished[0])) if finished else 0)
        assert not list(other.glob("*.open"))
    assert set(counts) <= {0, 1, 2, 3, 4}
    assert counts == sorted(counts)
    assert counts[-1] >= 3


@pytest.mark.spec("B15")
@pytest.mark.thorough
def test_a_killed_writer_leaves_only_complete_records(tmp_path: Path) -> None:
    """The process is killed right after a record has reached the system, and again after the sync."""
    for point in ("archive.written:kill@4", "archive.synced:kill@2"):
        code = f"""
import os
os.environ["FLOODMARK_FAILPOINT"] = {point!r}
from pathlib import Path
from test_web_archive import NOW, WarcArchive, answer
archive = WarcArchive(Path({str(tmp_path)!r}), "web:x", "doomed", most_bytes=10**9)
archive.open()
for number in range(100):
    archive.add(f"https://example.com/{{number}}", answer(os.urandom(300)), NOW)
    archive.sync()
"""
        folder = Path(__file__).parent
        path = [str(folder.parent), str(folder)]
        ended = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}"], capture_output=True, check=False
        )
        assert ended.returncode == -9, ended.stderr.decode()
        [left] = tmp_path.glob("warc/*/*.open")
        with left.open("ab") as file:
            file.write(b"\x1f\x8b\x08\x00half a record")
        archive = WarcArchive(tmp_path, "web:x", "successor", most_bytes=10**9)
        archive.open()
        archive.close()
        assert not list(tmp_path.glob("warc/*/*.open"))
    found = [record for record in read_all(tmp_path) if record.type == "response"]
    assert len(found) == 3 + 2
