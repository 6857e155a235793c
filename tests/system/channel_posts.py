"""Posts as the Telegram source keeps them, for tests of what becomes of them afterwards."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema

from floodmark.model.batch import Batch, Item
from floodmark.model.execution import Lease
from floodmark.model.outcome import Done
from floodmark.schemas import schema
from floodmark.testing.factories import given_lease, settle
from floodmark.wiring.resources import Resources

HARBOUR = 1_000_001
DAY = datetime(2026, 6, 1, tzinfo=UTC)


def a_post(message_id: int, text: str = "News", *, chat: int = HARBOUR, gone: bool = False, **fields: Any) -> Item:
    """The item of one message; a minute for each number, unless `at` says otherwise."""
    at: datetime = fields.pop("at", DAY + timedelta(minutes=message_id))
    data = {
        "id": message_id,
        "channel_id": chat,
        "date": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "text": text,
        "kind": "message",
        **fields,
    }
    return Item(f"{chat}:{message_id}", data, at, fingerprint=text, deleted=gone)


async def keep(
    resources: Resources, posts: Sequence[Item], *, stream: str = f"telegram:{HARBOUR}", **job: Any
) -> Lease:
    """A whole run that keeps these posts."""
    lease = await given_lease(resources, **job)
    await resources.keeping.keep(lease, Batch(posts, {"id": len(posts)}, stream=stream))
    await settle(resources, lease, Done())
    return lease


def validate(name: str, document: Any) -> None:
    """Raise unless the document is as the schema of that name says."""
    jsonschema.Draft202012Validator(
        schema(name), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).validate(document)
