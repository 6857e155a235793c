"""Time zones by their IANA names."""

from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from floodmark.errors import InvalidInput


@cache
def _names() -> frozenset[str]:
    # Some systems list "localtime", which is a different zone on each machine.
    return frozenset(available_timezones() - {"localtime"})


def zone_of(name: str) -> ZoneInfo:
    """Return the zone with an IANA name. An unknown name is refused with similar names as the hint."""
    # Listing all zones reads hundreds of files, and most jobs are in UTC.
    if name != "UTC" and name not in _names():
        raise InvalidInput(f"unknown time zone {name[:60]!r}", hint=_closest(name))
    return ZoneInfo(name)


def _closest(name: str) -> str:
    wanted = name[:60].strip().lower().replace(" ", "_")
    # "berlin" should find Europe/Berlin, so the city alone is compared as well.
    known = {full.lower(): full for full in sorted(_names())}
    cities = {full.rpartition("/")[2].lower(): full for full in sorted(_names())}
    by_city = [cities[wanted]] if wanted in cities else []
    close = by_city + [known[match] for match in get_close_matches(wanted, known, n=3)]
    close += [cities[match] for match in get_close_matches(wanted, cities, n=3, cutoff=0.75)]
    if not close:
        return "use an IANA name such as Europe/Berlin or UTC"
    return "did you mean " + ", ".join(list(dict.fromkeys(close))[:3]) + "?"
