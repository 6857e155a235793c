"""Where an artifact is: within its folder, whatever a tenant is called."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.errors import Unavailable
from floodmark.model.posts import Chat
from floodmark.sinks.atomic import Replacement, lock_folder
from floodmark.sinks.files import folder_of
from floodmark.sources.telegram.media_folder import PartialFile
from floodmark.sources.web.archive.files import folder_name, write_once
from floodmark.sources.web.archive.warc import WarcArchive

ROOT = Path("/artifacts")


@pytest.mark.spec("T7", "G9")
@given(tenant=st.text(min_size=1, max_size=400), other=st.text(min_size=1))
@example(tenant="..", other=".")
@example(tenant="../../etc/passwd", other="/etc/passwd")
@example(tenant="CON", other="con")
@example(tenant="a\0b", other="a")
@example(tenant="a\\..\\b", other="\u0430")
@example(tenant="x" * 300, other="x" * 301)
def test_no_name_leads_out_of_the_folder(tenant: str, other: str) -> None:
    """One folder below the root for each tenant, of plain letters, short enough for every file system."""
    path = folder_of(ROOT, Chat(17, tenant))
    folder, chat = path.relative_to(ROOT).parts
    assert chat == "17"
    assert folder.startswith("tenant-")
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%")
    assert len(folder) < 200
    if other != tenant:
        assert folder_of(ROOT, Chat(17, other)) != path


def write_day(root: Path) -> None:
    """Write a file into the folder of a chat, as the sink of artifacts does."""

    async def write() -> None:
        async with lock_folder(root, folder_of(root, Chat(17, None))):
            file = Replacement(root / "17" / "2026-01-01.json")
            file.write(b"{}")
            file.commit()

    asyncio.run(write())


def write_media(root: Path) -> None:
    """Download a file, as the Telegram source does."""
    partial = PartialFile(root, "1:2", 4)
    try:
        partial.append(b"abcd")
        partial.place()
    finally:
        partial.close()


def write_warc(root: Path) -> None:
    """Prepare an archive, as the web source does."""
    archive = WarcArchive(root, "web:https://example.com/", "0" * 32, most_bytes=1000)
    archive.open()
    archive.close()


def write_raw(root: Path) -> None:
    """Store the content of a revision."""
    assert write_once(root, root / "raw" / "ab" / "abcd.html", b"<p>")


WARC = f"warc/{folder_name('web:https://example.com/')}"
WRITERS = [
    (write_day, "17"),
    (write_media, "media"),
    (write_media, "media/partial"),
    (write_media, "media/partial/1-2"),
    (write_media, f"media/{hashlib.sha256(b'abcd').hexdigest()[:2]}"),
    (write_warc, "warc"),
    (write_warc, WARC),
    (write_warc, f"{WARC}/20260101000000-x-00000.warc.gz.open"),
    (write_warc, f"{WARC}/payloads.sqlite"),
    (write_raw, "raw"),
    (write_raw, "raw/ab"),
    (write_raw, "raw/.tmp"),
]


@pytest.mark.spec("T7", "G9")
@pytest.mark.parametrize(("write", "link"), WRITERS)
@pytest.mark.parametrize("is_there", [True, False], ids=["existing", "dangling"])
def test_no_symbolic_link_leads_out_of_the_folder(
    write: Callable[[Path], None], link: str, is_there: bool, tmp_path: Path
) -> None:
    """A link below the root is refused by name, and what it points to stays as it is. The root may be a link."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    is_file = link.endswith((".open", ".sqlite", "1-2"))
    (root / link).parent.mkdir(parents=True)
    if is_there and is_file:
        outside.write_text("precious")
    elif is_there:
        outside.mkdir()
    (root / link).symlink_to(outside)
    with pytest.raises(Unavailable, match="symbolic link") as refused:
        write(root)
    assert str(root / link) in str(refused.value)
    if is_there:
        assert outside.read_text() == "precious" if is_file else not list(outside.iterdir())
    else:
        assert not outside.exists()
    (root / link).unlink()
    chosen = tmp_path / "chosen"
    chosen.symlink_to(root)
    write(chosen)


@pytest.mark.spec("T7", "G9")
def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    """The file takes its name; what the link points to is neither read as its content nor changed."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"{}")
    for path, write in ((tmp_path / "17" / "2026-01-01.json", write_day), (tmp_path / "raw/ab/abcd.html", write_raw)):
        path.parent.mkdir(parents=True)
        path.symlink_to(outside)
        write(tmp_path)
        assert path.is_file()
        assert not path.is_symlink()
    assert outside.read_bytes() == b"{}"
