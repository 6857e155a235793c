"""Merge what batches say about completeness into the ledger of a target, and find its gaps. Pure.

The ledger is bounded: intervals that touch become one, and beyond a number of intervals it claims less. A complete
range is dropped then, and near gaps become one gap: it never claims that something is complete that was not read.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from floodmark.model.completeness import Axis, CompleteRange, Coverage, DeletedRange, Gap, GapKind, Ledger
from floodmark.rules.intervals import Interval, count, intersect, spaces, subtract, union

MOST_RANGES, MOST_GAPS, MOST_TROUBLES = 100, 100, 20
# Numbers that are missing at most this far apart are one gap: one request asks for so many.
NEAR = 200
_MOST_REASON = 300

_UNSEEN = "the source did not return these numbers: they were deleted, or never existed"
_BETWEEN: dict[Axis, tuple[GapKind, str]] = {
    "id": ("unread", "never read: it is between two ranges that were read"),
    "crawl": ("unread", "never read: it is between two crawls"),
    "time": ("cut", "the oldest entry of a poll was newer than the newest one before: entries between may be missing"),
}
_LOST = "the source does not have it any more"

ACTIONS: dict[GapKind, str] = {
    "unread": "read it: floodmark gaps {job} --fill",
    "unseen": "ask for these numbers: floodmark gaps {job} --fill",
    "cut": "read what is still there: floodmark gaps {job} --fill; collect more often: floodmark edit {job} --every 5m",
    "refused": "try these pages again: floodmark gaps {job} --fill",
    "bound": "raise the limit of the job: floodmark edit {job}",
    "lost": "nothing: it cannot be obtained from the source any more",
}
FILLABLE: frozenset[GapKind] = frozenset({"unread", "unseen", "cut", "refused"})


def merge_coverage(ledger: Ledger | None, coverage: Coverage, now: datetime) -> Ledger:
    """Return the ledger after a batch was stored."""
    if ledger is None or (ledger.axis, ledger.scope) != (coverage.axis, coverage.scope):
        ledger = Ledger(axis=coverage.axis, scope=coverage.scope)
    known = [(one.first, one.last) for one in ledger.complete]
    # Numbers that were known before are in the ledger already, or were deleted after they had been collected.
    unseen = [
        Gap(kind="unseen", first=first, last=last, count=last - first + 1, since=now, reason=_UNSEEN)
        for first, last in subtract(coverage.unseen, known)
    ]
    complete = _add_ranges(ledger.complete, coverage, now)
    gaps = [
        *_join([*_check(_of(ledger.gaps, "unseen"), coverage.checked), *unseen], apart=NEAR),
        *_lose(ledger, complete, coverage.lost, now),
        *_replace_troubles(ledger.gaps, coverage, now),
    ]
    return replace(
        ledger,
        complete=tuple(complete),
        gaps=tuple(gaps),
        deleted=_add_deleted(ledger.deleted, coverage.deleted),
    )


def find_gaps(ledger: Ledger) -> list[Gap]:
    """Return all gaps, in order of their places; those without a place last."""
    kind, reason = _BETWEEN[ledger.axis]
    known = {(one.first, one.last): one for one in ledger.complete}
    lost = [_place(gap) for gap in _of(ledger.gaps, "lost")]
    between = [
        Gap(
            kind=kind,
            first=first,
            last=last,
            count=last - first + 1,
            since=_found_at(known, first, last),
            reason=reason,
        )
        for first, last in subtract(spaces(known), lost)
    ]
    placed = [gap for gap in ledger.gaps if gap.first is not None]
    return [
        *sorted([*between, *placed], key=lambda gap: gap.first or 0),
        *(gap for gap in ledger.gaps if gap.first is None),
    ]


def seconds_of(moment: datetime) -> int:
    """Return a time as a number of the axis `time`."""
    return int(moment.timestamp() // 1)


def moment_of(place: int) -> datetime | None:
    """Return the time of a number of the axis `time`; None if it is outside of all times."""
    try:
        return datetime.fromtimestamp(place, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def describe_place(axis: Axis, gap: Gap) -> str:
    """Return where a gap is, in words."""
    if gap.first is None or gap.last is None:
        return "-"
    if axis == "time":
        begin, end = moment_of(gap.first), moment_of(gap.last)
        return f"{_time_text(begin)} to {_time_text(end)}"
    return f"{gap.first}" if gap.first == gap.last else f"{gap.first} to {gap.last}"


def summarise(ledger: Ledger, checked_at: datetime | None) -> str:
    """Return the ledger in one sentence, as in `complete from 2024-01-03 to now, 2 gaps: 1 unseen, 1 cut`."""
    gaps = find_gaps(ledger)
    if not ledger.complete:
        known = "nothing is known to be complete"
    else:
        oldest = ledger.complete[0]
        begin = f"{oldest.begins_at:%Y-%m-%d}" if oldest.begins_at is not None else f"{ledger.axis} {oldest.first}"
        # Between two checks nothing is known of the source.
        end = "its first check" if checked_at is None else f"{checked_at:%Y-%m-%d %H:%M} UTC, the last check"
        known = f"complete from {begin} to {end}"
    if not gaps:
        return f"{known}, no gaps"
    kinds = [f"{number} {kind}" for kind in ACTIONS if (number := sum(gap.kind == kind for gap in gaps))]
    return f"{known}, {len(gaps)} {'gap' if len(gaps) == 1 else 'gaps'}: {', '.join(kinds)}"


# -- Complete ranges


def _add_ranges(known: Sequence[CompleteRange], coverage: Coverage, now: datetime) -> list[CompleteRange]:
    new = [
        CompleteRange(first=first, last=last, since=now, begins_at=coverage.begins_at, ends_at=coverage.ends_at)
        for first, last in coverage.ranges
        if first <= last
    ]
    if not new:
        return list(known)
    # Two entries of a feed may be a second apart, and another one between them.
    apart = 0 if coverage.axis == "time" else 1
    made: list[CompleteRange] = []
    for one in sorted([*known, *new], key=lambda each: each.first):
        if made and one.first - made[-1].last <= apart:
            made[-1] = _unite(made[-1], one)
        else:
            made.append(one)
    while len(made) > MOST_RANGES:
        # The newest range stays: the next run continues it.
        made.remove(min(made[:-1], key=lambda each: each.last - each.first))
    return made


def _unite(one: CompleteRange, other: CompleteRange) -> CompleteRange:
    return CompleteRange(
        first=min(one.first, other.first),
        last=max(one.last, other.last),
        since=min(one.since, other.since),
        begins_at=min((at for at in (one.begins_at, other.begins_at) if at is not None), default=None),
        ends_at=max((at for at in (one.ends_at, other.ends_at) if at is not None), default=None),
    )


def _found_at(known: dict[Interval, CompleteRange], first: int, last: int) -> datetime:
    """Return when the later of two neighbours was found, which showed that there is a gap between them."""
    before = max((one for place, one in known.items() if place[1] < first), key=lambda one: one.last)
    after = min((one for place, one in known.items() if place[0] > last), key=lambda one: one.first)
    return max(before.since, after.since)


# -- Gaps


def _of(gaps: Iterable[Gap], kind: GapKind) -> list[Gap]:
    return [gap for gap in gaps if gap.kind == kind]


def _place(gap: Gap) -> Interval:
    assert gap.first is not None
    assert gap.last is not None
    return gap.first, gap.last


def _check(gaps: Iterable[Gap], checked: Sequence[Interval]) -> list[Gap]:
    """Return the gaps without the numbers that were checked."""
    return [
        replace(gap, first=first, last=last, count=min(gap.count, last - first + 1))
        for gap in gaps
        for first, last in subtract([_place(gap)], checked)
    ]


def _join(gaps: Iterable[Gap], *, apart: int) -> list[Gap]:
    """Return gaps in order; near ones are one gap, and if there are too many, the nearest ones."""
    made: list[Gap] = []
    for gap in sorted(gaps, key=_place):
        if made and _distance(made[-1], gap) <= apart:
            made[-1] = _unite_gaps(made[-1], gap)
        else:
            made.append(gap)
    while len(made) > MOST_GAPS:
        place = min(range(1, len(made)), key=lambda index: _distance(made[index - 1], made[index]))
        made[place - 1 : place + 1] = [_unite_gaps(made[place - 1], made[place])]
    return made


def _distance(one: Gap, other: Gap) -> int:
    return _place(other)[0] - _place(one)[1]


def _unite_gaps(one: Gap, other: Gap) -> Gap:
    first, last = _place(one)[0], max(_place(one)[1], _place(other)[1])
    total = min(one.count + other.count, last - first + 1)
    return replace(one, first=first, last=last, count=total, since=min(one.since, other.since))


def _lose(ledger: Ledger, complete: Sequence[CompleteRange], lost: Sequence[Interval], now: datetime) -> list[Gap]:
    """Return what cannot be read any more: what was found so before, and what of `lost` is in no complete range."""
    ranges = [(one.first, one.last) for one in complete]
    before = {_place(gap): gap for gap in _of(ledger.gaps, "lost")}
    places = union(subtract([*before, *lost], ranges), apart=1)
    made = []
    for first, last in places:
        same = [gap.since for place, gap in before.items() if intersect([place], [(first, last)])]
        made.append(
            Gap(
                kind="lost",
                first=first,
                last=last,
                count=last - first + 1,
                since=min(same, default=now),
                reason=_LOST,
            )
        )
    return _join(made, apart=0)


def _replace_troubles(gaps: Sequence[Gap], coverage: Coverage, now: datetime) -> list[Gap]:
    before = [gap for gap in gaps if gap.first is None]
    replaced = {trouble.kind for trouble in coverage.troubles} | set(coverage.cleared)
    since = {(gap.kind, gap.reason): gap.since for gap in before}
    made = [gap for gap in before if gap.kind not in replaced]
    for trouble in coverage.troubles:
        reason = trouble.reason[:_MOST_REASON]
        found_at = since.get((trouble.kind, reason), now)
        made.append(Gap(kind=trouble.kind, count=trouble.count, since=found_at, reason=reason))
    if len(made) > MOST_TROUBLES:
        rest = made[MOST_TROUBLES - 1 :]
        total, oldest = sum(gap.count for gap in rest), min(gap.since for gap in rest)
        more = Gap(kind=rest[0].kind, count=total, since=oldest, reason=f"{len(rest)} further reasons")
        made = [*made[: MOST_TROUBLES - 1], more]
    return made


def _add_deleted(known: Sequence[DeletedRange], deleted: Sequence[Interval]) -> tuple[DeletedRange, ...]:
    if not deleted:
        return tuple(known)
    before = [(one.first, one.last) for one in known]
    gaps = [Gap(kind="lost", first=one.first, last=one.last, count=one.count, since=_NO_TIME) for one in known]
    gaps += [
        Gap(kind="lost", first=first, last=last, count=count([(first, last)]), since=_NO_TIME)
        for first, last in subtract(deleted, before)
    ]
    joined = _join(gaps, apart=NEAR)
    return tuple(DeletedRange(first=_place(gap)[0], last=_place(gap)[1], count=gap.count) for gap in joined)


_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def _time_text(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
