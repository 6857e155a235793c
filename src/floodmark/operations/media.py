"""Files of posts: list them, download them again, delete them."""

from typing import Annotated

from floodmark.model.field import TEN_YEARS
from floodmark.model.media import MediaChanged, MediaRow, MediaState
from floodmark.model.page import Page

from .declaration import Body, Each, Path, Query, get, post
from .streams import DryRun
from .words import Cursor, Limit, Text

_TAG = "Media"
OfStream = Annotated[Text | None, Body("Only of this stream or job.")]


class MediaOperations:
    """List files of posts, download them again, and delete them."""

    @get("/media", tag=_TAG, operation_id="list_media")
    async def media(
        self,
        *,
        state: Annotated[MediaState | None, Query("Only files in this state.")] = None,
        stream: Annotated[Text | None, Query("Only of this stream or job.")] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[MediaRow]:
        """List files of posts. They are sorted by their numbers at the source."""

    each_media = Each(media)

    @get("/media/{media_id}", tag=_TAG, operation_id="show_media")
    async def media_file(
        self, media_id: Annotated[Text, Path("Its number at the source, or the hash of its content.")]
    ) -> MediaRow:
        """Show a file. Its content is in the folder ARTIFACTS_DIR, under its hash."""

    @post("/media/retry", tag=_TAG, role="operate", body=("MediaRetry", "Which files to download again."))
    async def retry_media(
        self,
        *,
        media_id: Annotated[Text | None, Body("Only this file, also if it was skipped or pruned.")] = None,
        state: Annotated[MediaState | None, Body("Files in this state; by default those that have failed.")] = None,
        stream: OfStream = None,
        dry_run: DryRun = False,
    ) -> MediaChanged:
        """Download files again. Without a file or a state, those that have failed."""

    @post("/media/prune", tag=_TAG, role="operate", body=("MediaPrune", "Which files to delete."))
    async def prune_media(
        self,
        older_than_seconds: Annotated[
            float, Body("Files that were stored longer ago than this.", ge=0, le=TEN_YEARS, examples=[7_776_000])
        ],
        *,
        stream: OfStream = None,
        dry_run: DryRun = False,
    ) -> MediaChanged:
        """Delete files. Workers delete their content within minutes; content that another file needs stays."""
