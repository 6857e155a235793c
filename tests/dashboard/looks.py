"""How a page looks: accessible in both themes, on a desk and on a phone, without scrolling sideways."""

from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page

_DESK, _PHONE = (1400, 900), (360, 740)
_ALL = [(scheme, size) for scheme in ("light", "dark") for size in (_DESK, _PHONE)]
# A size changes what is there, a theme only its colours: in the other theme of a size, only they are examined.
_WHOLE = (("light", _DESK), ("dark", _PHONE))
# Set by the tests' configuration: with --release.
IN_ALL_WAYS = False
_SERIOUS = ("serious", "critical")
_COLOURS = {"type": "rule", "values": ["color-contrast"]}
_STANDARD = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}


async def look_at(page: Page, *, is_brief: bool = False) -> None:
    """Check the page that is open; fail for every serious finding of axe, and if it is wider than the window.

    With `--release` in both themes and two sizes; a brief look is light on a desk and dark on a phone. Without it axe
    examines the page in one of these two, which its path decides, and a brief look checks only the widths.
    """
    if IN_ALL_WAYS:
        ways, examined = (_WHOLE if is_brief else _ALL), _ALL
    else:
        ways, examined = _WHOLE, [] if is_brief else [_WHOLE[crc32(urlsplit(page.url).path.encode()) % 2]]
    for scheme, (width, height) in ways:
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
        await page.set_viewport_size({"width": width, "height": height})
        where = f"{page.url} ({scheme}, {width} px)"
        if (scheme, (width, height)) in examined:
            found = await findings(page, is_whole=(scheme, (width, height)) in _WHOLE)
            assert found == [], "\n".join([where, *found])
        overflow = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"{where} is {overflow} px too wide"


async def findings(page: Page, *, is_whole: bool = True) -> list[str]:
    """The serious findings of axe, one line each; of its colours, or of everything."""
    # A region that is being loaded is pale on purpose.
    await page.wait_for_selector("[aria-busy=true]", state="detached")
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(AXE_SCRIPT)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if not (is_whole and IN_ALL_WAYS):
        options["runOnly"] = _STANDARD if is_whole else _COLOURS
    found: list[Any] = await page.evaluate("async (options) => (await axe.run(options)).violations", options)
    return [
        f"{one['id']}: {one['help']} at {node['target']}: {node['html'][:160]}"
        for one in found
        if one["impact"] in _SERIOUS
        for node in one["nodes"]
    ]
