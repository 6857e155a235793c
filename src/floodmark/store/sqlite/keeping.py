"""Writes items, watermark and events in one transaction on SQLite, and numbers events for readers."""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from msgspec.structs import astuple

from floodmark.errors import Fenced
from floodmark.model.batch import Batch, Kept, PollResult, SitePage
from floodmark.model.clock import Clock
from floodmark.model.execution import Lease
from floodmark.process.failpoints import failpoint
from floodmark.rules.backfill import Existed, existed_before
from floodmark.store.budget_rows import KNOWN_SELECT, is_only_poll, lesson_of
from floodmark.store.database import SqliteDatabase, encode_json
from floodmark.store.item_rows import Packed, pack, pack_pages, pack_watermark
from floodmark.store.known_ledgers import KnownLedgers
from floodmark.store.outbox_rows import unsent_from_row
from floodmark.store.port import Publish, Unsent
from floodmark.store.rule_sql import ADAPTIVE
from floodmark.store.types import from_text, to_text

_MOVE = """
UPDATE watermarks SET value = COALESCE(?, value), high_water = COALESCE(?, high_water), moved_at = ?,
       items_stream = COALESCE(?, items_stream)
 WHERE stream = ? AND fence = ?
RETURNING last_checked_at
"""

_KNOWN = """
SELECT key, content_hash, revision FROM items
 WHERE stream = ? AND key IN (SELECT value FROM json_each(?))
"""

# Values that all rows share are bound once.
_INSERT = """
INSERT INTO items (stream, collected_at, tenant_id, user_id, execution_id, fence,
                   key, occurred_at, data, content_hash, deleted)
VALUES {rows}
"""
_NEW_ROW = "(?1, ?2, ?3, ?4, ?5, ?6, ?, ?, CAST(? AS TEXT), ?, ?)"

_ARCHIVE = """
INSERT INTO item_revisions (stream, key, revision, occurred_at, collected_at, data, content_hash, deleted,
                            execution_id, fence)
SELECT stream, key, revision, occurred_at, collected_at, data, content_hash, deleted, execution_id, fence
  FROM items WHERE stream = ? AND key = ?
"""

_CHANGE = """
UPDATE items SET revision = revision + 1, occurred_at = ?, collected_at = ?, data = CAST(? AS TEXT), content_hash = ?,
       deleted = ?, execution_id = ?, fence = ?
 WHERE stream = ? AND key = ?
"""

_ADD_EVENT = "INSERT INTO outbox (stream, key, revision, existed, created_at, traceparent) VALUES (?, ?, ?, ?, ?, ?)"
# Events of new items that have all the same `existed`, as nearly all batches do.
_ADD_NEW_EVENTS = """
INSERT INTO outbox (stream, key, revision, existed, created_at, traceparent)
SELECT ?1, value, 1, ?2, ?3, ?4 FROM json_each(?5) ORDER BY json_each.key
"""

_FENCED = "SELECT 1 FROM watermarks WHERE stream = ? AND fence = ?"
_KNOWN_SOURCE = f"""
SELECT {KNOWN_SELECT} FROM jobs j JOIN budgets b ON b.name = j.budget LEFT JOIN activity a ON a.job_id = j.job_id
 WHERE j.job_id = ?
"""
_LEARN = """
INSERT INTO activity (job_id, learned, measured, polled_at) VALUES (?, ?, ?, ?)
ON CONFLICT (job_id) DO UPDATE
   SET learned = excluded.learned, measured = excluded.measured, polled_at = excluded.polled_at
"""
_PLAN_NEXT = f"UPDATE jobs AS j SET next_run = ? WHERE j.job_id = ? AND j.next_run IS NOT NULL AND {ADAPTIVE}"

# Only a page of a later crawl replaces a row; a page that was only found again has no news.
_PAGES = """
INSERT INTO pages (stream, visited_at, url, depth, place, crawl, status, etag, last_modified, content_hash, misses,
                   note)
VALUES {rows}
ON CONFLICT (stream, url) DO UPDATE
   SET crawl = excluded.crawl, status = excluded.status, etag = excluded.etag,
       last_modified = excluded.last_modified, content_hash = excluded.content_hash, misses = excluded.misses,
       note = excluded.note, visited_at = excluded.visited_at
 WHERE excluded.crawl > pages.crawl
"""

_BLOBS = """
INSERT INTO blobs (sha256, media_type, size, content, kept_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (sha256) DO UPDATE SET kept_at = excluded.kept_at
"""

_MATCHES = """
INSERT INTO page_matches (stream, url, keys) VALUES (?, ?, CAST(? AS TEXT))
ON CONFLICT (stream, url) DO UPDATE SET keys = excluded.keys
"""

