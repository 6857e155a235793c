"""Tells how complete the search index is."""

from floodmark.model.search import IndexCondition, IndexStatus

from .port import SearchIndex
from .state import IndexState
from .stored_items import StoredItems
from .tokens import VERSION

# A running scheduler indexes an item within two seconds. Only a greater lag is worth a word.
_BEHIND_SECONDS = 5.0
OFF = IndexStatus(condition="off", items=0, most_items=0, pending=0, lag_seconds=0.0, is_followed=False)


async def read_status(index: SearchIndex, items: StoredItems, *, is_followed: bool) -> IndexStatus:
    """Return how complete an index is. `is_followed`: a scheduler is running."""
    state = await index.read_state()
    events = await items.measure(0 if state is None else state.position)
    position = events.newest if state is None else state.position
    is_valid = state is not None and state.version == VERSION and events.before_oldest <= position <= events.newest
    return IndexStatus(
        condition=_condition(state, events.lag, is_valid=is_valid, is_followed=is_followed),
        items=0 if state is None else state.documents,
        most_items=events.newest,
        pending=await items.count_after(position) if events.has_more else 0,
        lag_seconds=round(events.lag, 1),
        is_followed=is_followed,
        updated_at=None if state is None else state.updated_at,
    )


def _condition(state: IndexState | None, lag: float, *, is_valid: bool, is_followed: bool) -> IndexCondition:
    if state is None:
        return "missing"
    if state.is_filling or not is_valid:
        return "building"
    return "behind" if lag > (_BEHIND_SECONDS if is_followed else 0.0) else "ready"
