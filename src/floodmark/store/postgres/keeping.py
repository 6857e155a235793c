"""Writes items, watermark and events in one statement on PostgreSQL, and numbers events for readers.

Tables: `watermarks` (with the fence), `items`, `item_revisions`, `outbox`, `completeness`, `pages`, `blobs`, `media`;
for jobs with a budget `activity` and `jobs.next_run`. The row of the watermark is locked first, so that two calls for
one stream run one after the other, and their events have the same order.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple, replace

from floodmark.errors import Fenced
from floodmark.model.batch import Batch, Kept, PollResult
from floodmark.model.clock import Clock
from floodmark.model.execution import Lease
from floodmark.process.failpoints import failpoint
from floodmark.store.budget_rows import KNOWN_SELECT, is_only_poll, lesson_of
from floodmark.store.database import PostgresDatabase, encode_json
from floodmark.store.item_rows import pack, pack_pages, pack_watermark
from floodmark.store.known_ledgers import KnownLedgers
from floodmark.store.outbox_rows import unsent_from_row
from floodmark.store.port import Publish
from floodmark.store.postgres_connection import Connection
from floodmark.store.rule_sql import ADAPTIVE, match_key

_KEEP = """
WITH moved AS (
    UPDATE watermarks
       SET value = COALESCE($3::jsonb, value), high_water = COALESCE($4::jsonb, high_water),
           items_stream = COALESCE($14, items_stream), moved_at = clock_timestamp()
     WHERE stream = $13 AND fence = $2
    RETURNING last_checked_at
), incoming AS (
    SELECT n.* FROM unnest($5::text[], $6::timestamptz[], $7::bytea[], $8::text[], $9::bool[])
      WITH ORDINALITY AS n(key, occurred_at, data, content_hash, deleted, place)
     WHERE EXISTS (SELECT 1 FROM moved)
), new AS (
    INSERT INTO items (stream, key, occurred_at, collected_at, tenant_id, user_id, data, content_hash, deleted,
                       execution_id, fence)
    SELECT $1, n.key, n.occurred_at, clock_timestamp(), $10, $11, convert_from(n.data, 'UTF8')::jsonb, n.content_hash,
           n.deleted, $12, $2
      FROM incoming n ORDER BY n.place
    ON CONFLICT (stream, key) DO NOTHING
    RETURNING key, occurred_at
), stored AS MATERIALIZED (
    -- LATERAL forces one look-up per key: otherwise the planner reads the whole stream.
    SELECT i.*, n.occurred_at AS new_occurred_at, n.data AS new_data, n.content_hash AS new_content_hash,
           n.deleted AS new_deleted
      FROM unnest($5::text[], $6::timestamptz[], $7::bytea[], $8::text[], $9::bool[])
             AS n(key, occurred_at, data, content_hash, deleted)
     CROSS JOIN LATERAL (
          SELECT * FROM items i WHERE i.stream = $1 AND i.key = n.key AND i.content_hash <> n.content_hash LIMIT 1
      ) i
     -- Usually all are new, and nothing more is looked at.
     WHERE (SELECT count(*) FROM new) < cardinality($5) AND EXISTS (SELECT 1 FROM moved)
       AND n.key NOT IN (SELECT key FROM new)
), archived AS (
    INSERT INTO item_revisions (stream, key, revision, occurred_at, collected_at, data, content_hash, deleted,
                                execution_id, fence)
    SELECT stream, key, revision, occurred_at, collected_at, data, content_hash, deleted, execution_id, fence
      FROM stored
    -- Another job that collects the same items has archived the revision already.
    ON CONFLICT DO NOTHING
    RETURNING key
), changed AS (
    UPDATE items i
       SET revision = i.revision + 1, occurred_at = s.new_occurred_at, collected_at = clock_timestamp(),
           data = convert_from(s.new_data, 'UTF8')::jsonb, content_hash = s.new_content_hash, deleted = s.new_deleted,
           execution_id = $12, fence = $2
      FROM stored s
     WHERE {its_key} AND i.revision = s.revision
       -- Replace only what this statement has archived: otherwise the other job's item stays.
       AND CASE WHEN s.key IN (SELECT key FROM archived) THEN TRUE END
    RETURNING i.key, i.revision, i.occurred_at
), events AS (
    INSERT INTO outbox (stream, key, revision, created_at, traceparent, existed)
    SELECT $1, k.key, k.revision, clock_timestamp(), $15,
           -- `rules.backfill.existed_before`
           CASE WHEN (SELECT last_checked_at FROM moved) IS NULL
                THEN CASE WHEN k.occurred_at >= $16::timestamptz THEN NULL ELSE 'first_run' END
                WHEN k.occurred_at < (SELECT last_checked_at FROM moved) THEN 'last_run' END
      -- New items come in the order of the batch; changed ones have to be put between them.
      FROM (SELECT key, 1 AS revision, occurred_at FROM new WHERE NOT EXISTS (SELECT 1 FROM changed)
             UNION ALL
            (SELECT b.key, b.revision, b.occurred_at
               FROM (SELECT key, 1 AS revision, occurred_at FROM new
                      UNION ALL SELECT key, revision, occurred_at FROM changed) b
              WHERE EXISTS (SELECT 1 FROM changed) ORDER BY array_position($5, b.key))) k
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM new), (SELECT count(*) FROM changed)
""".replace("{its_key}", f"{match_key('i.stream', 's.stream')} AND {match_key('i.key', 's.key')}")

_COVER = """, covered AS (
    INSERT INTO completeness (stream, source, value, gaps, updated_at)
    SELECT $13, $17, $18::jsonb, $19, clock_timestamp() FROM moved
    ON CONFLICT (stream) DO UPDATE
       SET source = excluded.source, value = excluded.value, gaps = excluded.gaps, updated_at = excluded.updated_at
)
SELECT (SELECT count(*) FROM moved)"""


def _list_keys(statement: str) -> str:
    """Return the statement with the keys of new items: they teach when the source has new ones."""
    return f"{statement.rstrip()}, (SELECT array_agg(key) FROM new)"


_KEEP_AND_COVER = _KEEP.replace("\nSELECT (SELECT count(*) FROM moved)", _COVER)
_KEEP_AND_LIST, _KEEP_COVER_AND_LIST = _list_keys(_KEEP), _list_keys(_KEEP_AND_COVER)
_FENCED = "SELECT 1 FROM watermarks WHERE stream = $1 AND fence = $2 FOR UPDATE"
# Locked: the row of `activity` needs the job to stay.
_KNOWN = f"""
SELECT clock_timestamp(), {KNOWN_SELECT}
  FROM jobs j JOIN budgets b ON b.name = j.budget LEFT JOIN activity a ON a.job_id = j.job_id
 WHERE j.job_id = $1 FOR KEY SHARE OF j
