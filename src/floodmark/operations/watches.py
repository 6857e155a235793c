"""Watches: notify people of items that match, and of sources that are gone or late."""

from datetime import timedelta
from typing import Annotated

from floodmark.model.page import Page
from floodmark.model.watches import (
    WatchFields,
    WatchKind,
    WatchMatchRow,
    WatchNotificationRow,
    WatchRow,
    WatchTrial,
)

from .declaration import Body, Each, Fields, Path, Query, delete, get, post, put
from .words import Cursor, Limit, Name

_TAG = "Watches"
_EXAMPLE = {"query": "fire OR smoke", "streams": ["telegram:*"], "notify": ["slack"], "cooldown_seconds": 1800}
_BODY = ("WatchIn", "What to look for, and whom to notify.", {"examples": [_EXAMPLE]})
_WEEK = timedelta(days=7)

WatchName = Annotated[Name, Path("Name or id of a watch, or the beginning of one.", name="watch", examples=["fires"])]
NewWatch = Annotated[WatchFields, Fields(Body)]


class WatchOperations:
    """Add, change, try and remove watches."""

    @get("/watches", tag=_TAG, operation_id="list_watches")
    async def watches(
        self,
        *,
        kind: Annotated[WatchKind | None, Query("Only watches of this kind.")] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[WatchRow]:
        """List watches. They are sorted by name."""

    each_watch = Each(watches)

    @post("/watches", role="admin", tag=_TAG, status=201, body=_BODY)
    async def add_watch(self, fields: NewWatch) -> WatchRow:
        """Add a watch. It looks at items that are collected from now on."""

    @get("/watches/{watch}", tag=_TAG, operation_id="show_watch")
    async def watch(self, name: WatchName) -> WatchRow:
        """Show a watch. The answer has its matches, those of back-fill, and the state of its channels."""

    @put("/watches/{watch}", role="admin", tag=_TAG, body=_BODY)
    async def replace_watch(
        self,
        name: WatchName,
        fields: NewWatch,
        *,
        version: Annotated[int | None, Query("Refuse the change if the watch is no longer at this version.")] = None,
    ) -> WatchRow:
        """Replace a watch. Fields that are left out get their default, except the name.

        Matches that wait to be sent stay; channels that it no longer names get nothing more.
        """

    @delete("/watches/{watch}", tag=_TAG)
    async def remove_watch(self, name: WatchName) -> WatchRow:
        """Remove a watch. Return what it was. Its matches and unsent messages are deleted."""

    @post("/watches/{watch}/pause", tag=_TAG)
    async def pause_watch(self, name: WatchName) -> WatchRow:
        """Pause a watch. It looks at nothing and sends nothing; matches that wait are sent when it is resumed."""

    @post("/watches/{watch}/resume", tag=_TAG)
    async def resume_watch(self, name: WatchName) -> WatchRow:
        """Resume a watch. Items that were collected during the pause are not looked at."""

    @post(
        "/watches/try",
        role="read",
        tag=_TAG,
        is_reading=True,
        body=("WatchTrialIn", "A watch, and the events to look at."),
    )
    async def try_watch(
        self,
        fields: NewWatch,
        *,
        since: Annotated[timedelta, Body("How far back to look.", name="since_seconds", gt=0, le=366 * 86_400)] = _WEEK,
        after: Annotated[int | None, Body("`next` of the answer before; left out at the beginning.", ge=0)] = None,
        limit: Annotated[int, Body("About how many matches to return.", ge=1, le=200)] = 50,
    ) -> WatchTrial:
        """Try a watch. The answer has what it would have matched in the stored events, oldest first.

        Nothing is stored or sent. One request looks at some thousand events: continue after `next`.
        """

    @get("/watches/{watch}/matches", tag=_TAG, operation_id="list_watch_matches")
    async def watch_matches(self, name: WatchName, *, cursor: Cursor = None, limit: Limit = 50) -> Page[WatchMatchRow]:
        """List the matches of a watch. The newest come first. Of very many in an hour some are only counted."""

    each_watch_match = Each(watch_matches)

    @get("/watches/{watch}/notifications", tag=_TAG, operation_id="list_watch_notifications")
    async def watch_notifications(
        self, name: WatchName, *, cursor: Cursor = None, limit: Limit = 50
    ) -> Page[WatchNotificationRow]:
        """List the messages of a watch. The newest come first, each with its attempts and its last error."""

    each_watch_notification = Each(watch_notifications)
