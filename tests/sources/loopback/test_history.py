"""What the real client reads is what the channel holds."""

import tracemalloc
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from telethon import TelegramClient, errors, types
from telethon.sessions import SQLiteSession

from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend

from .conftest import START, Connect


async def test_the_whole_history_newest_first(channel: Channel, connect: Connect) -> None:
    client = await connect()

    assert [m.id async for m in client.iter_messages("harbour", wait_time=0)] == channel.ids()[::-1]


@pytest.mark.thorough
async def test_any_reading_is_what_a_list_comprehension_says(channel: Channel, connect: Connect) -> None:
    client, chance = await connect(), Random(7)
    entity = await client.get_input_entity("harbour")
    messages = [channel.message(i) for i in channel.ids()]
    for _ in range(120):
        asked: dict[str, Any] = {
            "reverse": chance.random() < 0.5,
            "limit": chance.choice([None, 1, 7, 100, 180]),
            "min_id": chance.choice([0, chance.randrange(300)]),
            "max_id": chance.choice([0, chance.randrange(300)]),
            "offset_id": chance.choice([0, chance.randrange(1, 300)]),
        }
        got = [m.id async for m in client.iter_messages(entity, wait_time=0, **asked)]
        assert got == _expected(messages, **asked), asked


def _expected(
    messages: list[Any], *, reverse: bool, limit: int | None, min_id: int, max_id: int, offset_id: int
) -> list[int]:
    # Telethon's own rule: of two bounds on the side it begins at, the larger one counts.
    lowest = max(min_id, offset_id) if reverse else min_id
    highest = (max_id if reverse else max(max_id, offset_id)) or 1 << 40
    found = [m.id for m in messages if lowest < m.id < highest]
    return (found if reverse else found[::-1])[:limit]


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_date_divides_the_history(channel: Channel, connect: Connect, *, reverse: bool) -> None:
    client, moment = await connect(), START + timedelta(minutes=3 * 120)

    got = [m async for m in client.iter_messages("harbour", offset_date=moment, reverse=reverse, wait_time=0)]

    dates = {i: m.date for i in channel.ids() if (m := channel.message(i))}
    wanted = [i for i, date in dates.items() if (date >= moment if reverse else date < moment)]
    assert [m.id for m in got] == (wanted if reverse else wanted[::-1])


async def test_a_message_arrives_with_every_field_it_has(channel: Channel, connect: Connect) -> None:
    client = await connect()

    async for message in client.iter_messages("harbour", wait_time=0):
        made = channel.message(message.id)
        assert made is not None
        assert message.to_dict() == made.to_dict()


async def test_a_lifelike_history_has_what_real_ones_have(backend: TelegramBackend) -> None:
    channel = backend.channel("lively")
    channel.fill(600, start=START)
    messages = [channel.message(i) for i in channel.ids()]

    media = {type(m.media).__name__ for m in messages if m is not None and m.media}
    assert media == {"MessageMediaPhoto", "MessageMediaDocument", "MessageMediaWebPage", "MessageMediaPoll"}
    for name in ("grouped_id", "reactions", "replies", "reply_to", "fwd_from", "edit_date", "entities", "action"):
        assert any(getattr(m, name, None) for m in messages), name


async def test_typical_messages_are_about_a_kilobyte(backend: TelegramBackend) -> None:
    channel = backend.channel("busy")
    channel.fill(100, kind="typical")
    messages = [m for i in channel.ids() if (m := channel.message(i)) is not None]

    assert 900 < sum(len(bytes(m)) for m in messages) / len(messages) < 1_100
    assert len({m.message for m in messages}) == 100


async def test_the_same_seed_makes_the_same_world() -> None:
    made = []
    for _ in range(2):
        backend = TelegramBackend(seed=3)
        backend.account("reader1")
        channel = backend.channel("harbour")
        channel.fill(50, start=START)
        texts = [m.message for i in channel.ids() if (m := channel.message(i)) is not None]
        made.append((channel.channel_id, list(backend.keys), texts))

    assert made[0] == made[1]


async def test_albums_edits_deletions_and_service_messages(channel: Channel, connect: Connect) -> None:
    client = await connect()
    album = channel.album(["one", "two", "three"])
    edited, deleted, said = channel.post("before"), channel.post("never mind"), channel.service("the pier is new")
    channel.edit(edited, "after")
    channel.delete(deleted)

    got = {m.id: m async for m in client.iter_messages("harbour", limit=10)}

    assert len({got[i].grouped_id for i in album}) == 1
    assert got[edited].message == "after"
    assert got[edited].edit_date is not None
    assert deleted not in got
    assert isinstance(got[said].action, types.MessageActionCustomAction)
    assert await client.get_messages("harbour", ids=[edited, deleted]) == [got[edited], None]
    assert channel.post("next") == said + 1


