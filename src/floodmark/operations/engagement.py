"""Views, forwards and reactions of posts over time."""

from typing import Annotated

from floodmark.model.engagement import PostEngagement
from floodmark.model.page import Page

from .declaration import Each, Query, get
from .streams import StreamName
from .words import Cursor, Limit, Text


class EngagementOperations:
    """Read how often posts were seen, forwarded and reacted to, over time."""

    @get("/streams/{stream}/engagement", tag="Streams", operation_id="list_engagement")
    async def engagement(
        self,
        stream: StreamName,
        *,
        key: Annotated[Text | None, Query("Only the post with this key.")] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[PostEngagement]:
        """List the engagement of posts. Newest posts first, each with its counts over time.

        The first sample is from when the post was collected. Samples at certain ages and the newest counts follow, if
        the job has the param `engagement` or `revisit`.
        """

    each_engagement = Each(engagement)
