"""The freshness map: how late each source is for its own rhythm."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct


class FreshnessLevel(StrEnum):
    """How late a source is, compared with the usual time between two runs of its job."""

    FRESH = "fresh"
    BEHIND = "behind"
    LATE = "late"
    VERY_LATE = "very_late"
    NEW = "new"
    OFF = "off"


class MapGroup(Struct, frozen=True, kw_only=True):
    """The sources of one kind, or with one tag."""

    name: str
    jobs: int
    levels: Annotated[Mapping[FreshnessLevel, int], Meta(description="How many of them have each level.")]


class MapCell(Struct, frozen=True, kw_only=True):
    """One source."""

    job_id: str
    name: str
    source: Annotated[str, Meta(description="Kind of source.", examples=["telegram"])]
    tags: tuple[str, ...]
    level: FreshnessLevel
    checked_at: Annotated[datetime | None, Meta(description="When it was last read to its end; null if never.")]
    usual_seconds: Annotated[float | None, Meta(description="The usual time between two runs; null if not known.")]


class FreshnessMap(Struct, frozen=True, kw_only=True):
    """How late sources are for their own rhythm, as the leader last measured it."""

    measured_at: Annotated[datetime | None, Meta(description="Null if it was not measured yet.")] = None
    jobs: Annotated[int, Meta(description="The number of jobs.")] = 0
    kinds: Annotated[list[MapGroup], Meta(description="By kind of source; at most 100.")] = []
    tags: Annotated[
        list[MapGroup], Meta(description="By tag, those with the most late sources first; at most 50.")
    ] = []
    cells: Annotated[list[MapCell], Meta(description="The latest sources, the worst first; at most 600.")] = []
