"""The topics of forum groups: each post gets the number and title of its topic. Imports Telethon.

A title costs a request once: it is remembered by the process. Without it, for example during a flood wait, a post is
collected with the number alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from telethon.tl import types
from telethon.tl.functions.messages import GetForumTopicsByIDRequest

from floodmark.errors import AccountLost, SourceError
from floodmark.model.batch import Item

from .channels import KnownChannel
from .sessions import Session

_GENERAL = 1
_METHOD = "messages.getForumTopicsByID"
# Titles that are remembered; a process that reads more topics forgets all and asks again.
_MOST_TITLES = 10_000
# Topics per request.
_MOST_AT_ONCE = 100

TopicTitles = dict[tuple[int, int], str]


async def add_topics(
    items: Sequence[Item], messages: Sequence[Any], session: Session, channel: KnownChannel, titles: TopicTitles
) -> int:
    """Add its topic to each item, and return the number of requests."""
    topics = {message.id: _topic_of(message) for message in messages if not isinstance(message, types.MessageEmpty)}
    _learn(messages, topics, channel.channel_id, titles)
    unknown = {number for number in topics.values() if (channel.channel_id, number) not in titles}
    requests = await _ask(session, channel, sorted(unknown)[:_MOST_AT_ONCE], titles) if unknown else 0
    for item in items:
        number = topics[item.data["id"]]
        title = titles.get((channel.channel_id, number))
        item.data["topic"] = {"id": number, **({"title": title} if title else {})}
    return requests


def _topic_of(message: Any) -> int:
    """Return the number of a message's topic: that of the message which created it, or of the general topic."""
    if isinstance(message.action, types.MessageActionTopicCreate):
        return int(message.id)
    header = message.reply_to
    if not getattr(header, "forum_topic", None):
        return _GENERAL
    return int(header.reply_to_top_id or header.reply_to_msg_id or _GENERAL)


def _learn(messages: Sequence[Any], topics: Mapping[int, int], channel_id: int, titles: TopicTitles) -> None:
    """Take titles from the messages that create or rename a topic."""
    for message in messages:
        action = getattr(message, "action", None)
        title = getattr(action, "title", None)
        if title and isinstance(action, types.MessageActionTopicCreate | types.MessageActionTopicEdit):
            titles[channel_id, topics[message.id]] = title


async def _ask(session: Session, channel: KnownChannel, numbers: Sequence[int], titles: TopicTitles) -> int:
    if len(titles) > _MOST_TITLES:
        titles.clear()
    peer = types.InputPeerChannel(channel.channel_id, channel.access_hash)
    try:
        answer = await session.call(
            _METHOD, GetForumTopicsByIDRequest(peer, list(numbers)), target="", channel_id=channel.channel_id
        )
    except AccountLost:
        raise
    except SourceError:
        # Refused, or a flood wait of this method: a post must not be late for the title of its topic.
        return 1
    # A deleted topic has no title, and is not asked for again.
    titles.update({(channel.channel_id, number): "" for number in numbers})
    titles.update({(channel.channel_id, topic.id): getattr(topic, "title", "") for topic in answer.topics})
    return 1
