"""What was collected, from the store or a server into files."""

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

from msgspec import Struct
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from floodmark.errors import NotFound
from floodmark.model.posts import chat_of
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.posts import read_posts
from floodmark.sinks.files import Artifacts
from floodmark.sources.telegram.stored_posts import PostReader

from .root import Desk
from .showing import console


class Exported(Struct):
    """How it went."""

    folder: str
    chats: int
    written: int = 0
    unchanged: int = 0


def exported(
    desk: Desk, folder: Path, *, job: str | None, stream: str | None, first: date | None, last: date | None
) -> Exported:
    """Write the files of one stream, or of all, on this machine, wherever the posts are."""

    async def work(operations: AsyncOperations) -> Exported:
        async with read_posts(operations) as posts:
            artifacts = Artifacts(posts, folder, schema_version=desk.maker().settings.schema_version)
            streams = [name async for name in _streams(operations, posts, job, stream)]
            return await _write_all(desk, posts, artifacts, streams, first=first, last=last)

    return desk.work(work)


async def _write_all(
    desk: Desk, posts: PostReader, artifacts: Artifacts, streams: list[str], *, first: date | None, last: date | None
) -> Exported:
    told = Exported(folder=str(artifacts.folder), chats=len(streams))
    with _progress(desk) as shown:
        task = shown.add_task("", total=len(streams))
        for stream in streams:
            async for of in posts.days(stream, first, last):
                shown.update(task, description=f"{of.chat.id} {of.day}")
                if await artifacts.write(of):
                    told.written += 1
                else:
                    told.unchanged += 1
            shown.advance(task)
    return told


async def _streams(
    operations: AsyncOperations, posts: PostReader, job: str | None, stream: str | None
) -> AsyncIterator[str]:
    """The streams of posts that are meant: of a job, the one that was named, or all there are."""
    if job is None and stream is None:
        async for each in posts.streams():
            yield each
        return
    named = stream if stream is not None else (await operations.job(job or "")).stream
    if chat_of(named) is not None:
        async for _ in posts.days(named):
            yield named
            return
    try:
        found = (await operations.watermark(named)).items_stream or ""
    except NotFound:
        if stream is not None:
            raise
        found = ""
    if chat_of(found) is None:
        raise NotFound(
            f"{f'the job {job}' if stream is None else f'the stream {named[:60]}'} has no posts of a channel",
            hint="only Telegram channels become files, once something was collected: floodmark ls --source telegram",
        )
    yield found


def _progress(desk: Desk) -> Progress:
    """A bar on a terminal; nothing at all elsewhere, and never among what is printed."""
    err = console(stderr=True)
    return Progress(
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("chats"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=err,
        transient=True,
        disable=not err.is_terminal or desk.is_quiet,
    )
