"""The completeness ledger of a target: what was read completely, which gaps exist, and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

Axis = Literal["id", "time", "crawl"]
"""The order of a source: numbers of messages, times in seconds since 1970, or numbers of crawls."""
GapKind = Literal["unread", "unseen", "cut", "refused", "bound", "lost"]
Place = Annotated[int | None, Meta(description="A number of the axis, included; null if the gap has no place in it.")]


class Trouble(Struct, frozen=True, kw_only=True, gc=False):
    """Something that a run could not read, and that has no place in the order of the source."""

    kind: GapKind
    reason: str
    count: int = 1


class Coverage(Struct, frozen=True, kw_only=True, gc=False):
    """What a batch says about the completeness of its target. All intervals include both ends.

    `ranges` were read completely. `unseen` are numbers within them that the source did not return. `checked` were asked
    for one by one, and of those the source said that `deleted` do not exist any more. `lost` cannot be read any more.
    `troubles` replace all earlier ones of the same kinds; `cleared` are kinds of which there are none any more.
    `begins_at` and `ends_at` are the times of the oldest and the newest item in the ranges. When `scope` changes, such
    as the number of a channel, the ledger starts again.
    """

    axis: Axis = "id"
    ranges: Sequence[tuple[int, int]] = ()
    unseen: Sequence[tuple[int, int]] = ()
    checked: Sequence[tuple[int, int]] = ()
    deleted: Sequence[tuple[int, int]] = ()
    lost: Sequence[tuple[int, int]] = ()
    troubles: Sequence[Trouble] = ()
    cleared: Sequence[GapKind] = ()
    begins_at: datetime | None = None
    ends_at: datetime | None = None
    scope: str = ""


class CompleteRange(Struct, frozen=True, kw_only=True):
    """A range that was read completely."""

    first: Annotated[int, Meta(description="Its first number, on the axis of the target.")]
    last: Annotated[int, Meta(description="Its last number, included.")]
    since: Annotated[datetime, Meta(description="When it was first known to be complete, or the oldest part of it.")]
    begins_at: Annotated[datetime | None, Meta(description="The time of its oldest item, if that is known.")] = None
    ends_at: Annotated[datetime | None, Meta(description="The time of its newest item, if that is known.")] = None


class Gap(Struct, frozen=True, kw_only=True):
    """A part of a target that was not read, or that the source did not return."""

    kind: Annotated[
        GapKind,
        Meta(
            description="`unread`: between two complete ranges. `unseen`: numbers that the source did not return."
            " `cut`: a feed had dropped entries before they were read. `refused`: pages that could not be read."
            " `bound`: a limit of the job was reached. `lost`: it cannot be read any more."
        ),
    ]
    since: Annotated[datetime, Meta(description="When the gap was found.")]
    first: Place = None
    last: Place = None
    count: Annotated[int, Meta(description="How many numbers or pages are missing; at most, if it is not exact.")] = 1
    reason: Annotated[str, Meta(description="Why it exists.")] = ""


class DeletedRange(Struct, frozen=True, kw_only=True):
    """Numbers that do not exist at the source any more. `count` of those from `first` to `last`."""

    first: int
    last: int
    count: int


class Ledger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger of a target, as it is stored."""

    axis: Axis = "id"
    scope: str = ""
    complete: tuple[CompleteRange, ...] = ()
    gaps: tuple[Gap, ...] = ()
    """Gaps other than those between the complete ranges."""
    deleted: tuple[DeletedRange, ...] = ()


class TargetCompleteness(Struct, frozen=True, kw_only=True):
    """What is known about the completeness of a target."""

    stream: str
    source: str
    job: Annotated[str | None, Meta(description="A job that collects it; null if it was removed.")]
    axis: Annotated[Axis, Meta(description="What the numbers of ranges and gaps are.")]
    complete: tuple[CompleteRange, ...]
    gaps: tuple[Gap, ...]
    deleted: Annotated[int, Meta(description="How many numbers do not exist at the source any more.")]
    checked_at: Annotated[datetime | None, Meta(description="When the target was last read to its end.")]
    updated_at: datetime
    summary: Annotated[str, Meta(description="The ledger in one sentence.")]
