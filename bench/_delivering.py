"""Watches, sinks and an account in a large installation, for the pages that show them."""

from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins
from sqlalchemy import insert

from floodmark.model.watches import WatchFields
from floodmark.notifications.port import Notification
from floodmark.sinks.tables import sink_letters
from floodmark.sources.telegram.tables import accounts
from floodmark.watches.repository import WatchRepository
from floodmark.watches.tables import watch_channels, watch_counts, watch_matches, watch_notifications, watches
from floodmark.wiring.resources import Resources

# The watch, the sink and the account that a page of one of them shows.
SHOWN = "news"
_WATCHES, _MATCHES, _LETTERS, _AT_ONCE = 10_000, 10_000, 20_000, 2000


async def fill_delivery(resources: Resources) -> None:
    """Write ten thousand watches, the matches and messages of one of them, and sinks with dead letters."""
    now, names = datetime.now(UTC), [SHOWN, *(f"watch-{number:05}" for number in range(1, _WATCHES))]
    # The first one also makes the row of the evaluator.
    first = await WatchRepository(resources.database, resources.clock).add(
        WatchFields(name=SHOWN, query="fire OR smoke", notify=("slack",))
    )
    ids = [first.watch_id, *(f"watch{number:027}" for number in range(1, _WATCHES))]
    others = list(zip(ids, names, strict=True))[1:]
    named = [{"watch_id": one, "name": name, "query": "fire", "generation": 1} for one, name in others]
    await _write(resources, watches, named)
    await _write(resources, watch_counts, [{"watch_id": one, "matches": 40, "last_match_at": now} for one, _ in others])
    used = [{"watch_id": one, "channel": name, "sent_at": now} for one, _ in others for name in ("slack", "email")]
    await _write(resources, watch_channels, used)
    match = {
        "watch_id": ids[0],
        "stream": "source-0000007",
        "at": now,
        "is_due": True,
        "title": "Fire",
        "text": "x" * 300,
    }
    await _write(resources, watch_matches, [{**match, "event_id": f"event {number}"} for number in range(_MATCHES)])
    message = Notification(id="1", kind="watch", status="match", title="fires: 1 match", at=now, instance="bench")
    sent = {"watch_id": ids[0], "channel": "slack", "matches": 1, "message": to_builtins(message), "attempts": 1}
    sent_ids = [f"message{number:025}" for number in range(_MATCHES)]
    await _write(resources, watch_notifications, [{**sent, "notification_id": one, "sent_at": now} for one in sent_ids])
    for number, name in enumerate((SHOWN, "archive", "lake", "search")):
        await resources.repositories.sinks.register(name, "webhook", None)
        await resources.repositories.sinks.start(name, number, place=f"https://{name}.example/in")
    letter = {"sink": SHOWN, "stream": "source-0000007", "key": "7", "revision": 1, "error": "HTTP 422"}
    await _write(resources, sink_letters, [{**letter, "position": number} for number in range(1, _LETTERS)])
    await _write(resources, accounts, [{"name": SHOWN, "api_id": 1, "secrets": "none"}])


async def _write(resources: Resources, table: Any, rows: list[dict[str, Any]]) -> None:
    async with resources.database.working_long() as connection:
        for begin in range(0, len(rows), _AT_ONCE):
            await connection.execute(insert(table), rows[begin : begin + _AT_ONCE])
