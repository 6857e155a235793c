"""The menu: every entry leads to a page, for those who see it, and every key opens one page."""

import re

import pytest

from dashboard.site import Site
from floodmark.dashboard.navigation import NAVIGATION
from floodmark.model.tokens import ROLES

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.release
async def test_every_entry_leads_to_a_page_for_those_who_see_it(site: Site) -> None:
    for role in ROLES:
        async with site.client(await site.token(role)) as client:
            shown = (await client.get("/")).text
            links = re.findall(r'<li><a href="([^"]+)" data-go', shown)
            assert len(links) >= 2
            for link in links:
                answer = await client.get(link)
                assert answer.status_code == 200, f"{role} at {link}"
                assert 'aria-current="page"' in answer.text, link


async def test_every_key_opens_one_page() -> None:
    keys = [link.key for group in NAVIGATION for link in group.links if link.key]
    assert sorted(keys) == sorted(set(keys))
