"""Write collected posts of the database or a server to files."""

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

from .output import console
from .root import CliContext


class Exported(Struct):
    """The number of files."""

    folder: str
    chats: int
    written: int = 0
    unchanged: int = 0


def export_posts(
    cli: CliContext, folder: Path, *, job: str | None, stream: str | None, first: date | None, last: date | None
) -> Exported:
    """Write the files of one stream or of all streams on this machine."""

    async def work(operations: AsyncOperations) -> Exported:
        async with read_posts(operations) as posts:
            artifacts = Artifacts(posts, folder, schema_version=cli.local_settings().schema_version)
            streams = [name async for name in _streams(operations, posts, job, stream)]
            return await _write_all(cli, posts, artifacts, streams, first=first, last=last)

    return cli.work(work)


async def _write_all(
    cli: CliContext,
    posts: PostReader,
    artifacts: Artifacts,
    streams: list[str],
    *,
    first: date | None,
    last: date | None,
) -> Exported:
    result = Exported(folder=str(artifacts.folder), chats=len(streams))
    with _progress(cli) as shown:
        task = shown.add_task("", total=len(streams))
        for stream in streams:
            async for of in posts.days(stream, first, last):
                shown.update(task, description=f"{of.chat.id} {of.day}")
                if await artifacts.write(of):
                    result.written += 1
                else:
                    result.unchanged += 1
            shown.advance(task)
    return result


async def _streams(
    operations: AsyncOperations, posts: PostReader, job: str | None, stream: str | None
) -> AsyncIterator[str]:
    """Yield the streams of posts: that of the job, the named one, or all."""
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
            hint="only collected Telegram channels are written to files: floodmark ls --source telegram",
        )
    yield found


def _progress(cli: CliContext) -> Progress:
    """Return a progress bar on the terminal of stderr."""
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
        disable=not err.is_terminal or cli.is_quiet,
    )