# A file that is posted again keeps its state; if it is still wanted, its newest post is the one to get it from.
_FILES = """
INSERT INTO media (stream, try_at, created_at, media_id, kind, key, channel_id, message_id, size, media_type, filename,
                   state, error)
VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, CASE WHEN ?11 IS NULL THEN 'wanted' ELSE 'skipped' END, ?11)
ON CONFLICT (media_id) DO UPDATE
   SET stream = excluded.stream, key = excluded.key, channel_id = excluded.channel_id,
       message_id = excluded.message_id
 WHERE media.state = 'wanted' AND (media.channel_id, media.message_id) <> (excluded.channel_id, excluded.message_id)
"""

_COVER = """
INSERT INTO completeness (stream, source, value, gaps, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (stream) DO UPDATE
   SET source = excluded.source, value = excluded.value, gaps = excluded.gaps, updated_at = excluded.updated_at
"""

_PAGE_ROW = f"(?1, {', '.join('?' * 11)})"

# Rows per statement: a few pages of posts. SQLite takes no more than 32,766 values.
_AT_ONCE = 500
# The hash and revision of an unknown item.
_NEW = ("", 0)

# Transactions commit one after the other, so `seq` is already the order of events for readers.
_UNSENT = """
SELECT o.seq, o.stream, o.key, o.revision,
       CASE WHEN r.key IS NULL THEN i.occurred_at ELSE r.occurred_at END, COALESCE(r.collected_at, i.collected_at),
       COALESCE(r.data, i.data), COALESCE(r.deleted, i.deleted), i.tenant_id, i.user_id, o.traceparent
  FROM outbox o
  JOIN items i ON i.stream = o.stream AND i.key = o.key
  LEFT JOIN item_revisions r ON r.stream = o.stream AND r.key = o.key AND r.revision = o.revision
 WHERE o.sent_at IS NULL ORDER BY o.seq LIMIT ?
"""
_NUMBER = "UPDATE outbox SET position = seq WHERE sent_at IS NULL AND position IS NULL AND seq <= ?"
_SENT = "UPDATE outbox SET sent_at = ? WHERE sent_at IS NULL AND seq <= ?"


