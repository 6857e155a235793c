"""External triggers: webhooks, Redis channels and Redis streams that fire jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput, NotFound

Kind = Literal["webhook", "channel", "stream"]
SHORTEST_SECRET = 16
LONGEST_DEBOUNCE = timedelta(hours=1)


class TriggerRow(Struct, frozen=True, kw_only=True):
    """A trigger, without its secret."""

    trigger_id: str
    kind: Kind
    pattern: str
    jobs: Annotated[
        tuple[str, ...], Meta(description="The names of the jobs it fires; a deleted job is listed by its id.")
    ]
    params: dict[str, str]
    signed: Annotated[bool, Meta(description="Whether webhooks have to be signed.")]
    debounce_seconds: float
    enabled: bool
    fired: Annotated[int, Meta(description="Accepted deliveries.")]
    matched: Annotated[int, Meta(description="Executions that they started.")]
    hinted: Annotated[int, Meta(description="Hints that they gave to adaptive jobs.")] = 0
    refused: int
    refusals: Annotated[
        dict[str, int], Meta(description="Number of refusals by reason.", examples=[{"altered": 2, "late": 1}])
    ]
    last_fired_at: datetime | None
    last_refused_at: datetime | None
    last_refusal: str | None
    created_at: datetime
    updated_at: datetime


class TriggerStatus(TriggerRow, frozen=True, kw_only=True):
    """A trigger and whether it is listened to."""

    listening: bool
    why_not: Annotated[str | None, Meta(description="Why it is not listened to.")] = None


class OfJobs(Struct, frozen=True, kw_only=True):
    """A pattern in the fields `trigger_webhook` or `trigger_channel` of jobs."""

    kind: Kind
    pattern: str
    jobs: int
    listening: bool


class Unmatched(Struct, frozen=True, kw_only=True):
    """The number of deliveries that matched no job or could not be read, and the last one."""

    count: int
    last: Annotated[str | None, Meta(examples=["webhook:/sources/42/crawll"])] = None


class TriggersStatus(Struct, frozen=True, kw_only=True):
    """The status of all triggers."""

    listener: Annotated[str | None, Meta(description="The scheduler that listens to Redis; null if none does.")]
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


class HubSubscription(Struct, frozen=True, kw_only=True):
    """The subscription of a feed at its WebSub hub."""

    target: Annotated[str, Meta(description="The URL of the feed.")]
    hub: Annotated[str, Meta(description="The URL of the hub.")]
    state: Annotated[
        Literal["found", "asked", "active", "leaving"],
        Meta(
            description="`found`: the feed names this hub, and nothing was asked; `asked`: the hub has not verified it "
            "yet; `active`: the hub reports new entries; `leaving`: it is being ended."
        ),
    ]
    expires_at: Annotated[datetime | None, Meta(description="It is renewed before that.")]
    pushes: Annotated[int, Meta(description="How often the hub reported new entries.")]
    last_push_at: datetime | None
    last_error: Annotated[str | None, Meta(description="Why the last request to the hub failed.")]


class NewTrigger(Struct, frozen=True, kw_only=True):
    """A trigger to create. `jobs` are names or ids, or prefixes of them."""

    kind: Kind
    pattern: str
    jobs: Sequence[str] = ()
    params: Mapping[str, str] = {}
    secret: str | None = None
    debounce: timedelta = timedelta()
    enabled: bool = True


R = TypeVar("R", bound=TriggerRow)


def the_only(found: Sequence[R], typed: str) -> R:
    """Return the trigger that the user meant, or raise an error that lists the matches."""
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(f"{row.trigger_id} ({row.kind})" for row in found)
        raise InvalidInput(f"{typed[:60]!r} matches {len(found)} triggers", hint=f"write out one of: {ids}")
    raise NotFound(f"there is no trigger {typed[:60]!r}", hint="list the triggers with: floodmark triggers ls")
