"""Finds consent banners, and gives or refuses consent on them.

Banners of known consent managers (`managers.toml`) take precedence over those recognised by text and position. All
frames are searched, and all shadow roots that `observer.js` has recorded.
"""

import asyncio
import time
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .findings import Banner
from .managers import managers, words

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Frame, JSHandle, Page

Kind = Literal["accept", "reject"]
KINDS: tuple[Kind, ...] = ("accept", "reject")
Role = Literal["accept", "reject", "settings", "save"]

_CLICK_MS, _FRAME_SECONDS = 3000.0, 5.0
_MAX_FRAMES = 50
_LAYER_SECONDS, _CLOSING_SECONDS, _POLL_SECONDS = 6.0, 1.5, 0.25
_MAX_SWITCHES = 200


class Button(Struct, frozen=True):
    """A button of a banner."""

    text: str
    handle: "ElementHandle"
    found: "JSHandle | None" = None
    """Holds the switches to turn off first."""


class BannerView(Struct, frozen=True, kw_only=True):
    """The consent banner of a page at one moment."""

    name: str = ""
    """Its consent manager, or how it was recognised; empty if there is no banner."""
    how: Literal["", "maker", "words", "selector"] = ""
    buttons: dict[Role, Button] = {}
    loaded: tuple[str, ...] = ()
    """Known consent managers that the page has loaded, whether visible or not."""

    @property
    def is_banner(self) -> bool:
        """Return whether there is a banner."""
        return bool(self.buttons)

    def way(self, kind: Kind) -> tuple[Role, ...]:
        """Return the button to press first to give or refuse consent; empty if there is none."""
        if kind in self.buttons:
            return (kind,)
        if kind == "reject" and "save" in self.buttons:
            return ("save",)
        return ("settings",) if kind == "reject" and "settings" in self.buttons else ()


async def find_banner(page: "Page", token: str = "", *, layer: Literal[1, 2] = 1) -> BannerView:
    """Return the banner of a page: of a known consent manager, or else the first one recognised by its words."""
    found: list[BannerView] = []
    loaded: dict[str, None] = {}
    for frame in page.frames[:_MAX_FRAMES]:
        seen = await _ask(_find_in_frame(frame, token, layer))
        if seen is None:
            continue
        loaded.update(dict.fromkeys(seen.loaded))
        if seen.is_banner:
            found.append(seen)
            if seen.how == "maker":
                break
    best = min(found, key=lambda seen: seen.how != "maker", default=BannerView())
    return replace(best, loaded=tuple(loaded))


async def find_by_selector(page: "Page", kind: Kind, selector: str) -> BannerView:
    """Return the first visible button that matches the job's selector."""
    for frame in page.frames[:_MAX_FRAMES]:
        for element in (await _ask(frame.query_selector_all(selector)) or [])[:20]:
            if await _ask(element.is_visible()):
                text = await _ask(element.evaluate("e => (e.innerText || e.value || '').trim()"))
                button = Button(str(text or "")[:100], element)
                return BannerView(name=f"by {kind}_selector", how="selector", buttons={kind: button})
    return BannerView()


async def answer_banner(page: "Page", seen: BannerView, kind: Kind, token: str = "") -> Banner:
    """Give or refuse consent; the result has no `answered_at` if that was not possible."""
    banner = Banner(name=seen.name)
    way = seen.way(kind)
    if not way:
        return banner
    role = way[0]
    if role != "settings":
        return await _decide(page, replace(banner, layer=1), seen, role, token)
    banner, settings = await _open_settings(page, banner, seen, token)
    way = _ways_out(settings)
    if not way:
        return banner
    return await _decide(page, replace(banner, layer=2), settings, way[0], token)


async def _decide(page: "Page", banner: Banner, seen: BannerView, role: Role, token: str) -> Banner:
    """Press the button that makes the choice, and once more if the banner stays.

    Some consent managers show their banner before its buttons work.
    """
    decided = await _press(replace(banner, answered_at=time.time()), seen, role)
    layer: Literal[1, 2] = 2 if banner.layer == 2 else 1
    until = time.monotonic() + _CLOSING_SECONDS
    again = seen
    while seen.how != "selector" and time.monotonic() < until:
        await asyncio.sleep(_POLL_SECONDS)
        again = await find_banner(page, token, layer=layer)
        if again.name != seen.name or role not in again.buttons:
            return decided
    if again is not seen:
        await _press(banner, again, role)
    return decided


