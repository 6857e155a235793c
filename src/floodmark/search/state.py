"""How far an index is built. Both databases store it as JSON."""

import secrets
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class IndexState(Struct, frozen=True, kw_only=True):
    """How far an index is built. `build` is another one whenever it is built from the beginning."""

    build: str
    version: str
    """The version of its tokens."""
    position: int
    """Every event up to this position is indexed, once it is filled."""
    event_id: str | None = None
    """The event at that position."""
    is_filling: bool = False
    """Whether the items that are older than `position` are still being added."""
    filled_to: tuple[str, str] | None = None
    """The stream and key of the last item that was added so."""
    documents: int = 0
    moved: int = 0
    """See `document_ids`."""
    updated_at: datetime | None = None


def new_state(version: str, position: int) -> IndexState:
    """Return the state of an empty index that will be filled."""
    return IndexState(
        build=secrets.token_hex(8), version=version, position=position, is_filling=True, updated_at=datetime.now(UTC)
    )


def is_same_progress(one: IndexState, other: IndexState) -> bool:
    """Return whether no process has built anything between two readings of the state."""
    return _progress(one) == _progress(other)


def _progress(state: IndexState) -> tuple[object, ...]:
    return state.build, state.position, state.is_filling, state.filled_to


def count_documents(before: IndexState, after: IndexState, *, added: int, replaced: int, moved: int) -> IndexState:
    """Return the state after documents were written."""
    return replace(
        after,
        documents=before.documents + added - replaced,
        moved=max(before.moved, moved),
        updated_at=datetime.now(UTC),
    )


def encode_state(state: IndexState) -> str:
    """Return a state as it is stored."""
    return msgspec.json.encode(state).decode()


def decode_state(stored: str) -> IndexState | None:
    """Return a stored state; None if another version has written it in a form of its own."""
    try:
        return msgspec.json.decode(stored, type=IndexState)
    except msgspec.MsgspecError:
        return None
