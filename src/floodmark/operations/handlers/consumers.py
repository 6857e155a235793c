"""Handlers of stored positions."""

from typing import Any, Literal

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.consumers import ConsumerRow, ConsumerState
from floodmark.model.exports import LogBounds
from floodmark.operations.consumers import ConsumerOperations
from floodmark.repositories.job_checks import check_json

from .base import Handlers

_KINDS = ("export", "reader")


class ConsumerHandlers(ConsumerOperations, Handlers):
    """Positions in the store."""

    async def consumers(self, *, kind: Literal["reader", "export"] | None = None) -> list[ConsumerState]:
        rows = [row for one in _KINDS if kind in (None, one) for row in await self.store.consumers.list(one)]
        log = await self.store.item_pages.bounds()
        return [_state_of(row, log) for row in rows]

    async def find_consumer(self, consumer: str) -> ConsumerState:
        return _state_of(await self._find(consumer), await self.store.item_pages.bounds())

    async def commit_position(
        self,
        consumer: str,
        position: int,
        *,
        before: int | None = None,
        place: str | None = None,
        state: Any = None,
    ) -> ConsumerState:
        remembered = check_json("state", state, hint="use text, numbers, lists and objects")
        log = await self.store.item_pages.bounds()
        if position > log.newest:
            raise InvalidInput(
                f"there is no event at position {position:,}: the newest is {log.newest:,}",
                hint="commit the position of an event that was read",
            )
        if before is None:
            is_moved = await self.store.consumers.add(consumer, position, place=place, state=remembered)
        else:
            is_moved = await self.store.consumers.move(consumer, before, position, state=remembered)
        found = await self._find(consumer)
        # A request that is sent again after its response was lost finds what it has done.
        if not is_moved and (found.position, found.state) != (position, remembered):
            expected = "new" if before is None else f"at position {before:,}"
            raise Conflict(
                f"{consumer} is not {expected}, but at {found.position:,}: another program moved it",
                hint="let only one program at a time read under this name, or use two names",
            )
        return _state_of(found, log)

    async def remove_consumer(self, consumer: str) -> ConsumerState:
        async with self.transaction():
            found = await self._find(consumer)
            await self.store.consumers.remove(consumer)
            await self.record("consumer.removed", f"consumer:{consumer}", before={"position": found.position})
        return _state_of(found, await self.store.item_pages.bounds())

    async def _find(self, consumer: str) -> ConsumerRow:
        found = await self.store.consumers.find(consumer)
        if found is None:
            known = [row.name for one in _KINDS for row in await self.store.consumers.list(one)]
            hint = f"there are: {', '.join(known[:5])}" if known else "a position is stored by the first commit"
            raise NotFound(f"{consumer[:60]} has no stored position", hint=hint)
        return found


def _state_of(row: ConsumerRow, log: LogBounds) -> ConsumerState:
    return ConsumerState(
        name=row.name, place=row.place, position=row.position, state=row.state, moved_at=row.moved_at, log=log
    )
