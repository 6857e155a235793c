"""What fires jobs from outside, as it is declared and shown."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput, NotFound

Kind = Literal["webhook", "channel", "stream"]
SHORTEST_SECRET = 16
LONGEST_DEBOUNCE = timedelta(hours=1)


class TriggerRow(Struct, frozen=True, kw_only=True):
    """A trigger as anyone may see it."""

    trigger_id: str
    kind: Kind
    pattern: str
    jobs: Annotated[
        tuple[str, ...], Meta(description="The names of the jobs it fires; one that is gone is named by its id.")
    ]
    params: dict[str, str]
    signed: Annotated[bool, Meta(description="Whether webhooks have to be signed.")]
    debounce_seconds: float
    enabled: bool
    fired: Annotated[int, Meta(description="Deliveries it has taken.")]
    matched: Annotated[int, Meta(description="Executions that came of them.")]
    refused: int
    refusals: Annotated[
        dict[str, int], Meta(description="How often for which reason.", examples=[{"altered": 2, "late": 1}])
    ]
    last_fired_at: datetime | None
    last_refused_at: datetime | None
    last_refusal: str | None
    created_at: datetime
    updated_at: datetime


class TriggerStatus(TriggerRow, frozen=True, kw_only=True):
    """A trigger, and how it fares."""

    listening: bool
    why_not: Annotated[str | None, Meta(description="Why it is not listened to, if it is not.")] = None


class OfJobs(Struct, frozen=True, kw_only=True):
    """A pattern that jobs name themselves."""

    kind: Kind
    pattern: str
    jobs: int
    listening: bool


class Unmatched(Struct, frozen=True, kw_only=True):
    """How many deliveries matched no job, or could not be read, and the last of them."""

    count: int
    last: Annotated[str | None, Meta(examples=["webhook:/sources/42/crawll"])] = None


class TriggersStatus(Struct, frozen=True, kw_only=True):
    """How triggers fare."""

    listener: Annotated[str | None, Meta(description="The scheduler that hears Redis; null if none does.")]
    triggers: tuple[TriggerStatus, ...]
    of_jobs: tuple[OfJobs, ...]
    unmatched: Annotated[Unmatched, Meta(description="Deliveries that matched no job.")]
    unreadable: Annotated[
        Unmatched,
        Meta(
            description="Redis messages that were skipped because they could not be read.",
            examples=[{"count": 1, "last": "stream:orders: nested too deeply"}],
        ),
    ] = Unmatched(count=0)


class NewTrigger(Struct, frozen=True, kw_only=True):
    """A trigger to be. `jobs` are names or ids, or the beginning of one."""

    kind: Kind
    pattern: str
    jobs: Sequence[str] = ()
    params: Mapping[str, str] = {}
    secret: str | None = None
    debounce: timedelta = timedelta()
    enabled: bool = True


R = TypeVar("R", bound=TriggerRow)


def the_only(found: Sequence[R], typed: str) -> R:
    """Return the trigger that was meant by what was typed."""
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(f"{row.trigger_id} ({row.kind})" for row in found)
        raise InvalidInput(f"{typed[:60]!r} fits {len(found)} triggers", hint=f"write out one of: {ids}")
    raise NotFound(f"there is no trigger {typed[:60]!r}", hint="see what there is with: floodmark triggers ls")
