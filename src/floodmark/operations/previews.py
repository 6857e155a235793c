"""What a new job would collect."""

from typing import Annotated

from floodmark.model.previews import TargetPreview

from .declaration import Body, post
from .words import Name, Text


class PreviewOperations:
    """Look at a target before a job is added."""

    @post(
        "/preview",
        tag="Jobs",
        operation_id="preview_target",
        is_reading=True,
        body=("PreviewIn", "A target to look at."),
    )
    async def preview(
        self,
        target: Annotated[
            Text, Body("A channel, a URL, a domain, a function.", examples=["https://example.com/feed.xml"])
        ],
        source: Annotated[
            Name | None, Body("The kind of source; the one that fits best, if left out.", examples=["feed"])
        ] = None,
        *,
        fetch: Annotated[bool, Body("Look at the target itself. If false, only its text is examined.")] = True,
    ) -> TargetPreview:
        """Show what a job would collect. Nothing is stored.

        The source is recognised by the text of the target: `@example_news` is a channel of Telegram, a URL a site or a
        feed. A site or a feed is fetched once, within ten seconds.
        """
