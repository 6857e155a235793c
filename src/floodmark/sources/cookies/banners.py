"""Consent banners: how one is found, and how consent is given or refused on it.

Makers that are known (`managers.toml`) come before any other banner, which has to show by its text and its place that
it is about consent. Every frame is searched, and every shadow root that `witness.js` has seen.
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
Role = Literal["accept", "reject", "settings", "save"]

_CLICK_MS, _ASK_SECONDS = 3000.0, 5.0
_MOST_FRAMES = 50
_LAYER_SECONDS, _GOING_SECONDS, _POLL_SECONDS = 6.0, 1.5, 0.25
_MOST_SWITCHES = 200


class Button(Struct, frozen=True):
    """A button that was found, not yet pressed."""

    text: str
    handle: "ElementHandle"
    found: "JSHandle | None" = None
    """Holds the switches to turn off before."""


class BannerView(Struct, frozen=True, kw_only=True):
    """What a page showed of consent at one moment."""

    name: str = ""
    """Whose banner it is; empty if there is none."""
    how: Literal["", "maker", "words", "selector"] = ""
    buttons: dict[Role, Button] = {}
    loaded: tuple[str, ...] = ()
    """Known consent managers that are part of the page, shown or not."""

    @property
    def is_banner(self) -> bool:
        """Whether there is a banner."""
        return bool(self.buttons)

    def way(self, kind: Kind) -> tuple[Role, ...]:
        """Return the buttons that give or refuse consent, in the order of pressing; empty if there is no way."""
        if kind in self.buttons:
            return (kind,)
        if kind == "reject" and "save" in self.buttons:
            return ("save",)
        return ("settings",) if kind == "reject" and "settings" in self.buttons else ()


async def look_for(page: "Page", token: str = "", *, layer: Literal[1, 2] = 1) -> BannerView:
    """Return the banner of a page: of a known maker if there is one, else the first found by its words."""
    found: list[BannerView] = []
    loaded: dict[str, None] = {}
    for frame in page.frames[:_MOST_FRAMES]:
        seen = await _unless_gone(_look_in(frame, token, layer))
        if seen is None:
            continue
        loaded.update(dict.fromkeys(seen.loaded))
        if seen.is_banner:
            found.append(seen)
            if seen.how == "maker":
                break
    best = min(found, key=lambda seen: seen.how != "maker", default=BannerView())
    return replace(best, loaded=tuple(loaded))


async def select(page: "Page", kind: Kind, selector: str) -> BannerView:
    """Return what a selector of the job selects; one that is not visible is no button that a visitor could press."""
    for frame in page.frames[:_MOST_FRAMES]:
        for element in (await _unless_gone(frame.query_selector_all(selector)) or [])[:20]:
            if await _unless_gone(element.is_visible()):
                text = await _unless_gone(element.evaluate("e => (e.innerText || e.value || '').trim()"))
                button = Button(str(text or "")[:100], element)
                return BannerView(name=f"by {kind}_selector", how="selector", buttons={kind: button})
    return BannerView()


async def answer(page: "Page", seen: BannerView, kind: Kind, token: str = "") -> Banner:
    """Give or refuse consent; without `answered_at` in the result there was no way to."""
    banner = Banner(name=seen.name)
    way = seen.way(kind)
    if not way:
        return banner
    role = way[0]
    if role != "settings":
        return await _decide(page, replace(banner, layer=1), seen, role, token)
    banner = await _press_in(banner, seen, role)
    behind = await _second_layer(page, token)
    way = tuple(role for role in ("reject", "save") if role in behind.buttons)
    if not way:
        return banner
    return await _decide(page, replace(banner, layer=2), behind, way[0], token)


async def _decide(page: "Page", banner: Banner, seen: BannerView, role: Role, token: str) -> Banner:
    """Press the button that makes the choice; once more if the banner does not go away.

    Some makers show their banner before its buttons do anything.
    """
    decided = await _press_in(replace(banner, answered_at=time.time()), seen, role)
    layer: Literal[1, 2] = 2 if banner.layer == 2 else 1
    until = time.monotonic() + _GOING_SECONDS
    again = seen
    while seen.how != "selector" and time.monotonic() < until:
        await asyncio.sleep(_POLL_SECONDS)
        again = await look_for(page, token, layer=layer)
        if again.name != seen.name or role not in again.buttons:
            return decided
    if again is not seen:
        await _press_in(banner, again, role)
    return decided


async def _second_layer(page: "Page", token: str) -> BannerView:
    """Wait for what the settings button opened. A button to reject wins over one that only stores the choices."""
    until = time.monotonic() + _LAYER_SECONDS
    seen = BannerView()
    while time.monotonic() < until:
        await asyncio.sleep(_POLL_SECONDS)
        latest = await look_for(page, token, layer=2)
        if "reject" in latest.buttons:
            return latest
        if "save" in latest.buttons and "save" in seen.buttons:
            # It was there before, so nothing else is on its way.
            return latest
        seen = latest
    return seen


async def _press_in(banner: Banner, seen: BannerView, role: Role) -> Banner:
    button = seen.buttons[role]
    switched = await _switch_off(button) if role == "save" else 0
    await press(button)
    return replace(banner, button=button.text, steps=(*banner.steps, button.text), switched_off=switched)


async def _switch_off(button: Button) -> int:
    """Turn off every switch that is on; return how many there were."""
    if button.found is None:
        return 0
    # By script: the boxes themselves are often invisible, and drawn by something beside them.
    pressed = (
        "(found, most) => { const off = found.off.slice(0, most); for (const e of off) e.click(); return off.length; }"
    )
    return int(await _unless_gone(button.found.evaluate(pressed, _MOST_SWITCHES)) or 0)


async def press(button: Button) -> None:
    """Press it as a visitor would; by its script when something lies over it."""
    from playwright.async_api import Error  # noqa: PLC0415 - only in the browser's process

    try:
        await button.handle.click(timeout=_CLICK_MS)
    except Error:
        await button.handle.evaluate("e => e.click()")


async def _look_in(frame: "Frame", token: str, layer: int) -> BannerView | None:
    framed, is_visible = await _place_of(frame)
    if not is_visible:
        return None
    argument = {
        "layer": layer,
        "table": _table(),
        "framed": framed,
        "token": token,
    }
    handle = await frame.evaluate_handle(_finder(), argument)
    told = await handle.evaluate(_NAMES)
    buttons: dict[Role, Button] = {}
    for role, text in told["texts"].items():
        held = await handle.evaluate_handle("(found, role) => found.buttons[role]", role)
        element = (await held.get_property("element")).as_element()
        if element is not None:
            buttons[role] = Button(str(text)[:100], element, held)
    return BannerView(name=told["name"], how=told["how"], buttons=buttons, loaded=tuple(told["loaded"]))


_NAMES = """found => ({name: found.name, how: found.how, loaded: found.loaded, texts: Object.fromEntries(
  Object.entries(found.buttons).filter(([, button]) => button).map(([role, button]) => [role, button.text]))})"""


_PLACE = """(e, hosts) => {
  const box = e.getBoundingClientRect();
  return {names: Object.entries(hosts).filter(([, host]) => e.matches(host)).map(([name]) => name),
    isVisible: box.width >= 60 && box.height >= 30};
}"""


async def _place_of(frame: "Frame") -> tuple[list[str], bool]:
    """Return the managers whose frame this is, by what its own page says of it, and whether a visitor sees it."""
    if frame.parent_frame is None:
        return [], True
    hosts = {manager.name: manager.host for manager in managers() if manager.inside == "frame"}
    element = await frame.frame_element()
    place = await element.evaluate(_PLACE, hosts)
    if not place["isVisible"]:
        return [], False
    outer, is_visible = await _place_of(frame.parent_frame)
    return [*place["names"], *outer], is_visible


async def _unless_gone(asked: Any) -> Any:
    """The answer of a frame; None if it went away, or may not be asked. Frames come and go."""
    from playwright.async_api import Error  # noqa: PLC0415 - only in the browser's process

    try:
        async with asyncio.timeout(_ASK_SECONDS):
            return await asked
    except TimeoutError:
        return None
    except Error as error:
        if "has been closed" in error.message or "crashed" in error.message:
            raise
        return None


@lru_cache(maxsize=1)
def _table() -> str:
    # As one text: thousands of values one by one cost more than the search itself.
    return msgspec.json.encode({"managers": managers(), "words": words()}).decode()


@lru_cache(maxsize=1)
def _finder() -> str:
    return files(__package__).joinpath("banners.js").read_text(encoding="utf-8")
