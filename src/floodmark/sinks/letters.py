"""Events that the receiver of a sink refuses, until someone has them sent again or drops them. Table: `sink_letters`.

A letter names a revision of an item, and the content is read from the item: it outlives the event in the outbox.
"""

from collections.abc import Sequence

from sqlalchemy import Delete, Update, delete, func, select, update

from floodmark.errors import NotFound
from floodmark.model.sinks import SinkLetter
from floodmark.repositories.repository import Repository, bound_limit
from floodmark.store.dialects import chunks
from floodmark.store.outbox_rows import event_from_row
from floodmark.store.planned import fetch_planned, plan_events
from floodmark.store.port import Event

from .tables import sink_letters

# A receiver that refuses more than this many events refuses them all: the sink then waits for a person.
MOST_LETTERS = 1000
_LONGEST_ERROR = 1000

_TO_SEND = plan_events(
    "SELECT *, NULL AS traceparent FROM sink_letters WHERE sink = ?1 AND is_retried ORDER BY position LIMIT ?2"
)

_l = sink_letters.c


class SinkLetters(Repository):
    """Stores and lists letters."""

    async def add(self, sink: str, event: Event, error: str) -> None:
        """Store an event that was refused."""
        changing = {"error": error[:_LONGEST_ERROR], "failed_at": self._now(), "is_retried": False}
        values = {"stream": event.stream, "key": event.key, "revision": event.revision, **changing}
        statement = self._insert_into(sink_letters).values(sink=sink, position=event.position, **values)
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["sink", "position"], set_=values))

    async def count(self, sink: str) -> int:
        """Return the number of letters of a sink."""
        return int(await self._database.fetch_value(select(func.count()).where(_l.sink == sink)))

    async def page(self, sink: str, after: int | None = None, limit: int = 50) -> list[SinkLetter]:
        """Return letters in the order of their positions. The next page is after the position of the last one."""
        query = select(sink_letters).where(_l.sink == sink, _l.position > (-1 if after is None else after))
        rows = await self._database.fetch(query.order_by(_l.position).limit(bound_limit(limit, MOST_LETTERS)))
        return [SinkLetter(event_id=f"{row['stream']}/{row['key']}/{row['revision']}", **row) for row in rows]

    async def retry(self, sink: str, positions: Sequence[int] | None) -> int:
        """Have letters sent again, these or all; return how many."""
        return await self._change(update(sink_letters).values(is_retried=True), sink, positions)

    async def drop(self, sink: str, positions: Sequence[int] | None) -> int:
        """Forget letters, these or all; return how many."""
        return await self._change(delete(sink_letters), sink, positions)

    async def to_send(self, sink: str, limit: int) -> list[Event]:
        """Return the events of letters that are to be sent again, in order."""
        rows = await fetch_planned(self._database, _TO_SEND, sink, limit)
        return [event_from_row(row[:-1]) for row in rows]

    async def refuse_again(self, sink: str, positions: Sequence[int], error: str) -> None:
        """Record that letters were not accepted this time either."""
        values = {"error": error[:_LONGEST_ERROR], "failed_at": self._now(), "is_retried": False}
        async with self._database.writing() as connection:
            for some in chunks(positions):
                those = (_l.sink == sink, _l.position.in_(some))
                await connection.execute(update(sink_letters).where(*those).values(**values))

    async def _change(self, change: Update | Delete, sink: str, positions: Sequence[int] | None) -> int:
        count, those = 0, change.where(_l.sink == sink)
        parts = [those] if positions is None else [those.where(_l.position.in_(some)) for some in chunks(positions)]
        async with self._database.writing() as connection:
            for part in parts:
                count += (await connection.execute(part)).rowcount
        if not count:
            hint = f"list them with: floodmark sinks dead-letters {sink}"
            raise NotFound(f"the sink {sink} has no such dead letters", hint=hint)
        return count
