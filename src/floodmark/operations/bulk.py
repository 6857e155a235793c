"""Many jobs in one request."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from floodmark.model.bulk import MOST_OPERATIONS, Action, BulkReport, JobAction

from .declaration import Body, post
from .jobs import columns_to_send

_COLUMNS = ("job", "columns")
_EXAMPLE = [
    {"op": "add", "job": {"source": "telegram", "target": "@example_news", "interval_seconds": 300}},
    {"op": "tag", "name": "news", "add": ["daily"]},
]


def action_to_send(action: Action) -> dict[str, Any]:
    """Return an operation of a bulk request as JSON values."""
    given = {"op": action.__struct_config__.tag, **msgspec.structs.asdict(action)}
    return {name: columns_to_send(value) if name in _COLUMNS else value for name, value in given.items()}


class BulkOperations:
    """Create, change and remove many jobs."""

    @post(
        "/jobs/bulk",
        tag="Jobs",
        body=("BulkIn", "Changes of many jobs."),
        is_repeatable=True,
    )
    async def bulk_jobs(
        self,
        operations: Annotated[
            Sequence[Action],
            Body(
                "The operations. Only one of them may name the same job.",
                type=list[JobAction],
                send=lambda operations: [action_to_send(one) for one in operations],
                min_length=1,
                max_length=MOST_OPERATIONS,
                examples=[_EXAMPLE],
            ),
        ],
        *,
        atomic: Annotated[bool, Body("Carry out all operations or none.")] = False,
        dry_run: Annotated[bool, Body("Report what would be done, and change nothing.")] = False,
    ) -> BulkReport:
        """Change many jobs. Up to 10,000 operations; the answer has a result for each, in the same order.

        The status is 200 even if operations fail: look at `failed`. Each operation is carried out if it can be, all
        others too; with `atomic` all of them or none. Only one operation may name the same job. `pause` and `resume`
        need the role operate, all others admin.
        """
