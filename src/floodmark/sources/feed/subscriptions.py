"""Subscriptions of feeds at WebSub hubs. Table: `feed_subscriptions`; of `jobs` the column `hinted_at`.

    found     a feed names this hub; nothing was asked, or the subscription has ended
    asked     the hub was asked to subscribe or to renew, and has not verified it yet
    active    the hub has verified it, until `expires_at`
    leaving   the hub was asked to unsubscribe

A row is found by a run of the source, the leader asks the hub, and the API answers it. Jobs with the same feed share
one subscription.
"""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, update

from floodmark.model.external_triggers import HubSubscription
from floodmark.model.job import ScheduleType
from floodmark.repositories.hints import hint_jobs
from floodmark.repositories.repository import Repository, bound_limit
from floodmark.store.tables import jobs

from .hubs import FeedHub
from .tables import feed_subscriptions

_KIND = "feed"
_MOST_SHOWN = 500
_CELL = feed_subscriptions.c
_OF_FEED = (jobs.c.source == _KIND) & (jobs.c.target == _CELL.target)
_IS_KNOWN = exists().where(_OF_FEED)
_IS_WANTED = exists().where(_OF_FEED, jobs.c.schedule_type == ScheduleType.ADAPTIVE)


class SubscriptionState(StrEnum):
    """The state of a subscription."""

    FOUND = "found"
    ASKED = "asked"
    ACTIVE = "active"
    LEAVING = "leaving"


SUBSCRIBED = (SubscriptionState.ASKED, SubscriptionState.ACTIVE)


class FeedSubscription(Struct, frozen=True, kw_only=True):
    """A row. `is_wanted`: an adaptive job collects the feed. `is_asked`: we asked the hub within a day."""

    target: str
    hub: str
    topic: str
    callback: str
    secret: str | None
    state: str
    tries: int
    is_wanted: bool
    is_asked: bool


class FeedSubscriptions(Repository):
    """Stores subscriptions."""

    async def note_hub(self, target: str, hub: FeedHub | None) -> None:
        """Store the hub that a feed names now. Writes only if it has changed."""
        query = select(_CELL.hub, _CELL.topic).where(_CELL.target == target)
        async with self._database.reading() as connection:
            known = (await connection.execute(query)).first()
        if hub == (None if known is None else FeedHub(*known)):
            return
        async with self._database.writing() as connection:
            # Without its row, the old hub is told at its next request that we have left.
            await connection.execute(delete(feed_subscriptions).where(_CELL.target == target))
            if hub is not None:
                values = {"target": target, "hub": hub.url, "topic": hub.topic, "callback": secrets.token_urlsafe(32)}
                statement = self._insert_into(feed_subscriptions).values(**values, due_at=self._now())
                await connection.execute(statement.on_conflict_do_nothing())

    async def find_due(self, limit: int) -> list[FeedSubscription]:
        """Return subscriptions that need a request, or whose job has gone or is no longer adaptive."""
        is_due, is_subscribed = _CELL.due_at <= self._now(), _CELL.state.in_(SUBSCRIBED)
        is_leaving = _CELL.state == SubscriptionState.LEAVING
        return await self._find(
            or_(
                and_(is_due, or_(_IS_WANTED, is_leaving)),
                and_(is_subscribed, ~_IS_WANTED),
                and_(_CELL.state == SubscriptionState.FOUND, ~_IS_KNOWN),
            ),
            limit=limit,
        )

    async def page(self, after: str | None = None, limit: int = 100) -> list[HubSubscription]:
        """Return subscriptions by the URL of their feed, for people. The next page is `after` the last one."""
        query = select(*(_CELL[name] for name in HubSubscription.__struct_fields__))
        query = query if after is None else query.where(_CELL.target > after)
        rows = await self._database.fetch(query.order_by(_CELL.target).limit(bound_limit(limit, _MOST_SHOWN)))
        return [HubSubscription(**row) for row in rows]

    async def find(self, callback: str) -> FeedSubscription | None:
        """Return the subscription with this callback."""
        found = await self._find(_CELL.callback == callback, limit=1)
        return found[0] if found else None

    async def ask(self, row: FeedSubscription, secret: str, *, again_after: timedelta) -> bool:
        """Record a request to subscribe before it is sent: the hub may verify it at once. False if the row is gone."""
        return await self._change(
            row,
            {
                "state": SubscriptionState.ASKED,
                "secret": secret,
                "tries": row.tries + 1,
                "asked_at": self._now(),
                "due_at": self._now(again_after),
            },
        )

    async def activate(self, row: FeedSubscription, *, lease: timedelta, renew_after: timedelta) -> bool:
        """Record that the hub has verified it; False if it changed in between."""
        return await self._change(
            row,
            {
                "state": SubscriptionState.ACTIVE,
                "tries": 0,
                "last_error": None,
                "due_at": self._now(renew_after),
                "expires_at": self._now(lease),
            },
        )

    async def leave(self, row: FeedSubscription, *, give_up_after: timedelta) -> bool:
        """Record a request to unsubscribe before it is sent."""
        return await self._change(row, {"state": SubscriptionState.LEAVING, "due_at": self._now(give_up_after)})

    async def end(self, row: FeedSubscription, error: str | None = None, *, again_after: timedelta) -> bool:
        """Record that there is no subscription; the hub may be asked again later."""
        values = {"state": SubscriptionState.FOUND, "tries": 0, "expires_at": None, "last_error": error}
        return await self._change(row, {**values, "due_at": self._now(again_after)})

    async def note_error(self, row: FeedSubscription, error: str) -> None:
        """Record why a request to the hub failed."""
        async with self._database.writing() as connection:
            statement = update(feed_subscriptions).where(_CELL.callback == row.callback)
            await connection.execute(statement.values(last_error=error))

    async def forget(self, row: FeedSubscription) -> None:
        """Delete a row whose feed no job collects."""
        async with self._database.writing() as connection:
            await connection.execute(delete(feed_subscriptions).where(_CELL.callback == row.callback))

    async def give_hint(self, row: FeedSubscription) -> int:
        """Count a push and hint the adaptive jobs of the feed; returns the number of jobs that had no hint."""
        of_feed = (jobs.c.source == _KIND) & (jobs.c.target == row.target)
        counts = {"pushes": _CELL.pushes + 1, "last_push_at": self._now()}
        async with self._database.writing() as connection:
            given = await connection.execute(hint_jobs(of_feed, self._now()))
            await connection.execute(update(feed_subscriptions).where(_CELL.callback == row.callback).values(**counts))
            return int(given.rowcount)

    async def _find(self, *where: ColumnElement[bool], limit: int) -> list[FeedSubscription]:
        plain = (_CELL.target, _CELL.hub, _CELL.topic, _CELL.callback, _CELL.secret, _CELL.state, _CELL.tries)
        is_asked = (_CELL.asked_at > self._now(-timedelta(days=1))).is_(True)
        query = select(*plain, _IS_WANTED.label("is_wanted"), is_asked.label("is_asked")).where(*where)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(_CELL.due_at).limit(limit))
            return [FeedSubscription(**row) for row in rows.mappings()]

    async def _change(self, row: FeedSubscription, values: Mapping[str, Any]) -> bool:
        same = (_CELL.callback == row.callback, _CELL.state == row.state)
        async with self._database.writing() as connection:
            changed = await connection.execute(update(feed_subscriptions).where(*same).values(**values))
            return bool(changed.rowcount)
