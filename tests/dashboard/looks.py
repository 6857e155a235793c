"""How a page looks: accessible in both themes, on a desk and on a phone, without scrolling sideways."""

from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

_SIZES = ((1400, 900), (360, 740))
_SERIOUS = ("serious", "critical")


async def look_at(page: Page) -> None:
    """Check the page that is open, in both themes and two sizes; fail for every serious finding of axe."""
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for width, height in _SIZES:
            await page.set_viewport_size({"width": width, "height": height})
            where = f"{page.url} ({scheme}, {width} px)"
            found = await findings(page)
            assert found == [], "\n".join([where, *found])
            overflow = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert overflow <= 0, f"{where} is {overflow} px too wide"


async def findings(page: Page) -> list[str]:
    """The serious findings of axe, one line each."""
    found: Any = await Axe().run(page, options={"resultTypes": ["violations"]})
    return [
        f"{one['id']}: {one['help']} at {node['target']}: {node['html'][:160]}"
        for one in found.response["violations"]
        if one["impact"] in _SERIOUS
        for node in one["nodes"]
    ]
