"""Hash chains of streams: what was stored when, verifiable without the database."""

from datetime import date, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

FORMAT = "floodmark-proof-1"
ProofEntry = tuple[str, int, str, bool, str | None, str]
"""Key, revision, time of storage, whether it is deleted, time of the item, SHA-256 of its data: one stored revision."""


class ProofLink(Struct, frozen=True, kw_only=True):
    """A link of the chain of a stream: some revisions in the order in which they were stored, and their digest."""

    number: Annotated[int, Meta(description="1 for the first link of the stream.", ge=1)]
    day: Annotated[date, Meta(description="The UTC day on which the entries were stored.")]
    previous: Annotated[str, Meta(description="The digest of the link before; 64 zeros for the first one.")]
    digest: Annotated[str, Meta(description="SHA-256 of this link and its entries, in hexadecimal.")]
    entries: Annotated[
        tuple[ProofEntry, ...],
        Meta(
            description="For each revision: key, revision, time of storage, whether it is deleted, time of the item,"
            " SHA-256 of its data."
        ),
    ]


class ProofHead(Struct, frozen=True, kw_only=True):
    """The end of the chain of a stream. Its digest is enough to check everything before it."""

    stream: str
    links: Annotated[int, Meta(description="The number of links.")]
    day: Annotated[date, Meta(description="The UTC day of the last link.")]
    digest: Annotated[str, Meta(description="The digest of the last link. Publish it to prove later what was there.")]


class ProvenItem(Struct, frozen=True, kw_only=True):
    """One revision of an item, as an export has it."""

    key: str
    revision: int
    collected_at: datetime
    deleted: bool
    occurred_at: datetime | None
    data: Any
