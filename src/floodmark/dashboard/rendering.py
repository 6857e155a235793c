"""Templates and their filters. Every value is escaped unless it is `Markup`."""

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from floodmark.model.durations import format_duration
from floodmark.model.job import NEVER
from floodmark.triggers.parsing import words_of
from floodmark.version import __version__

from . import charts
from .activity import activity_charts, item_calendar
from .assets import asset_name
from .csrf import CSRF_PLACE
from .freshness_cells import NAMES, draw_map
from .item_content import describe_untitled
from .navigation import NAVIGATION, has_page
from .regions import has_region
from .view import zone_named

_LONGEST_TEXT = 20_000
_SIZES = ("B", "KB", "MB", "GB", "TB")
_LONG_WORD, _SPACES, _JOINT = 24, re.compile(r"(\s+)"), re.compile(r"(?<=[:/.])(?=\w)")
_UNIT = re.compile(r"(?<=\d) (?=(?:s|min|h|d)\b)")


@cache
def environment() -> Environment:
    """Return the templates. They are compiled once per process."""
    made = Environment(
        loader=PackageLoader("floodmark.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "activity_charts": activity_charts,
        "draw_map": draw_map,
        "item_calendar": item_calendar,
        "level_names": NAMES,
        "has_region": has_region,
    }
    made.globals["describe_untitled"] = describe_untitled
    made.globals |= {"asset": asset_name, "charts": charts, "version": __version__, "csrf_place": CSRF_PLACE}
    made.globals |= {"navigation": NAVIGATION, "has_page": has_page, "words_of": words_of, "zone_named": zone_named}
    made.filters |= {
        "time": format_time,
        "countdown": format_countdown,
        "exact": format_exact,
        "duration": _duration,
        "count": format_count,
        "size": format_size,
        "json": format_json,
        "cut": cut,
        "breakable": mark_breaks,
        "joined": join_units,
        "plain": format_plain,
        "pair": lambda value: (value, value),
        "segment": lambda text: quote(str(text), safe=""),
        "weblink": web_link,
    }
    return made


def render(template: str, **context: Any) -> str:
    """Render a template."""
    return environment().get_template(template).render(context)


@pass_context
def format_time(context: Context, moment: datetime | None, never: str = "never") -> Markup:
    """Return a `<time>` with the distance to now, and the exact time as its title. The script keeps it current."""
    if moment is None or moment == NEVER:
        return Markup("<span class=muted>{}</span>").format(never)
    view = context["view"]
    text = relative(moment, view.now)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(_iso(moment), exact(moment, view.zone), text)


@pass_context
def format_countdown(context: Context, moment: datetime | None, never: str = "-") -> Markup:
    """Return a `<time>` that counts down to a moment, and then says `now`."""
    shown = format_time(context, moment, never)
    return Markup(str(shown).replace("<time ", "<time data-countdown ", 1))  # noqa: S704 - made by `format_time`


@pass_context
def format_exact(context: Context, moment: datetime | None, zone: Any = None) -> str:
    """Return the exact time, in the zone of the viewer or in another one."""
    return "-" if moment is None or moment == NEVER else exact(moment, zone or context["view"].zone)


def relative(moment: datetime, now: datetime) -> str:
    """Return "in 14 min", "3 h 5 min ago" or "now"."""
    away = moment - now
    if abs(away) < timedelta(seconds=1):
        return "now"
    return f"in {format_duration(away)}" if away > timedelta() else f"{format_duration(-away)} ago"


def exact(moment: datetime, zone: Any) -> str:
    """Return a time with its zone: "2026-06-01 14:06:40 CEST"."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _duration(value: timedelta | float | None) -> str:
    if value is None:
        return "-"
    return format_duration(value if isinstance(value, timedelta) else timedelta(seconds=value))


def format_count(value: float | None) -> str:
    """Return a number with separated thousands, as everywhere else: 4,812,000."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def format_size(value: float | None) -> str:
    """Return a number of bytes: "4.8 MB"."""
    if value is None:
        return "-"
    for unit in _SIZES:
        if abs(value) < 1000 or unit == _SIZES[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def format_json(value: Any) -> str:
    """Return a value as indented JSON, cut after some thousand characters."""
    return cut(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), _LONGEST_TEXT)


def format_plain(value: Any) -> str:
    """Return a value on one line: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def cut(text: Any, most: int = 200) -> str:
    """Return the beginning of a text, with an ellipsis if it is longer."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def mark_breaks(text: str) -> Markup:
    """Return a text whose long words, such as `telegram:reader:messages.getHistory`, may be broken at their joints."""
    pieces = (_JOINT.split(piece) if len(piece) >= _LONG_WORD else [piece] for piece in _SPACES.split(text))
    return Markup("").join(Markup("<wbr>").join(piece) for piece in pieces)


def join_units(text: str) -> str:
    """Return a text whose numbers stay on one line with their units."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def web_link(url: Any, text: str | None = None) -> Markup:
    """Return a link to another site, or only its text if it is not http or https."""
    address, shown = str(url), cut(text or url, 120)
    try:
        is_web = urlsplit(address).scheme in ("http", "https")
    except ValueError:
        is_web = False
    if not is_web:
        return escape(shown)
    return Markup('<a href="{}" rel="noopener noreferrer" target="_blank" dir="auto">{}</a>').format(address, shown)
