"""What happens in a channel reaches clients that listen, and those that come back."""

import asyncio
from pathlib import Path
from typing import Any

from telethon import events
from telethon.sessions import SQLiteSession
from telethon.tl.functions.updates import GetChannelDifferenceRequest
from telethon.tl.types import ChannelMessagesFilterEmpty, updates

from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend

from .conftest import Connect


class Seen:
    """What a client was told."""

    def __init__(self, client: Any) -> None:
        self.new: list[int] = []
        self.edited: list[str] = []
        self.deleted: list[int] = []
        client.add_event_handler(self._on_new, events.NewMessage())
        client.add_event_handler(self._on_edit, events.MessageEdited())
        client.add_event_handler(self._on_delete, events.MessageDeleted())

    async def _on_new(self, event: Any) -> None:
        self.new.append(event.message.id)

    async def _on_edit(self, event: Any) -> None:
        self.edited.append(event.message.message)

    async def _on_delete(self, event: Any) -> None:
        self.deleted += event.deleted_ids


async def test_live_posts_edits_and_deletions_are_pushed(channel: Channel, connect: Connect) -> None:
    client = await connect()
    seen = Seen(client)
    await client.get_messages("harbour")

    posted = [channel.post("one"), channel.grow(), *channel.album(["two", "three"])]
    channel.edit(posted[0], "one, corrected")
    channel.delete(posted[-1])

    await eventually(lambda: seen.deleted == [posted[-1]])
    assert (seen.new, seen.edited) == (posted, ["one, corrected"])


async def test_nobody_is_told_who_did_not_ask(channel: Channel, connect: Connect) -> None:
    quiet, loud = await connect(receive_updates=False), await connect()
    heard, unheard = Seen(loud), Seen(quiet)
    for client in (quiet, loud):
        await client.get_messages("harbour")

    posted = channel.post("hello")

    await eventually(lambda: heard.new == [posted])
    assert unheard.new == []


async def test_a_client_that_was_away_catches_up(
    channel: Channel, server: LoopbackTelegram, connect: Connect, tmp_path: Path
) -> None:
    server.write_session("reader1", tmp_path / "s")
    first = await connect(session=SQLiteSession(str(tmp_path / "s")))
    seen = Seen(first)
    await first.get_messages("harbour")
    known = channel.post("the client learns where the channel stands")
    await eventually(lambda: seen.new == [known])
    await first.disconnect()

    missed = [channel.post(f"missed {n}") for n in range(5)]
    again = await connect(session=SQLiteSession(str(tmp_path / "s")), catch_up=True)
    seen = Seen(again)
    await again.catch_up()

    await eventually(lambda: seen.new == missed)


async def test_who_missed_too_much_is_only_told_where_it_stands(channel: Channel, connect: Connect) -> None:
    client = await connect()
    entity = await client.get_input_entity("harbour")

    async def since(pts: int) -> Any:
        return await client(GetChannelDifferenceRequest(entity, ChannelMessagesFilterEmpty(), pts, 100))

    before = channel.pts
    posted = [channel.post(str(n)) for n in range(3)]
    assert [m.id for m in (await since(before)).new_messages] == posted
    assert isinstance(await since(channel.pts), updates.ChannelDifferenceEmpty)
    for n in range(100):
        channel.post(str(n))
    too_long = await since(before)
    assert isinstance(too_long, updates.ChannelDifferenceTooLong)
    assert too_long.dialog.pts == channel.pts


async def test_pushes_survive_a_reconnect(channel: Channel, server: LoopbackTelegram, connect: Connect) -> None:
    client = await connect()
    seen = Seen(client)
    await client.get_messages("harbour")
    server.disconnect()
    await eventually(lambda: server.connections == 2)
    await asyncio.wait_for(client.get_messages("harbour"), 60)

    posted = channel.post("hello")

    await eventually(lambda: seen.new == [posted])


async def test_only_members_and_the_last_active_connection_get_updates(
    backend: TelegramBackend, channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    public = backend.channel("market", members=())
    first, second = await connect(), await connect()
    seen, later = Seen(first), Seen(second)
    for client in (first, second):
        await client.get_messages("harbour")

    public.post("only for members")
    one = channel.post("one")
    await eventually(lambda: later.new == [one])
    await first.get_messages("harbour")
    two = channel.post("two")
    await eventually(lambda: seen.new == [two])
    assert (later.new, server.pushed) == ([one], 2)


async def test_updates_can_be_lost_repeated_and_late(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect()
    seen = Seen(client)
    await client.get_messages("harbour")

    server.disturb_updates(lose=1.0)
    channel.post("lost")
    await eventually(lambda: server.unpushed == 1)
    server.disturb_updates(duplicate=1.0)
    channel.post("twice")
    await eventually(lambda: server.pushed == 2)
    server.disturb_updates(delay=0.2)
    late = channel.post("late")
    assert server.pushed == 2
    await eventually(lambda: seen.new[-1:] == [late])
    await eventually(lambda: (server.pushed, server.unpushed) == (3, 1))
