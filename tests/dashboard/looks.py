"""How a page looks: accessible in both themes, on a desk and on a phone, without scrolling sideways."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page

_SIZES = ((1400, 900), (360, 740))
_ALL = [(scheme, size) for scheme in ("light", "dark") for size in _SIZES]
# Set by the tests' configuration: all ways with --thorough.
ALWAYS_BRIEF = True
_SERIOUS = ("serious", "critical")
# A size changes what is there, a theme only its colours: in the other theme of a size, only they are examined.
_WHOLE = (("light", _SIZES[0]), ("dark", _SIZES[1]))
_COLOURS = {"type": "rule", "values": ["color-contrast"]}


async def look_at(page: Page, *, is_brief: bool = False, is_whole: bool = True) -> None:
    """Check the page that is open, in both themes and two sizes; fail for every serious finding of axe.

    A brief look is light on a desk and dark on a phone; without `--thorough` every look is brief. One that is not whole
    examines only colours, for a page that shows a part of what was examined before.
    """
    for scheme, (width, height) in _WHOLE if is_brief or ALWAYS_BRIEF else _ALL:
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": height})
        where = f"{page.url} ({scheme}, {width} px)"
        found = await findings(page, is_whole=is_whole and (scheme, (width, height)) in _WHOLE)
        assert found == [], "\n".join([where, *found])
        overflow = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"{where} is {overflow} px too wide"


async def findings(page: Page, *, is_whole: bool = True) -> list[str]:
    """The serious findings of axe, one line each; of its colours, or of everything."""
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"], **({} if is_whole else {"runOnly": _COLOURS})}
    found: list[Any] = await page.evaluate("async (options) => (await axe.run(options)).violations", options)
    return [
        f"{one['id']}: {one['help']} at {node['target']}: {node['html'][:160]}"
        for one in found
        if one["impact"] in _SERIOUS
        for node in one["nodes"]
    ]