async def _open_settings(page: "Page", banner: Banner, seen: BannerView, token: str) -> tuple[Banner, BannerView]:
    """Press the button that opens the settings, and once more if they stay closed: it may not have worked yet."""
    banner = await _press(banner, seen, "settings")
    settings = await _wait_for_settings(page, token)
    if not _ways_out(settings):
        again = await find_banner(page, token)
        if again.name == seen.name and "settings" in again.buttons:
            banner = await _press(banner, again, "settings")
            settings = await _wait_for_settings(page, token)
    return banner, settings


def _ways_out(settings: BannerView) -> tuple[Role, ...]:
    roles: tuple[Role, ...] = ("reject", "save")
    return tuple(role for role in roles if role in settings.buttons)


async def _wait_for_settings(page: "Page", token: str) -> BannerView:
    """Wait for the settings to open. A button to reject takes precedence over one that saves the choices."""
    until = time.monotonic() + _LAYER_SECONDS
    seen = BannerView()
    while time.monotonic() < until:
        await asyncio.sleep(_POLL_SECONDS)
        latest = await find_banner(page, token, layer=2)
        if "reject" in latest.buttons:
            return latest
        if "save" in latest.buttons and "save" in seen.buttons:
            # It was there in the last poll as well, so a button to reject is not expected.
            return latest
        seen = latest
    return seen


async def _press(banner: Banner, seen: BannerView, role: Role) -> Banner:
    """Press a button as a visitor would, or by script if another element covers it."""
    from playwright.async_api import Error  # noqa: PLC0415 - only in the browser's process

    button = seen.buttons[role]
    switched = await _switch_off(button) if role == "save" else 0
    try:
        await button.handle.click(timeout=_CLICK_MS)
    except Error:
        await button.handle.evaluate("e => e.click()")
    return replace(banner, button=button.text, steps=(*banner.steps, button.text), switched_off=switched)


async def _switch_off(button: Button) -> int:
    """Turn off every switch that is on and return their number."""
    if button.found is None:
        return 0
    # By script: the checkboxes are often invisible, with another element drawn in their place.
    pressed = (
        "(found, most) => { const off = found.off.slice(0, most); for (const e of off) e.click(); return off.length; }"
    )
    return int(await _ask(button.found.evaluate(pressed, _MAX_SWITCHES)) or 0)


async def _find_in_frame(frame: "Frame", token: str, layer: int) -> BannerView | None:
    framed, is_visible = await _frame_place(frame)
    if not is_visible:
        return None
    argument = {"layer": layer, "table": _table(), "framed": framed, "token": token}
    handle = await frame.evaluate_handle(_finder_script(), argument)
    found = await handle.evaluate(_DESCRIBE)
    buttons: dict[Role, Button] = {}
    for role, text in found["texts"].items():
        held = await handle.evaluate_handle("(found, role) => found.buttons[role]", role)
        element = (await held.get_property("element")).as_element()
        if element is not None:
            buttons[role] = Button(str(text)[:100], element, held)
    return BannerView(name=found["name"], how=found["how"], buttons=buttons, loaded=tuple(found["loaded"]))


_DESCRIBE = """found => ({name: found.name, how: found.how, loaded: found.loaded, texts: Object.fromEntries(
  Object.entries(found.buttons).filter(([, button]) => button).map(([role, button]) => [role, button.text]))})"""


_PLACE = """(e, hosts) => {
  const box = e.getBoundingClientRect();
  return {names: Object.entries(hosts).filter(([, host]) => e.matches(host)).map(([name]) => name),
    isVisible: box.width >= 60 && box.height >= 30};
}"""


async def _frame_place(frame: "Frame") -> tuple[list[str], bool]:
    """Return the consent managers that this frame belongs to, by its element, and whether it is visible."""
    if frame.parent_frame is None:
        return [], True
    hosts = {manager.name: manager.host for manager in managers() if manager.inside == "frame"}
    element = await frame.frame_element()
    place = await element.evaluate(_PLACE, hosts)
    if not place["isVisible"]:
        return [], False
    outer, is_visible = await _frame_place(frame.parent_frame)
    return [*place["names"], *outer], is_visible


async def _ask(call: Any) -> Any:
    """Await a call to a frame; return None if the frame was removed or does not respond."""
    from playwright.async_api import Error  # noqa: PLC0415 - only in the browser's process

    try:
        async with asyncio.timeout(_FRAME_SECONDS):
            return await call
    except TimeoutError:
        return None
    except Error as error:
        if "has been closed" in error.message or "crashed" in error.message:
            raise
        return None


@lru_cache(maxsize=1)
def _table() -> str:
    # As one text: passing thousands of values would take longer than the search.
    return msgspec.json.encode({"managers": managers(), "words": words()}).decode()


@lru_cache(maxsize=1)
def _finder_script() -> str:
    return files(__package__).joinpath("banners.js").read_text(encoding="utf-8")