"""
_LEARN = f"""
WITH learned AS (
    INSERT INTO activity (job_id, learned, measured, polled_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (job_id) DO UPDATE
       SET learned = excluded.learned, measured = excluded.measured, polled_at = excluded.polled_at
)
-- The condition of an index in plain sight would offer that index: it has all adaptive jobs.
UPDATE jobs j SET next_run = $5 WHERE j.job_id = $1 AND CASE WHEN j.next_run IS NOT NULL THEN {ADAPTIVE} END
"""

# Only a page of a later crawl replaces a row; a page that was only found again has no news.
_PAGES = """
INSERT INTO pages AS p (stream, url, depth, place, crawl, status, etag, last_modified, content_hash, misses, note,
                        visited_at)
SELECT $1, n.*, CASE WHEN n.crawl > 0 THEN clock_timestamp() END
  FROM unnest($2::text[], $3::int[], $4::bigint[], $5::int[], $6::int[], $7::text[], $8::text[], $9::text[],
              $10::int[], $11::text[])
    AS n(url, depth, place, crawl, status, etag, last_modified, content_hash, misses, note)
ON CONFLICT (stream, url) DO UPDATE
   SET crawl = excluded.crawl, status = excluded.status, etag = excluded.etag,
       last_modified = excluded.last_modified, content_hash = excluded.content_hash, misses = excluded.misses,
       note = excluded.note, visited_at = excluded.visited_at
 WHERE excluded.crawl > p.crawl
"""

_BLOBS = """
INSERT INTO blobs (sha256, media_type, size, content)
SELECT DISTINCT ON (n.sha256) n.sha256, n.media_type, length(n.content), n.content
  FROM unnest($1::text[], $2::text[], $3::bytea[]) AS n(sha256, media_type, content)
 ORDER BY n.sha256
ON CONFLICT (sha256) DO UPDATE SET kept_at = clock_timestamp()
"""

_MATCHES = """
INSERT INTO page_matches (stream, url, keys)
SELECT $1, n.url, n.keys::jsonb FROM unnest($2::text[], $3::text[]) AS n(url, keys)
ON CONFLICT (stream, url) DO UPDATE SET keys = excluded.keys
"""

# A file that is posted again keeps its state; if it is still wanted, its newest post is the one to get it from.
_FILES = """
INSERT INTO media AS m (stream, media_id, kind, key, channel_id, message_id, size, media_type, filename, state, error)
SELECT DISTINCT ON (n.media_id) $1, n.media_id, n.kind, n.key, n.channel_id, n.message_id, n.size, n.media_type,
       n.filename, CASE WHEN n.skipped IS NULL THEN 'wanted' ELSE 'skipped' END, n.skipped
  FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[],
              $10::text[])
    AS n(media_id, kind, key, channel_id, message_id, size, media_type, filename, skipped)
 ORDER BY n.media_id, n.message_id DESC