async def test_an_old_message_can_be_edited(channel: Channel, connect: Connect) -> None:
    client, old = await connect(), channel.ids()[3]
    channel.edit(old, "corrected")

    assert (await client.get_messages("harbour", ids=old)).message == "corrected"


async def test_a_renamed_channel_is_found_by_its_new_name_only(channel: Channel, connect: Connect) -> None:
    client = await connect()
    channel.rename("port")

    assert (await client.get_entity("port")).id == channel.channel_id
    with pytest.raises(ValueError, match='No user has "harbour"'):
        await client.get_entity("harbour")


async def test_a_channel_made_private_is_closed(channel: Channel, connect: Connect) -> None:
    client = await connect()
    entity = await client.get_input_entity("harbour")
    channel.make_private()

    with pytest.raises(errors.ChannelPrivateError):
        await client.get_messages(entity)


async def test_a_private_channel_is_found_among_the_dialogs(backend: TelegramBackend, connect: Connect) -> None:
    private = backend.channel(None, title="Crew only")
    private.post("hello")
    backend.channel(None, title="Not for us", members=["captain"]).post("hush")
    client = await connect()

    dialogs = await client.get_dialogs()

    assert [(d.name, d.entity.id, d.message.message) for d in dialogs] == [("Crew only", private.channel_id, "hello")]
    assert len(await client.get_messages(private.channel_id)) == 1


async def test_an_access_hash_is_good_for_one_account_only(
    backend: TelegramBackend, channel: Channel, connect: Connect
) -> None:
    backend.account("reader2")
    one, two = await connect("reader1"), await connect("reader2")
    mine = await one.get_input_entity("harbour")

    assert mine != await two.get_input_entity("harbour")
    with pytest.raises(errors.PeerIdInvalidError):
        await two.get_messages(mine)
    with pytest.raises(errors.ChannelInvalidError):
        await two.get_messages(mine, ids=[1])


async def test_search_details_files_and_takeout(channel: Channel, connect: Connect) -> None:
    client = await connect()
    wanted = channel.post("a very rare WORD", media=None)
    photo = channel.album(["look"])[0]

    assert [m.id async for m in client.iter_messages("harbour", search="rare word")] == [wanted]
    found = await client.get_messages("harbour", filter=types.InputMessagesFilterPhotos, limit=1)
    assert [m.id for m in found] == [photo]
    assert len(await client.download_media(found[0], bytes)) > 1_000
    async with client.takeout(channels=True) as takeout:
        assert len(await takeout.get_messages("harbour", limit=5)) == 5


async def test_a_session_file_leads_here_and_knows_channels_afterwards(
    channel: Channel, server: LoopbackTelegram, connect: Connect, tmp_path: Path
) -> None:
    server.write_session("reader1", tmp_path / "reader1")
    client = await connect(session=SQLiteSession(str(tmp_path / "reader1")))
    await client.get_input_entity("harbour")
    await client.disconnect()
    again = await connect(session=SQLiteSession(str(tmp_path / "reader1")))
    server.forget()

    assert len(await again.get_messages("harbour", limit=3)) == 3
    assert not server.calls("contacts.resolveUsername")


async def test_a_client_remembers_the_first_server_it_met(server: LoopbackTelegram, connect: Connect) -> None:
    client = await connect()
    await client._get_dc(2)

    assert {option.port for option in TelegramClient._config.dc_options} == {server.port}


@pytest.mark.thorough
async def test_a_hundred_thousand_messages_need_no_memory_to_be_read(
    backend: TelegramBackend, connect: Connect
) -> None:
    channel = backend.channel("long")
    channel.fill(100_000, start=START, every=timedelta(seconds=30), kind="typical")
    client = await connect()
    tracemalloc.start()
    try:
        first = [m.id async for m in client.iter_messages("long", limit=300, wait_time=0)]
        before, _ = tracemalloc.get_traced_memory()
        for offset_id in range(100_000, 1, -1_000):
            assert len(channel.history.page(offset_id=offset_id)) in (99, 100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert first == channel.ids()[-1:-301:-1]
    assert after - before < 500_000
