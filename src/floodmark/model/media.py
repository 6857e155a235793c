"""Files of posts."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

THUMB = ":thumb"
"""The end of the number of a thumbnail; before it is the number of its file."""

MediaState = Literal["wanted", "stored", "skipped", "failed", "gone", "pruned"]


class MediaRow(Struct, frozen=True, kw_only=True):
    """A file of a post."""

    media_id: Annotated[str, Meta(description="Its number at the source; a thumbnail has `:thumb` behind it.")]
    kind: Annotated[str, Meta(description="`photo`, `video`, `audio`, `document` and so on.")]
    stream: str
    key: Annotated[str, Meta(description="The post that named it last.")]
    size: Annotated[int | None, Meta(description="Its size in bytes.")]
    media_type: str | None
    filename: Annotated[str | None, Meta(description="Its name at the source. No file is stored under it.")]
    state: MediaState
    sha256: Annotated[str | None, Meta(description="The hash of its content, and the name of its file.")]
    attempts: int
    try_at: Annotated[datetime, Meta(description="When it is tried next, if it is wanted.")]
    error: str | None
    created_at: datetime
    stored_at: datetime | None


def content_path(sha256: str) -> str:
    """Return the path of a content in the folder ARTIFACTS_DIR."""
    return f"media/{sha256[:2]}/{sha256}"


class MediaChanged(Struct, frozen=True, kw_only=True):
    """The result of a change of many files."""

    files: Annotated[int, Meta(description="Number of files.")]
    size: Annotated[int, Meta(description="Their size in bytes, as far as it is known.")]
    applied: Annotated[bool, Meta(description="False for a dry run.")]
