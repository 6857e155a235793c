"""Equal requests share a page, but neither the secret of a browser nor what another person sees."""

import asyncio
import base64

import pytest

from dashboard.site import Site, csrf_in
from floodmark.dashboard.csrf import CSRF_PLACE, fill_csrf
from floodmark.dashboard.sharing import SharedPage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.spec("B10")]


def secret_in(proof: str) -> bytes:
    both = base64.urlsafe_b64decode(proof)
    return bytes(one ^ other for one, other in zip(both[:16], both[16:], strict=True))


async def test_every_browser_gets_its_own_secret_in_a_shared_page(site: Site) -> None:
    await site.job()
    async with site.client() as one, site.client() as other:
        await asyncio.gather(one.get("/jobs"), other.get("/jobs"))
        pages = await asyncio.gather(*(client.get("/jobs?q=same") for client in (one, other, one)))
        proofs = [csrf_in(page.text) for page in pages]
        assert not any(CSRF_PLACE in page.text for page in pages)
        assert secret_in(proofs[0]) == secret_in(proofs[2]) != secret_in(proofs[1])
        assert len(set(proofs)) == 3, "a compressed page must not reveal the secret"
        for client, proof in ((one, proofs[0]), (other, proofs[1])):
            form = {"csrf": proof, "job_id": "news", "back": "/jobs"}
            assert (await client.post("/act/pause_job", data=form)).status_code == 303
        foreign = {"csrf": proofs[1], "job_id": "news", "back": "/jobs"}
        assert (await one.post("/act/pause_job", data=foreign)).status_code == 403


async def test_nobody_sees_the_page_of_another_person(site: Site) -> None:
    tokens = [await site.token("read", name) for name in ("anna", "bert")]
    async with site.client(tokens[0]) as anna, site.client(tokens[1]) as bert:
        bert.cookies.set("floodmark_theme", "dark")
        pages = await asyncio.gather(*(client.get("/jobs?q=x") for client in (anna, bert, anna, bert)))
    for page, (name, other, is_dark) in zip(pages, [("anna", "bert", False), ("bert", "anna", True)] * 2, strict=True):
        assert f"<summary>{name} " in page.text
        assert other not in page.text
        assert ('data-theme="dark"' in page.text) == is_dark


async def test_a_page_shows_what_has_changed_before_it_was_asked_for(site: Site) -> None:
    async with site.client() as client:
        for number in range(5):
            await site.job(f"job-{number}")
            # As an open page: it has heard of the change.
            site.live.version += 1
            assert f"job-{number}" in (await client.get("/jobs")).text


async def test_a_request_that_waited_for_its_turn_gets_a_page_that_was_begun_meanwhile() -> None:
    values: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    shared = SharedPage(values, began=10.0, version=7)
    assert shared.is_good_for(12.0, 7), "nothing has happened since"
    assert shared.is_good_for(9.0, 8), "reading began after the request had arrived"
    assert not shared.is_good_for(11.0, 8), "what it has heard of happened after reading began"
    values.set_exception(OSError("away"))
    assert not shared.is_good_for(9.0, 7), "a failure is not shared"


async def test_each_form_of_a_response_has_the_secret() -> None:
    filled = fill_csrf(f"<a>{CSRF_PLACE}</a><b>{CSRF_PLACE}</b>", b"0123456789abcdef")
    assert CSRF_PLACE not in filled
    first = filled.removeprefix("<a>").partition("<")[0]
    assert secret_in(first) == b"0123456789abcdef"
