"""Accounts at the sources, without their secrets."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct


class AccountRow(Struct, frozen=True, kw_only=True):
    """An account at a source, without anything secret."""

    name: str
    kind: str
    api_id: int
    phone: Annotated[str | None, Meta(description="As much of the number as may be shown.")]
    tenant_id: str | None
    user_id: str | None
    state: Literal["active", "parked"]
    reason: Annotated[str | None, Meta(description="Why it is parked.")]
    holder: Annotated[str | None, Meta(description="The process that has its session open.")]
    lease_until: datetime | None
    last_used_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Person(Struct, frozen=True, kw_only=True):
    """Who an account is at Telegram."""

    id: int
    name: str
    username: str | None


class Added(Struct, frozen=True, kw_only=True):
    """An account that was stored or activated, and the names of the jobs that go on because of it."""

    account: AccountRow
    replaced: bool
    resumed: tuple[str, ...]
