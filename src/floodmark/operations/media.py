"""Files of posts: list them, download them again, delete them."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from floodmark.model.field import TEN_YEARS
from floodmark.model.media import MediaChanged, MediaRow, MediaState
from floodmark.model.page import Page

from .declaration import Body, Each, Path, Query, get, post
from .streams import DryRun
from .words import Cursor, Label, Limit, Text

_TAG = "Media"
# The most numbers of a request, and the most bytes of a part of a file.
MOST_IDS, LARGEST_PART = 100, 1024 * 1024
OfStream = Annotated[Text | None, Body("Only of this stream or job.")]


class MediaOperations:
    """List files of posts, download them again, and delete them."""

    @get("/media", tag=_TAG, operation_id="list_media")
    async def media(
        self,
        *,
        state: Annotated[MediaState | None, Query("Only files in this state.")] = None,
        stream: Annotated[Text | None, Query("Only of this stream or job.")] = None,
        ids: Annotated[
            Sequence[Label],
            Query(
                "Only files with these numbers at the source.",
                name="id",
                type=Annotated[list[Label], Meta(max_length=MOST_IDS)],
                send=list,
            ),
        ] = (),
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

    @get(
        "/media/{media_id}/content",
        tag=_TAG,
        operation_id="read_media",
        is_content=True,
        media=("application/octet-stream",),
        answers={409: "It is not stored, or not on the machine of this server."},
    )
    async def media_content(
        self,
        media_id: Annotated[Text, Path("Its number at the source, or the hash of its content.")],
        *,
        offset: Annotated[int, Query("The first byte.", ge=0, le=2**53)] = 0,
        length: Annotated[int, Query("The maximum number of bytes.", ge=1, le=LARGEST_PART)] = LARGEST_PART,
    ) -> bytes:
        """Read a part of the content of a file. A part that is shorter than `length` is the last one."""

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
