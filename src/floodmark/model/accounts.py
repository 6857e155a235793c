"""Accounts at sources, without their secrets."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct


class AccountRow(Struct, frozen=True, kw_only=True):
    """An account at a source, without its secrets."""

    name: str
    kind: str
    api_id: int
    phone: Annotated[str | None, Meta(description="The phone number, masked.")]
    proxy: Annotated[
        str | None,
        Meta(description="Its own proxy, masked; `none` if it never uses one; null for that of TELEGRAM_PROXY."),
    ]
    tenant_id: str | None
    user_id: str | None
    state: Literal["active", "parked"]
    reason: Annotated[str | None, Meta(description="Why it is parked.")]
    holder: Annotated[str | None, Meta(description="The process that uses its session.")]
    lease_until: datetime | None
    last_used_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Person(Struct, frozen=True, kw_only=True):
    """The Telegram user of an account."""

    id: int
    name: str
    username: str | None


class JoinedChannel(Struct, frozen=True, kw_only=True):
    """A channel or group that an account has joined."""

    channel_id: int
    username: Annotated[str | None, Meta(description="Its public name; null if it is private.")]
    title: str
    is_group: Annotated[bool, Meta(description="Whether members write in it.")]
    subscribers: int | None


class Added(Struct, frozen=True, kw_only=True):
    """An account that was stored or activated, and the names of the jobs that were resumed with it."""

    account: AccountRow
    replaced: bool
    resumed: tuple[str, ...]
