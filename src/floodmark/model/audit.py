"""The audit: who changed what, and when."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct


class Actor(Struct, frozen=True, kw_only=True):
    """Who acts. `via` is the way they came: cli, api, sync."""

    who: str
    via: str = "cli"
    request_id: str | None = None


class AuditRow(Struct, frozen=True, kw_only=True):
    """A change that someone made."""

    seq: int
    at: datetime
    who: Annotated[str, Meta(description="The name of a token, `local`, or a user of the machine.")]
    via: Annotated[str, Meta(description="The way they came: cli, api, sync.")]
    action: str
    object: Annotated[str, Meta(description="What was changed, by kind and name: `job:news`.")]
    before: Annotated[Any, Meta(description="What was changed of it, as it was; null if there was nothing.")] = None
    after: Annotated[Any, Meta(description="The same as it is now; null if there is nothing.")] = None
    request_id: str | None = None
