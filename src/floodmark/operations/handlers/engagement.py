"""Handlers of the engagement of posts."""

from collections.abc import Sequence

from floodmark.model.engagement import EngagementSample, PostEngagement, counts_of
from floodmark.model.page import Page, last_key, page_of
from floodmark.model.streams import StoredItem
from floodmark.operations.engagement import EngagementOperations
from floodmark.sources.telegram.engagement import Engagement

from .base import Handlers


class EngagementHandlers(EngagementOperations, Handlers):
    """The engagement of posts in the store."""

    async def engagement(
        self, stream: str, *, key: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[PostEngagement]:
        name = await self.find_items_stream(stream)
        if key is not None:
            found = [(await self.store.events.item(name, key)).newest]
        else:
            before = last_key("engagement", cursor, str)
            found = await self.store.events.newest(name, before_key=before, limit=limit + 1)
        stored = await Engagement(self.resources.database).of_posts(name, [item.key for item in found])
        rows = [_engagement(item, stored.get(item.key, ())) for item in found]
        return page_of(rows, limit, "engagement", lambda row: [row.key])


def _engagement(item: StoredItem, stored: Sequence[EngagementSample]) -> PostEngagement:
    counts = counts_of(item.data) if isinstance(item.data, dict) else {}
    first = [EngagementSample(occasion="collected", seen_at=item.collected_at, **counts)] if counts else []
    samples = sorted([*first, *stored], key=lambda sample: sample.seen_at)
    return PostEngagement(key=item.key, occurred_at=item.occurred_at, samples=tuple(samples))
