"""Stored positions of readers and exports."""

from typing import Annotated, Any, Literal

from floodmark.model.consumers import ConsumerState

from .declaration import WHOLE_LIST, Body, Path, Query, delete, get, put
from .streams import FARTHEST
from .words import Text

_TAG = "Consumers"

ConsumerName = Annotated[
    str,
    Path(
        "Its kind and its name. Write a `/` as `%2F`.",
        pattern=r"^(reader|export):[^\x00-\x1f]+$",
        max_length=500,
        examples=["reader:indexer"],
    ),
]
Position = Annotated[int, Body("The position of the last processed event.", ge=0, le=FARTHEST)]


class ConsumerOperations:
    """Show, move and remove the positions of readers and exports."""

    @get("/consumers", tag=_TAG, operation_id="list_consumers", envelope=WHOLE_LIST)
    async def consumers(
        self, *, kind: Annotated[Literal["reader", "export"] | None, Query("Only readers, or only exports.")] = None
    ) -> list[ConsumerState]:
        """List the positions of readers and exports. They are sorted by name."""

    @get("/consumers/{consumer}", tag=_TAG, operation_id="show_consumer")
    async def find_consumer(self, consumer: ConsumerName) -> ConsumerState:
        """Show the position of a reader or an export."""

    @put("/consumers/{consumer}", tag=_TAG, body=("PositionIn", "A new position."))
    async def commit_position(
        self,
        consumer: ConsumerName,
        position: Position,
        *,
        before: Annotated[
            int | None,
            Body("Its position until now; null if it has none. Refused with 409 if it has another.", ge=0, le=FARTHEST),
        ] = None,
        place: Annotated[Text | None, Body("The destination of an export, set with its first position.")] = None,
        state: Annotated[Any, Body("What it remembers beside its position, as JSON.")] = None,
    ) -> ConsumerState:
        """Move a position. Two readers with the same name cannot both move it, so that neither skips events."""

    @delete("/consumers/{consumer}", role="operate", tag=_TAG)
    async def remove_consumer(self, consumer: ConsumerName) -> ConsumerState:
        """Remove a position. A reader with this name starts again; an export writes all items again."""
