"""How a page looks: accessible in both themes, on a desk and on a phone, without scrolling sideways."""

from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

_SIZES = ((1400, 900), (360, 740))
_ALL = [(scheme, size) for scheme in ("light", "dark") for size in _SIZES]
# Set by the tests' configuration: all ways with --thorough, as in CI.
ALWAYS_BRIEF = True
_SERIOUS = ("serious", "critical")


async def look_at(page: Page, *, is_brief: bool = False) -> None:
    """Check the page that is open, in both themes and two sizes; fail for every serious finding of axe.

    A brief look is light on a desk and dark on a phone: sizes change what is there, themes only its colours. Without
    `--thorough` every look is brief.
    """
    brief = zip(("light", "dark"), _SIZES, strict=True)
    for scheme, (width, height) in brief if is_brief or ALWAYS_BRIEF else _ALL:
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
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
