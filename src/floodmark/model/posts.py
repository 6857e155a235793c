"""Telegram posts: their streams and keys in the store, and their events.

A post is an item of the stream `telegram:<channel_id>` (of a tenant: `telegram:<tenant_id>:<channel_id>`) under the key
`<channel_id>:<message_id>`. Schemas of the events: `floodmark/schemas/`.
"""

import re
from datetime import datetime
from functools import lru_cache

import msgspec
from msgspec import UNSET, Struct, UnsetType

EVENT_SCHEMA_VERSION = "1.0.0"

PARSED, EDITED, DELETED = "PostParsedEventV1", "PostEditedEventV1", "PostDeletedEventV1"

_STREAM = re.compile(r"telegram:(?:(?P<tenant>.+):)?(?P<channel>-?[1-9]\d*)", re.ASCII | re.DOTALL)

_encoder = msgspec.json.Encoder()


class Chat(Struct, frozen=True, gc=False):
    """A channel as collected for a tenant. `id` is its number: names change, the number does not.

    The number of a basic group is negative.
    """

    id: int
    tenant_id: str | None = None


class PostEvent(Struct, frozen=True, gc=False):
    """An event of a post: its type, and its payload as JSON."""

    type: str
    payload: str


@lru_cache(maxsize=4096)
def chat_of(stream: str) -> Chat | None:
    """Return the chat whose posts a stream holds; None if it holds other items."""
    found = _STREAM.fullmatch(stream)
    return None if found is None else Chat(int(found["channel"]), found["tenant"])


def stream_of(chat: Chat) -> str:
    """Return the stream of the posts of a chat."""
    whose = "" if chat.tenant_id is None else f"{chat.tenant_id}:"
    return f"telegram:{whose}{chat.id}"


def post_key(chat: Chat, message_id: int) -> str:
    """Return the key of a post."""
    return f"{chat.id}:{message_id}"


def message_id_of(chat: Chat, key: str) -> int | None:
    """Return the number of a post in its chat; None if the key is not that of a post."""
    channel, _, number = key.partition(":")
    is_post = channel == str(chat.id) and number.isascii() and number.isdecimal()
    return int(number) if is_post else None


def idempotency_key(chat: Chat, posted_at: datetime, message_id: int) -> str:
    """Return `<chat>:<date>:<message_id>` with the UTC date: a post always has the same key."""
    # The first ten characters between quotes; `isoformat` takes ten times as long.
    return f"{chat.id}:{_encoder.encode(posted_at)[1:11].decode()}:{message_id}"


def post_event(
    *,
    event_id: str,
    stream: str,
    key: str,
    revision: int,
    deleted: bool,
    tenant_id: str | None,
    user_id: str | None,
    posted_at: datetime | None,
    collected_at: datetime,
    data: str,
) -> PostEvent | None:
    """Return the event of one revision of a post; None if the item is no post. Times are UTC, `data` is JSON."""
    chat = chat_of(stream)
    message_id = None if chat is None else message_id_of(chat, key)
    if chat is None or message_id is None or posted_at is None:
        return None
    kind = DELETED if deleted else PARSED if revision == 1 else EDITED
    envelope = _Envelope(
        event=kind,
        schema_version=EVENT_SCHEMA_VERSION,
        event_id=event_id,
        idempotency_key=idempotency_key(chat, posted_at, message_id),
        tenant_id=tenant_id,
        user_id=user_id,
        channel_id=chat.id,
        message_id=message_id,
        posted_at=posted_at,
        collected_at=collected_at,
        deleted_at=collected_at if deleted else UNSET,
        revision=revision,
    )
    # The post is JSON already: decoding it for every event would cost more than all the rest.
    return PostEvent(kind, f'{_encoder.encode(envelope).decode()[:-1]},"post":{data}}}')


class _Envelope(Struct, frozen=True, kw_only=True, gc=False):
    """The payload without the post, in the order of its fields."""

    event: str
    schema_version: str
    event_id: str
    idempotency_key: str
    tenant_id: str | None
    user_id: str | None
    channel_id: int
    message_id: int
    posted_at: datetime
    collected_at: datetime
    deleted_at: datetime | UnsetType
    revision: int
