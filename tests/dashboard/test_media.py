"""Files of posts, the engagement of posts, and the secrets of jobs in the dashboard."""

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from dashboard.given import given_items
from dashboard.site import Site, csrf_in, post_form, serving_site
from dashboard.test_collected import HARBOUR, NOW, PICTURE, a_post
from floodmark.dashboard.media_content import picture_type
from floodmark.model.media import content_path
from floodmark.operations.media import LARGEST_PART
from floodmark.sources.telegram.engagement import Engagement, Sighting
from floodmark.sources.telegram.tables import media
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B11"), pytest.mark.asyncio(loop_scope="session")]

SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
POST = "/item/telegram%3A1000001/1000001%3A1"


async def given_files(site: Site, folder: Path) -> None:
    """A post with a photo that is stored, another with a document, one that failed and one that waits."""
    large = bytes(range(256)) * 4096 * 2 + b"end"
    files = {
        "11": ("photo", PICTURE, "photo.png", "stored"),
        "11:thumb": ("thumbnail", PICTURE, None, "stored"),
        "12": ("document", SCRIPT, 'a "b"/../plan\n.svg', "stored"),
        "13": ("video", large, "film.mp4", "stored"),
        "14": ("document", None, "lost.pdf", "failed"),
        "15": ("photo", None, None, "wanted"),
    }
    posts = [
        a_post(number - 10, f"Post {number - 10}", media={"type": files[str(number)][0], "id": str(number)}, views=10)
        for number in range(11, 16)
    ]
    await given_items(site, HARBOUR, *posts)
    rows = []
    for name, (kind, content, filename, state) in files.items():
        number = int(name.partition(":")[0]) - 10
        sha256 = None if content is None else hashlib.sha256(content).hexdigest()
        if content is not None and sha256 is not None:
            path = folder / content_path(sha256)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        rows.append(
            {
                "media_id": name,
                "kind": kind,
                "stream": HARBOUR,
                "key": f"1000001:{number}",
                "channel_id": 1000001,
                "message_id": number,
                "size": None if content is None else len(content),
                "filename": filename,
                "state": state,
                "sha256": sha256,
                "error": "the server has no such file" if state == "failed" else None,
                "attempts": 8 if state == "failed" else 0,
                "stored_at": NOW if state == "stored" else None,
            }
        )
    async with site.resources.database.writing() as connection:
        await connection.execute(media.insert(), rows)
    seen = [
        Sighting("1000001:1", NOW - timedelta(hours=hours + 1), NOW, {"views": views, "forwards": 3})
        for hours, views in ((0, 1200), (23, 4000))
    ]
    for one in seen:
        await Engagement(site.resources.database).store(HARBOUR, [one], (timedelta(hours=1), timedelta(days=1)))


async def test_a_post_shows_its_files_and_its_engagement_over_time(sqlite: Opened, tmp_path: Path) -> None:
    async with serving_site(sqlite, artifacts_dir=tmp_path) as site, site.client() as client:
        await given_files(site, tmp_path)
        shown = (await client.get(POST)).text
        assert 'src="/media/file?id=11%3Athumb"' in shown
        assert 'href="/media/file?id=11"' in shown
        assert "Engagement over time" in shown
        assert "Views and forwards of this post over time" in shown
        assert "after 1 d" in shown
        failed = (await client.get("/item/telegram%3A1000001/1000001%3A4")).text
        assert "the server has no such file" in failed
        assert "/media/file?id=14" not in failed


@pytest.mark.spec("G9")
async def test_only_pictures_are_shown_and_other_files_are_saved(sqlite: Opened, tmp_path: Path) -> None:
    async with (
        serving_site(sqlite, artifacts_dir=tmp_path) as site,
        site.client(await site.token("read")) as client,
        site.client() as stranger,
    ):
        await given_files(site, tmp_path)
        picture = await client.get("/media/file?id=11")
        assert (picture.status_code, picture.content) == (200, PICTURE)
        assert picture.headers["Content-Type"] == "image/png"
        assert picture.headers["Content-Disposition"].startswith("inline")
        drawing = await client.get("/media/file?id=12")
        assert (drawing.content, drawing.headers["Content-Type"]) == (SCRIPT, "application/octet-stream")
        assert drawing.headers["Content-Disposition"] == "attachment; filename*=UTF-8''plan.svg"
        for answer in (picture, drawing):
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        film = await client.get("/media/file?id=13")
        assert (len(film.content), film.content[-3:]) == (2 * 1024 * 1024 + 3, b"end")
        known = await client.get("/media/file?id=11", headers={"If-None-Match": picture.headers["ETag"]})
        assert (known.status_code, known.content) == (304, b"")
        assert (await client.get("/media/file?id=14")).status_code == 409
        assert (await client.get("/media/file?id=99")).status_code == 404
        # The same over the API, in parts.
        part = await client.get(f"/api/v2/media/13/content?offset={2 * LARGEST_PART}&length=10")
        assert (part.content, part.headers["Content-Type"]) == (b"end", "application/octet-stream")
        assert part.headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/media/file?id=11", "/api/v2/media/11/content"):
            assert (await stranger.get(path)).status_code in (303, 401)
    assert picture_type(SCRIPT) is None


async def test_files_are_listed_retried_and_pruned(sqlite: Opened, tmp_path: Path) -> None:
    async with serving_site(sqlite, artifacts_dir=tmp_path) as site, site.client() as client:
        await given_files(site, tmp_path)
        shown = (await client.get("/media?state=failed")).text
        assert ("lost.pdf" in shown, "film.mp4" in shown) == (True, False)
        await post_form(client, "/media", "/act/retry_media", media_id="14", back="/media")
        assert (await site.operations.media_file("14")).state == "wanted"
        fields = {"older_than_seconds": "0", "stream": HARBOUR, "back": "/media"}
        asked = await post_form(client, "/media", "/act/prune_media", ask="Really?", **fields)
        assert "Really?" in asked.text
        assert (await site.operations.media_file("13")).state == "stored"
        await post_form(client, "/media", "/act/prune_media", ask="Really?", sure="yes", **fields)
        assert (await site.operations.media_file("13")).state == "pruned"


@pytest.mark.spec("G9")
async def test_secrets_are_set_and_removed_and_their_values_are_in_no_page(sqlite: Opened) -> None:
    async with serving_site(sqlite) as site, site.client() as client:
        page = (await client.get("/secrets")).text
        stored = await client.post("/secrets", data={"csrf": csrf_in(page), "name": "shop", "value": "ann:s3cret-word"})
        assert stored.status_code == 303, stored.text
        refused = await post_form(client, "/secrets", "/secrets", name="not a name", value="s3cret-word")
        assert "cannot be the name of a secret" in refused.text
        shown = (await client.get("/secrets")).text + (await client.get("/audit")).text + refused.text
        assert "SHOP" in shown
        assert "s3cret-word" not in shown
        answer = await client.put("/api/v2/secrets/shop", json={"value": "ann:other-word"})
        assert (answer.status_code, answer.json()["replaced"], "other-word" in answer.text) == (200, True, False)
        await post_form(client, "/secrets", "/act/remove_secret", name="SHOP", back="/secrets")
        assert (await site.operations.secrets()).items == []