ON CONFLICT (media_id) DO UPDATE
   SET stream = excluded.stream, key = excluded.key, channel_id = excluded.channel_id,
       message_id = excluded.message_id
 WHERE m.state = 'wanted' AND (m.channel_id, m.message_id) <> (excluded.channel_id, excluded.message_id)
"""

# Held to the end of the transaction, so that even two leaders relay one after the other and in order.
# Rows are looked up by their keys, whatever the statistics say: those of a table that was analysed just after all its
# rows had been deleted make a plan that reads all events for every event.
_ONE_RELAY = "SELECT pg_try_advisory_xact_lock(hashtext('floodmark.relay'))"

_NUMBER = """
WITH unsent AS MATERIALIZED (SELECT seq FROM outbox WHERE sent_at IS NULL ORDER BY seq LIMIT $1),
base AS MATERIALIZED (
    SELECT COALESCE((SELECT position FROM outbox WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1), 0)
        AS position
),
numbered AS MATERIALIZED (
    SELECT unsent.seq, base.position + row_number() OVER (ORDER BY unsent.seq) AS position FROM unsent, base
), marked AS (
    UPDATE outbox o SET position = n.position, sent_at = clock_timestamp()
      FROM numbered n WHERE o.seq = n.seq AND o.seq = ANY (ARRAY(SELECT seq FROM unsent)) RETURNING o.*
)
SELECT m.position, m.stream, m.key, m.revision,
       CASE WHEN r.key IS NULL THEN i.occurred_at ELSE r.occurred_at END, COALESCE(r.collected_at, i.collected_at),
       COALESCE(r.data, i.data), COALESCE(r.deleted, i.deleted), i.tenant_id, i.user_id, m.traceparent
  FROM marked m
  CROSS JOIN LATERAL (SELECT * FROM items i WHERE i.stream = m.stream AND i.key = m.key LIMIT 1) i
  LEFT JOIN LATERAL (
    SELECT * FROM item_revisions r
     WHERE r.stream = m.stream AND r.key = m.key AND r.revision = m.revision LIMIT 1) r ON true
 ORDER BY m.position
