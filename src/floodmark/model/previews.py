"""What a new job would collect, shown before anything is stored."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct


class PreviewItem(Struct, frozen=True, kw_only=True):
    """One item that would be collected, shortened."""

    title: str
    text: Annotated[str, Meta(description="The beginning of its text.")] = ""
    url: str | None = None
    at: Annotated[datetime | None, Meta(description="When it was published, if that is known.")] = None


class OtherTarget(Struct, frozen=True):
    """Another target that could be collected instead, such as the feed of a site."""

    source: str
    target: str


class SourcePreview(Struct, frozen=True, kw_only=True):
    """What a source would collect from a target. `source` is set if another source fits the target better."""

    collects: str
    source: str | None = None
    target: str | None = None
    title: str = ""
    note: str | None = None
    count: int | None = None
    items: tuple[PreviewItem, ...] = ()
    others: tuple[OtherTarget, ...] = ()


class TargetPreview(Struct, frozen=True, kw_only=True):
    """What a job for a target would collect."""

    text: Annotated[str, Meta(description="The target as it was given.")]
    source: Annotated[str, Meta(description="The kind of source that fits it.", examples=["feed"])]
    sources: Annotated[tuple[str, ...], Meta(description="All kinds of sources that fit it, the best one first.")]
    target: Annotated[str, Meta(description="The target as it would be stored.")]
    name: Annotated[str, Meta(description="The name that the job would get.", examples=["feed-example-com-news"])]
    schedule: Annotated[str, Meta(description="The schedule of a job without one.", examples=["on demand"])]
    collects: Annotated[str, Meta(description="What is collected, in one sentence.")]
    title: Annotated[str, Meta(description="The title of the target, if it was fetched.")] = ""
    note: Annotated[str | None, Meta(description="Why nothing would be collected, or why it is not known.")] = None
    missing: Annotated[
        str | None, Meta(description="What has to be set up before the job can run, with the next step.")
    ] = None
    jobs: Annotated[tuple[str, ...], Meta(description="Jobs that collect it already, at most ten.")] = ()
    count: Annotated[int | None, Meta(description="The number of items, if it is known.")] = None
    items: Annotated[tuple[PreviewItem, ...], Meta(description="Some of the items, newest first.")] = ()
    others: Annotated[
        tuple[OtherTarget, ...], Meta(description="Targets that could be collected instead, such as its feeds.")
    ] = ()
