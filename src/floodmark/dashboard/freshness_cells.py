"""The freshness map of the overview. Pure; equal maps are drawn once for all viewers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from urllib.parse import quote

from markupsafe import Markup
from msgspec import Struct

from floodmark.model.durations import format_duration
from floodmark.model.freshness_map import FreshnessLevel, FreshnessMap, MapCell, MapGroup

from .cells import Cell, cells
from .regions import version_of

NAMES: Mapping[FreshnessLevel, str] = {
    FreshnessLevel.FRESH: "fresh",
    FreshnessLevel.BEHIND: "behind",
    FreshnessLevel.LATE: "late",
    FreshnessLevel.VERY_LATE: "very late",
    FreshnessLevel.NEW: "never checked",
    FreshnessLevel.OFF: "off",
}
_ORDER = {level: n for n, level in enumerate(("very_late", "late", "behind", "new", "fresh", "off"))}
NO_TAG = "without a tag"


class ShownGroup(Struct, frozen=True):
    """One part of the map: its name, how many sources have each level, and its squares."""

    name: str
    jobs: int
    levels: Sequence[tuple[FreshnessLevel, int]]
    squares: Markup
    hidden: int


class ShownMap(Struct, frozen=True):
    """The map, and its version."""

    groups: Sequence[ShownGroup]
    version: str


def draw_map(found: FreshnessMap, by: str, prefix: str) -> ShownMap:
    """Return the map, by kind of source or by tag. Links begin with `prefix`."""
    return _draw(_Drawn(found, by, prefix))


class _Drawn:
    """What is drawn. Two maps of the same measurement are equal."""

    def __init__(self, found: FreshnessMap, by: str, prefix: str) -> None:
        self.found, self.by, self.prefix = found, by, prefix
        # With the cells, not only their time: names may be masked for some callers.
        self._key = (found.measured_at, tuple(found.cells), by, prefix)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Drawn) and self._key == other._key


@lru_cache(maxsize=16)
def _draw(drawn: _Drawn) -> ShownMap:
    found = drawn.found
    by_group: dict[str, list[MapCell]] = {}
    for cell in found.cells:
        name = cell.source if drawn.by == "kind" else (cell.tags[0] if cell.tags else NO_TAG)
        by_group.setdefault(name, []).append(cell)
    groups = found.kinds if drawn.by == "kind" else _tags(found, by_group)
    shown = [_group(group, by_group.get(group.name, []), found, drawn.prefix) for group in groups]
    return ShownMap(shown, version_of(found.measured_at, *shown))


def _tags(found: FreshnessMap, by_group: Mapping[str, Sequence[MapCell]]) -> list[MapGroup]:
    """Return the tags with cells. A source with several tags is drawn with the first one, and counted there."""
    names = [group.name for group in found.tags if group.name in by_group]
    rest = [name for name in by_group if name not in set(names)]
    return [
        MapGroup(name=name, jobs=len(by_group[name]), levels=_count(by_group[name]))
        for name in [*names, *sorted(rest, key=lambda name: name == NO_TAG)]
    ]


def _count(found: Sequence[MapCell]) -> dict[FreshnessLevel, int]:
    return {level: sum(cell.level is level for cell in found) for level in FreshnessLevel}


def _group(group: MapGroup, found: Sequence[MapCell], whole: FreshnessMap, prefix: str) -> ShownGroup:
    # By name, so that a source keeps its place while the worst ones are shown.
    ordered = sorted(found, key=lambda cell: (_ORDER[cell.level], cell.name))
    squares = cells([_cell(cell, whole.measured_at, prefix) for cell in ordered])
    levels = [(level, group.levels[level]) for level in FreshnessLevel if group.levels.get(level)]
    return ShownGroup(group.name, group.jobs, levels, squares, max(0, group.jobs - len(found)))


def _cell(cell: MapCell, now: datetime | None, prefix: str) -> Cell:
    return Cell(cell.level.value, describe_cell(cell, now), f"{prefix}/jobs/{quote(cell.job_id, safe='')}", cell.job_id)


def describe_cell(cell: MapCell, now: datetime | None) -> str:
    """Return the name of a source and how late it is."""
    name = cell.name if len(cell.name) <= 80 else f"{cell.name[:79]}…"
    if cell.level is FreshnessLevel.OFF:
        return f"{name}: off, or without a schedule"
    usual = (
        "" if not cell.usual_seconds else f", usually every {format_duration(timedelta(seconds=cell.usual_seconds))}"
    )
    if cell.checked_at is None or now is None:
        return f"{name}: {NAMES[cell.level]}, not checked yet{usual}"
    ago = format_duration(max(timedelta(), now - cell.checked_at))
    return f"{name}: {NAMES[cell.level]}, last checked {ago} ago{usual}"
