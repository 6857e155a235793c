"""Files of posts: which are wanted, who downloads them, where they are. Table: `media`.

Batches add wanted files in the transaction of their posts. A process claims a few for a short time and extends its
claim while it downloads; when it dies, others claim them after that time. A claim only avoids double work: storing a
file twice is harmless, because its name is the hash of its content.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, update

from floodmark.errors import NotFound
from floodmark.model.clean_text import clean
from floodmark.model.media import MediaRow, MediaState
from floodmark.repositories.repository import Repository, bound_limit
from floodmark.rules.backoff import backoff_bound
from floodmark.store.dialects import chunks

from .tables import media, telegram_channels

MOST_SHOWN = 500
CLAIM = timedelta(seconds=60)
# A file that cannot be downloaded is tried again after a minute, two, four ..., and then given up.
MOST_ATTEMPTS, _PAUSE, _LONGEST_PAUSE = 8, timedelta(minutes=1), timedelta(hours=6)
_CELL = media.c
_IS_WANTED = _CELL.state == "wanted"
_IS_DELETABLE = and_(_CELL.state == "pruned", _CELL.sha256.is_not(None))


class ClaimedFile(Struct, frozen=True, kw_only=True):
    """A file that this process downloads."""

    media_id: str
    channel_id: int
    message_id: int
    kind: str
    size: int | None
    attempts: int


_CLAIMED = tuple(_CELL[name] for name in ClaimedFile.__struct_fields__)
_SHOWN = select(*(_CELL[name] for name in MediaRow.__struct_fields__))


class MediaFiles(Repository):
    """Lists, claims and settles files of posts."""

    async def claim(self, account: str, *, holder: str, limit: int) -> list[ClaimedFile]:
        """Return files of one channel that an account can download now, the longest waiting first, and claim them."""
        is_known = exists().where(
            telegram_channels.c.account == account, telegram_channels.c.channel_id == _CELL.channel_id
        )
        is_due = and_(*self._is_due(holder), is_known)
        async with self._database.writing() as connection:
            first = select(_CELL.channel_id).where(is_due).order_by(_CELL.try_at, _CELL.media_id).limit(1)
            channel_id = (await connection.execute(first)).scalar()
            if channel_id is None:
                return []
            these = select(_CELL.media_id).where(is_due, _CELL.channel_id == channel_id)
            these = these.order_by(_CELL.try_at, _CELL.media_id).limit(limit)
            # Twice: another process may have claimed one in the meantime.
            taken = update(media).where(_CELL.media_id.in_(these), *self._is_due(holder))
            taken = taken.values(holder=holder, lease_until=self._now(CLAIM)).returning(*_CLAIMED)
            rows = (await connection.execute(taken)).mappings().all()
        return [ClaimedFile(**row) for row in rows]

    async def has_work(self) -> bool:
        """Return whether any file is wanted, or pruned but not deleted."""
        async with self._database.reading() as connection:
            for which in (_IS_WANTED, _IS_DELETABLE):
                if (await connection.execute(select(_CELL.media_id).where(which).limit(1))).first() is not None:
                    return True
        return False

    async def extend(self, media_ids: Collection[str], *, holder: str) -> None:
        """Extend the claim of files."""
        await self._change(media_ids, holder, {"lease_until": self._now(CLAIM)})

    async def release(self, media_ids: Collection[str], *, holder: str) -> None:
        """Give claimed files back; they are as due as before."""
        await self._change(media_ids, holder, {"holder": None, "lease_until": None})

    async def finish(self, file: ClaimedFile, *, sha256: str, size: int) -> None:
        """Record that a file is stored, whoever has claimed it."""
        await self._settle(file, state="stored", sha256=sha256, size=size, stored_at=self._now(), error=None)

    async def give_up(self, file: ClaimedFile, reason: str) -> None:
        """Record that a file no longer exists at its source."""
        await self._settle(file, state="gone", error=clean(reason))

    async def fail(self, file: ClaimedFile, error: str) -> None:
        """Record a failure; the file is tried again later, but not for ever."""
        attempts = file.attempts + 1
        pause = backoff_bound(attempts, base=_PAUSE, longest=_LONGEST_PAUSE)
        state = "failed" if attempts >= MOST_ATTEMPTS else "wanted"
        await self._settle(file, state=state, attempts=attempts, try_at=self._now(pause), error=clean(error)[:1000])

    async def page(
        self,
        *,
        state: MediaState | None = None,
        stream: str | None = None,
        ids: Collection[str] = (),
        after: str | None = None,
        limit: int = MOST_SHOWN,
    ) -> list[MediaRow]:
        """Return files in order of their numbers. The next page is after the last one."""
        query = _narrow(_SHOWN, state, stream)
        query = query.where(_CELL.media_id.in_(ids)) if ids else query
        query = query if after is None else query.where(_CELL.media_id > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(_CELL.media_id).limit(bound_limit(limit, MOST_SHOWN)))
            return [MediaRow(**row) for row in rows.mappings()]

    async def with_ids(self, ids: Collection[str]) -> dict[str, MediaRow]:
        """Return those of these files that are known, by their numbers."""
        found: dict[str, MediaRow] = {}
        async with self._database.reading() as connection:
            for some in chunks(sorted(ids)):
                rows = await connection.execute(_SHOWN.where(_CELL.media_id.in_(some)))
                found |= {row["media_id"]: MediaRow(**row) for row in rows.mappings()}
        return found

    async def show(self, media_id: str) -> MediaRow:
        """Return a file by its number, or by the hash of its content."""
        is_it = or_(_CELL.media_id == media_id, _CELL.sha256 == media_id)
        async with self._database.reading() as connection:
            row = (await connection.execute(_SHOWN.where(is_it).limit(1))).mappings().first()
        if row is None:
            raise NotFound(f"there is no file {media_id[:80]!r}", hint="list them with: floodmark media ls")
        return MediaRow(**row)

    async def retry(
        self, *, media_id: str | None, state: MediaState | None, stream: str | None, is_dry: bool
    ) -> tuple[int, int]:
        """Want files again that were skipped, failed, are gone or were pruned; return their number and size."""
        states = ("skipped", "failed", "gone", "pruned") if media_id is not None else ("failed",)
        which: list[ColumnElement[bool]] = [_CELL.state.in_((state,) if state is not None else states)]
        which += [] if media_id is None else [_CELL.media_id == media_id]
        which += [] if stream is None else [_CELL.stream == stream]
        changes = {"state": "wanted", "attempts": 0, "try_at": self._now(), "error": None}
        return await self._change_many(which, changes, is_dry=is_dry)

    async def prune(self, *, before: datetime, stream: str | None, is_dry: bool) -> tuple[int, int]:
        """Mark files that were stored before a time; workers delete them. Return their number and size."""
        which: list[ColumnElement[bool]] = [_CELL.state == "stored", _CELL.stored_at < before]
        which += [] if stream is None else [_CELL.stream == stream]
        return await self._change_many(which, {"state": "pruned", "try_at": self._now()}, is_dry=is_dry)

    async def deletable(self, limit: int) -> list[str]:
        """Return hashes of pruned files whose content no stored file needs."""
        other = media.alias()
        is_needed = exists().where(other.c.sha256 == _CELL.sha256, other.c.state == "stored")
        query = select(_CELL.sha256).where(_IS_DELETABLE, ~is_needed)
        async with self._database.reading() as connection:
            return list((await connection.execute(query.distinct().limit(limit))).scalars())

    async def forget_content(self, hashes: Collection[str]) -> None:
        """Record that the content of pruned files was deleted."""
        query = update(media).where(_CELL.sha256.in_(hashes), _CELL.state != "stored")
        async with self._database.writing() as connection:
            await connection.execute(query.values(sha256=None))

    async def want_again(self, media_id: str) -> None:
        """Want a stored file again whose content is missing."""
        query = update(media).where(_CELL.media_id == media_id)
        async with self._database.writing() as connection:
            await connection.execute(query.values(state="wanted", sha256=None, stored_at=None, try_at=self._now()))

    def _is_due(self, holder: str) -> list[ColumnElement[bool]]:
        is_free = or_(_CELL.holder.is_(None), _CELL.holder == holder, _CELL.lease_until < self._now())
        return [_IS_WANTED, _CELL.try_at <= self._now(), is_free]

    async def _change(self, media_ids: Collection[str], holder: str, values: Mapping[str, Any]) -> None:
        query = update(media).where(_CELL.media_id.in_(media_ids), _CELL.holder == holder)
        async with self._database.writing() as connection:
            await connection.execute(query.values(**values))

    async def _settle(self, file: ClaimedFile, **values: Any) -> None:
        query = update(media).where(_CELL.media_id == file.media_id, _IS_WANTED)
        async with self._database.writing() as connection:
            await connection.execute(query.values(holder=None, lease_until=None, **values))

    async def _change_many(
        self, which: Sequence[ColumnElement[bool]], changes: dict[str, Any], *, is_dry: bool
    ) -> tuple[int, int]:
        counts = select(func.count(), func.coalesce(func.sum(_CELL.size), 0)).where(*which)
        async with self._database.writing() as connection:
            count, size = (await connection.execute(counts)).one()
            if not is_dry:
                await connection.execute(update(media).where(*which).values(**changes))
        return int(count), int(size)


def _narrow(query: Select[Any], state: MediaState | None, stream: str | None) -> Select[Any]:
    query = query if state is None else query.where(_CELL.state == state)
    return query if stream is None else query.where(_CELL.stream == stream)
