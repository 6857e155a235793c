"""Sinks for readers, and the text of the setting SINKS."""

import re
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

SinkState = Literal["ok", "filling", "failing", "paused", "removed"]

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}", re.ASCII)
MOST_SINKS = 50


class SinkRow(Struct, frozen=True, kw_only=True):
    """A sink, and how far it has delivered the events."""

    name: str
    kind: Annotated[str, Meta(description="`redis`, `webhook`, `kafka`, `files`, or one of another package.")]
    place: Annotated[str | None, Meta(description="The destination, without secrets.")]
    streams: Annotated[
        str | None, Meta(description="Patterns of the streams that it gets; null: all.", examples=["telegram:*"])
    ]
    state: Annotated[
        SinkState,
        Meta(
            description="`failing`: the last attempt failed, and it is tried again; `filling`: stored items are"
            " delivered first; `removed`: it is no longer configured."
        ),
    ]
    position: Annotated[int, Meta(description="Every event up to this position was delivered, or is a dead letter.")]
    lag_events: Annotated[int, Meta(description="Events after its position.")]
    lag_seconds: Annotated[float, Meta(description="The age of the oldest event that it has not processed; 0: none.")]
    dead_letters: Annotated[int, Meta(description="Events that the receiver refused.")]
    error: Annotated[str | None, Meta(description="Why the last attempt failed; null if it succeeded.")]
    failed_at: datetime | None
    retry_at: Annotated[datetime | None, Meta(description="When it is tried again.")]
    moved_at: Annotated[datetime, Meta(description="When its position last changed.")]


class SinkLetter(Struct, frozen=True, kw_only=True):
    """An event that the receiver of a sink refused."""

    sink: str
    position: int
    event_id: str
    stream: str
    key: str
    revision: int
    error: str
    failed_at: datetime
    is_retried: Annotated[bool, Meta(description="It will be sent again.")]


class SinkReplay(Struct, frozen=True, kw_only=True):
    """A sink that sends stored events again."""

    sink: str
    before: Annotated[int, Meta(description="The position before.")]
    after: Annotated[int, Meta(description="The new position. The events after it are sent.")]
    events: Annotated[int, Meta(description="How many events will be sent.")]
    applied: Annotated[bool, Meta(description="False for a dry run.")]


class SinkTest(Struct, frozen=True, kw_only=True):
    """A test event that the receiver of a sink has accepted."""

    sink: str
    place: str
    event_id: str
    seconds: Annotated[float, Meta(description="How long it took.")]


def parse_sinks(text: str) -> dict[str, str]:
    """Return the kinds of sinks by name: `archive=webhook, lake=kafka`. A kind alone is also the name.

    `ValueError` names the first mistake.
    """
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, kind = (word.strip() for word in part.partition("="))
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name[:60]!r} is not a name: use lower-case letters, digits and hyphens")
        if equals and not kind:
            raise ValueError(f"{name} has no kind")
        if name in found:
            raise ValueError(f"{name} is there twice")
        found[name] = kind or name
    if len(found) > MOST_SINKS:
        raise ValueError(f"there are more than {MOST_SINKS} sinks")
    return found