class SqliteKeeping:
    """Keeps batches and relays events on SQLite."""

    def __init__(self, database: SqliteDatabase, *, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._ledgers = KnownLedgers(database, clock)

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch and move the watermark, or raise `Fenced` and change nothing."""
        packed = pack(batch.items)
        keys, value = encode_json([item.key for item in packed]), pack_watermark(batch.watermark)
        merged = None if batch.coverage is None else await self._ledgers.merge(lease, batch.coverage)
        high_water = encode_json({"key": packed[-1].key, "occurred_at": packed[-1].occurred_at}) if packed else None

        def work(connection: sqlite3.Connection) -> Kept:
            if is_only_poll(batch):
                return self._keep_poll(connection, lease, batch)
            stream, now = batch.stream or lease.job.stream, to_text(self._clock.now())
            failpoint("keep.begun")
            items_stream = None if batch.is_aside else batch.stream
            place = (value, high_water, now, items_stream, lease.job.stream, lease.fence)
            moved = connection.execute(_MOVE, place).fetchall()
            if not moved:
                raise _fenced(lease)
            rows = connection.execute(_KNOWN, (stream, keys)) if packed else ()
            known = {key: (content_hash, revision) for key, content_hash, revision in rows}
            new = [item for item in packed if item.key not in known] if known else packed
            changed = [item for item in packed if item.key in known and known[item.key][0] != item.content_hash]
            shared = _shared_values(lease, batch, now)
            _insert(connection, _INSERT, _NEW_ROW, [_new_row(item) for item in new], shared)
            events = new
            if changed:
                connection.executemany(_ARCHIVE, [(stream, item.key) for item in changed])
                connection.executemany(_CHANGE, [_changed_row(lease, stream, item, now) for item in changed])
                touched = {item.key for item in (*new, *changed)}
                events = [item for item in packed if item.key in touched]
            revisions = [known.get(item.key, _NEW)[1] + 1 for item in events] if changed else None
            _add_events(connection, events, revisions, _existed(lease, moved[0][0], events), (stream, now, lease))
            if merged is not None:
                values = (lease.job.stream, lease.job.source, merged.text, merged.gaps, now)
                connection.execute(_COVER, values)
            if batch.pages:
                _insert(connection, _PAGES, _PAGE_ROW, _page_rows(batch.pages, now), (lease.job.stream,))
            if batch.blobs:
                blobs = [(blob.sha256, blob.media_type, len(blob.content), blob.content, now) for blob in batch.blobs]
                connection.executemany(_BLOBS, blobs)
            if batch.matches:
                found = [(lease.job.stream, page.url, encode_json(list(page.keys))) for page in batch.matches]
                connection.executemany(_MATCHES, found)
            if batch.files:
                connection.executemany(_FILES, [(stream, now, *astuple(file)) for file in batch.files])
            result = None
            if batch.poll is not None:
                result = self._learn(connection, lease, batch, [item.key for item in new], len(changed))
            failpoint("keep.written")
            return Kept(len(new), len(changed), len(batch.items) - len(new) - len(changed), result)

        kept = await self._database.hot("keep", work)
        if merged is not None:
            self._ledgers.store(lease, merged.ledger)
        return kept

    def _keep_poll(self, connection: sqlite3.Connection, lease: Lease, batch: Batch) -> Kept:
        if connection.execute(_FENCED, (lease.job.stream, lease.fence)).fetchone() is None:
            raise _fenced(lease)
        return Kept(poll=self._learn(connection, lease, batch, (), 0))

    def _learn(
        self, connection: sqlite3.Connection, lease: Lease, batch: Batch, new: Sequence[str], changed: int
    ) -> PollResult | None:
        """Learn from a poll, and set when the job is due again. Without job or budget there is nothing to learn for."""
        assert batch.poll is not None
        row = connection.execute(_KNOWN_SOURCE, (lease.job.job_id,)).fetchone()
        if row is None:
            return None
        lesson = lesson_of(row, batch, new, changed, self._clock.now())
        at, job_id = to_text(batch.poll.at), lease.job.job_id
        connection.execute(_LEARN, (job_id, lesson.learned, lesson.measured, at))
        connection.execute(_PLAN_NEXT, (to_text(lesson.next_run), job_id))
        return lesson.result

    async def relay(self, publish: Publish, *, limit: int) -> int:
        """Number the unsent events, publish them, then mark them as sent; a crash in between sends them again.

        Positions are written durably: after a power cut, a position that was published must not be given to another
        event.
        """

        def number(connection: sqlite3.Connection) -> list[Unsent]:
            events = [unsent_from_row(row) for row in connection.execute(_UNSENT, (limit,))]
            if events:
                connection.execute(_NUMBER, (events[-1].position,))
            return events

        events = await self._database.hot("relay", number, durable=True)
        if events:
            await publish(events)
            sent = (to_text(self._clock.now()), events[-1].position)
            await self._database.hot("relay", lambda connection: connection.execute(_SENT, sent).rowcount)
        return len(events)


def _fenced(lease: Lease) -> Fenced:
    return Fenced(f"{lease.job.stream} has passed to another worker; this batch was not kept")


def _insert(
    connection: sqlite3.Connection,
    statement: str,
    row: str,
    rows: Sequence[tuple[Any, ...]],
    shared: tuple[Any, ...],
) -> None:
    """Insert many rows with few statements: after each one this thread waits for the event loop's thread."""
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        values = [*shared, *chain.from_iterable(some)]
        connection.execute(statement.format(rows=", ".join([row] * len(some))), values)


def _existed(lease: Lease, checked_at: str | None, events: Sequence[Packed]) -> list[Existed | None]:
    """Return for each item whether it is older than this run."""
    checked = None if checked_at is None else from_text(checked_at)
    return [existed_before(item.occurred_at, checked, began=lease.scheduled_for) for item in events]


def _add_events(
    connection: sqlite3.Connection,
    items: Sequence[Packed],
    revisions: Sequence[int] | None,
    existed: Sequence[Existed | None],
    shared: tuple[str, str, Lease],
) -> None:
    """Write the events of items, in their order. `revisions` is None if all of them are new."""
    stream, now, lease = shared
    if revisions is None and len(set(existed)) == 1:
        keys = encode_json([item.key for item in items])
        connection.execute(_ADD_NEW_EVENTS, (stream, existed[0], now, lease.traceparent, keys))
    elif items:
        numbers = revisions or [1] * len(items)
        rows = zip(items, numbers, existed, strict=True)
        connection.executemany(_ADD_EVENT, [(stream, item.key, *row, now, lease.traceparent) for item, *row in rows])


def _page_rows(pages: Sequence[SitePage], now: str) -> list[tuple[Any, ...]]:
    return [
        (now if crawl else None, url, depth, place, crawl, *seen)
        for url, depth, place, crawl, *seen in pack_pages(pages)
    ]


def _shared_values(lease: Lease, batch: Batch, now: str) -> tuple[Any, ...]:
    job = lease.job
    owner = (job.tenant_id or batch.tenant_id, job.user_id or batch.user_id)
    return (batch.stream or job.stream, now, *owner, lease.execution_id, lease.fence)


def _new_row(item: Packed) -> tuple[Any, ...]:
    key, moment, data, content_hash, deleted = item
    return (key, moment and to_text(moment), data, content_hash, deleted)


def _changed_row(lease: Lease, stream: str, item: Packed, now: str) -> tuple[Any, ...]:
    key, moment, data, content_hash, deleted = item
    changes = (moment and to_text(moment), now, data, content_hash, deleted)
    return (*changes, lease.execution_id, lease.fence, stream, key)