"""


class PostgresKeeping:
    """Keeps batches and relays events on PostgreSQL."""

    def __init__(self, database: PostgresDatabase, *, clock: Clock) -> None:
        self._database = database
        self._ledgers = KnownLedgers(database, clock)

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch and move the watermark, or raise `Fenced` and change nothing."""
        packed = pack(batch.items)
        newest = packed[-1] if packed else None
        columns = list(zip(*packed, strict=True)) if packed else [(), (), (), (), ()]
        merged = None if batch.coverage is None else await self._ledgers.merge(lease, batch.coverage)
        keep, keep_and_list = (_KEEP, _KEEP_AND_LIST) if merged is None else (_KEEP_AND_COVER, _KEEP_COVER_AND_LIST)
        arguments: tuple[Any, ...] = (
            batch.stream or lease.job.stream,
            lease.fence,
            pack_watermark(batch.watermark),
            None if newest is None else encode_json({"key": newest.key, "occurred_at": newest.occurred_at}),
            *columns,
            lease.job.tenant_id or batch.tenant_id,
            lease.job.user_id or batch.user_id,
            lease.execution_id,
            lease.job.stream,
            None if batch.is_aside else batch.stream,
            lease.traceparent,
            lease.scheduled_for,
        )
        if merged is not None:
            arguments = (*arguments, lease.job.source, merged.text, merged.gaps)

        async def work(connection: Connection) -> Kept:
            failpoint("keep.begun")
            row = await connection.fetchrow(keep, *arguments)
            assert row is not None
            kept = _count(lease, batch, *row)
            failpoint("keep.written")
            return kept

        async def work_with_more(connection: Connection) -> Kept:
            async with connection.transaction():
                kept = await (work if batch.poll is None else work_and_learn)(connection)
                if batch.pages:
                    await connection.execute(_PAGES, lease.job.stream, *zip(*pack_pages(batch.pages), strict=True))
                if batch.blobs:
                    await connection.execute(_BLOBS, *zip(*map(astuple, batch.blobs), strict=True))
                if batch.matches:
                    found = {page.url: encode_json(list(page.keys)) for page in batch.matches}
                    await connection.execute(_MATCHES, lease.job.stream, list(found), list(found.values()))
                if batch.files:
                    stream = batch.stream or lease.job.stream
                    await connection.execute(_FILES, stream, *zip(*map(astuple, batch.files), strict=True))
                return kept

        async def work_and_learn(connection: Connection) -> Kept:
            failpoint("keep.begun")
            moved, new, changed, keys = None, 0, 0, None
            if is_only_poll(batch):
                moved = await connection.fetchval(_FENCED, lease.job.stream, lease.fence)
            elif (row := await connection.fetchrow(keep_and_list, *arguments)) is not None:
                moved, new, changed, keys = row
            kept = _count(lease, batch, moved, new, changed)
            result = await _learn(connection, lease, batch, keys or (), changed)
            failpoint("keep.written")
            return replace(kept, poll=result)

        is_more = any((batch.pages, batch.blobs, batch.matches, batch.files)) or batch.poll is not None
        kept = await self._database.hot("keep", work_with_more if is_more else work)
        if merged is not None:
            self._ledgers.store(lease, merged.ledger)
        return kept

    async def relay(self, publish: Publish, *, limit: int) -> int:
        """Number the unsent events in order, and publish them before the commit."""

        async def work(connection: Connection) -> int:
            async with connection.transaction():
                if not await connection.fetchval(_ONE_RELAY):
                    return 0
                events = [unsent_from_row(row) for row in await connection.fetch(_NUMBER, limit)]
                if events:
                    await publish(events)
                return len(events)

        return await self._database.hot("relay", work)


def _count(lease: Lease, batch: Batch, moved: int | None, new: int, changed: int) -> Kept:
    if not moved:
        raise Fenced(f"{lease.job.stream} has passed to another worker; this batch was not kept")
    return Kept(new, changed, len(batch.items) - new - changed)


async def _learn(
    connection: Connection, lease: Lease, batch: Batch, new: Sequence[str], changed: int
) -> PollResult | None:
    """Learn from a poll, and set when the job is due again. Without a job or a budget there is nothing to learn for."""
    assert batch.poll is not None
    row = await connection.fetchrow(_KNOWN, lease.job.job_id)
    if row is None:
        return None
    now, *known = row
    lesson = lesson_of(known, batch, new, changed, now)
    values = (lesson.learned, lesson.measured, batch.poll.at, lesson.next_run)
    await connection.execute(_LEARN, lease.job.job_id, *values)
    return lesson.result
