"""The audit log: who changed what, and when."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct


class Actor(Struct, frozen=True, kw_only=True):
    """The person or program that makes a change. `via` is the interface: cli, api, sync."""

    who: str
    via: str = "cli"
    request_id: str | None = None


class AuditRow(Struct, frozen=True, kw_only=True):
    """One change in the audit log."""

    seq: int
    at: datetime
    who: Annotated[str, Meta(description="The name of a token, `local`, or a user of the machine.")]
    via: Annotated[str, Meta(description="The interface that was used: cli, api, sync.")]
    action: str
    object: Annotated[str, Meta(description="Kind and name of the changed object: `job:news`.")]
    before: Annotated[Any, Meta(description="The changed fields before the change; null if the object is new.")] = None
    after: Annotated[Any, Meta(description="The changed fields after the change; null if the object was deleted.")] = (
        None
    )
    request_id: str | None = None
