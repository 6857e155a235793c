"""Trouble on demand does to the real client what the real server's trouble does."""

import asyncio
import socket
from datetime import timedelta

import pytest
from telethon import TelegramClient, errors
from telethon.network import (
    ConnectionTcpAbridged,
    ConnectionTcpIntermediate,
    ConnectionTcpObfuscated,
)
from telethon.sessions import StringSession
from telethon.tl.functions.stories import GetAllStoriesRequest

from floodmark.errors import InvalidInput
from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import Channel, Flood, LoopbackTelegram, TelegramBackend
from floodmark.testing.telegram.faults import When

from .conftest import Connect

HISTORY = "messages.getHistory"


async def test_a_flood_wait_comes_after_so_many_calls_and_lasts(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect(receive_updates=False)
    entity = await client.get_input_entity("harbour")
    flood = server.flood(HISTORY, seconds=30, after=2)

    for _ in range(2):
        await client.get_messages(entity)
    with pytest.raises(errors.FloodWaitError) as told:
        await client.get_messages(entity)

    assert told.value.seconds == 30
    assert flood.until("reader1") > server.calls(HISTORY)[-1].at + 29
    assert [call.result for call in server.calls(HISTORY)] == ["ok", "ok", "FLOOD_WAIT_30"]
    assert not server.violations


async def test_a_call_during_a_flood_wait_is_a_violation(
    backend: TelegramBackend, channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    backend.account("reader2")
    # Without updates the client does not refuse by itself.
    client, other = await connect(receive_updates=False), await connect("reader2")
    entity = await client.get_input_entity("harbour")
    server.flood(HISTORY, seconds=30)
    server.flood(HISTORY, seconds=1, account="nobody")
    with pytest.raises(errors.FloodWaitError):
        await client.get_messages(entity)

    async def broke() -> bool:
        with pytest.raises(errors.FloodWaitError) as told:
            await client.get_messages(entity)
        assert told.value.seconds <= 30
        return bool(server.violations)

    await eventually(broke)
    assert {call.account for call in server.violations} == {"reader1"}
    server.heal()
    assert len(await other.get_messages("harbour")) == 1


async def test_calls_already_on_their_way_are_no_violations(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect(receive_updates=False)
    entity = await client.get_input_entity("harbour")
    server.flood(HISTORY, seconds=30)

    answers = await asyncio.gather(*(client.get_messages(entity) for _ in range(5)), return_exceptions=True)

    assert all(isinstance(answer, errors.FloodWaitError) for answer in answers)
    assert not server.violations


async def test_a_flood_wait_on_one_channel_spares_the_others(
    backend: TelegramBackend, channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    backend.channel("weather").fill(10)
    client = await connect(receive_updates=False)
    server.flood(HISTORY, seconds=30, channel=channel)

    assert len(await client.get_messages("weather")) == 1
    with pytest.raises(errors.FloodWaitError):
        await client.get_messages("harbour")


async def test_each_account_waits_for_itself(
    backend: TelegramBackend, channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    backend.account("reader2")
    one, two = await connect(receive_updates=False), await connect("reader2", receive_updates=False)
    server.flood(HISTORY, seconds=30, account="reader1")

    with pytest.raises(errors.FloodWaitError):
        await one.get_messages("harbour")
    assert len(await two.get_messages("harbour")) == 1


async def test_a_flood_wait_may_be_over_sooner_than_told(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect(receive_updates=False)
    flood = server.flood(HISTORY, seconds=30, holds=0)

    with pytest.raises(errors.FloodWaitError):
        await client.get_messages("harbour")
    assert len(await client.get_messages("harbour")) == 1
    server.remove(flood)
    assert not server.violations


async def test_a_short_flood_wait_is_slept_over_by_the_client(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect(flood_sleep_threshold=5)
    server.flood(HISTORY, seconds=1)

    assert len(await client.get_messages("harbour")) == 1
    assert [call.result for call in server.calls(HISTORY)] == ["FLOOD_WAIT_1", "ok"]
    assert not server.violations


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (("CHANNEL_PRIVATE", 400), errors.ChannelPrivateError),
        (("CHANNEL_INVALID", 400), errors.ChannelInvalidError),
        (("SESSION_REVOKED", 401), errors.SessionRevokedError),
        (("USER_DEACTIVATED_BAN", 401), errors.UserDeactivatedBanError),
        (("AUTH_KEY_DUPLICATED", 406), errors.AuthKeyDuplicatedError),
    ],
)
async def test_an_error_once_and_then_the_truth(
    channel: Channel, server: LoopbackTelegram, connect: Connect, answer: tuple[str, int], error: type[Exception]
) -> None:
    client = await connect()
    entity = await client.get_input_entity("harbour")
    server.fail(HISTORY, answer[0], code=answer[1], channel=channel.channel_id)

    with pytest.raises(error):
        await client.get_messages(entity)
    assert len(await client.get_messages(entity)) == 1


async def test_waits_of_another_kind_can_be_told(channel: Channel, server: LoopbackTelegram, connect: Connect) -> None:
    client = await connect()
    server.add(Flood(method=HISTORY, seconds=9, name="FLOOD_PREMIUM_WAIT"))

    with pytest.raises(errors.FloodPremiumWaitError) as told:
        await client.get_messages("harbour")
    assert told.value.seconds == 9


async def test_an_internal_error_is_an_error_of_the_server(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect(request_retries=0, raise_last_call_error=True)
    server.fail(HISTORY, "RPC_CALL_FAIL", code=500)

    with pytest.raises(errors.RpcCallFailError):
        await client.get_messages("harbour")


@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_a_dropped_connection_loses_and_doubles_nothing(
    channel: Channel, server: LoopbackTelegram, connect: Connect, when: When
) -> None:
    client = await connect()
    server.drop(method=HISTORY, when=when, after=1)

    got = [m.id async for m in client.iter_messages("harbour", wait_time=0)]

    assert got == channel.ids()[::-1]
    assert server.connections >= 2
    assert not server.duplicates


async def test_a_half_closed_connection_is_opened_anew(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect()
    server.half_close(method=HISTORY)

    assert len(await client.get_messages("harbour")) == 1
    assert [call.result for call in server.calls(HISTORY)] == ["half-close", "ok"]


async def test_an_answer_that_never_comes_leaves_the_connection_usable(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect()
    entity = await client.get_input_entity("harbour")
    server.hang(method=HISTORY)

    asking = asyncio.ensure_future(client.get_messages(entity))
    await eventually(lambda: [call.result for call in server.calls(HISTORY)] == ["hang"])
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(await client.get_messages(entity)) == 1
    assert server.connections == 1


async def test_a_server_that_is_away_comes_back_on_the_same_port(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client, port = await connect(connection_retries=None, retry_delay=0.05), server.port
    server.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)

    pending = asyncio.ensure_future(client.get_messages("harbour"))
    server.accept()

    assert len(await pending) == 1
    assert server.port == port


async def test_a_server_away_at_the_start_refuses(server: LoopbackTelegram, connect: Connect) -> None:
    server.refuse()

    with pytest.raises(ConnectionError):
        await connect(connection_retries=1)


async def test_connections_can_be_closed_as_soon_as_they_are_there(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect()
    server.accept_and_close(times=3)
    server.disconnect()

    assert len(await client.get_messages("harbour")) == 1
    assert server.connections >= 4


async def test_a_slow_server_answers_late_but_in_parallel(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect()
    entity = await client.get_input_entity("harbour")
    server.delay(3, method=HISTORY)

    pending = [asyncio.ensure_future(client.get_messages(entity)) for _ in range(5)]
    await eventually(lambda: len(server.calls(HISTORY)) == 5)
    assert {call.result for call in server.calls(HISTORY)} == {"pending"}
    assert [len(found) for found in await asyncio.gather(*pending)] == [1] * 5


async def test_a_revoked_session_is_unregistered(channel: Channel, server: LoopbackTelegram, connect: Connect) -> None:
    client = await connect(receive_updates=False)
    server.revoke("reader1")

    with pytest.raises(errors.AuthKeyUnregisteredError):
        await client.get_messages("harbour")
    assert await (await connect()).get_me() is None


@pytest.mark.parametrize("skew", [timedelta(hours=1), -timedelta(hours=1)])
async def test_a_server_with_another_clock_is_understood(
    backend: TelegramBackend, channel: Channel, connect: Connect, skew: timedelta
) -> None:
    backend.skew = skew
    client = await connect()

    assert len(await client.get_messages("harbour", limit=150)) == 150


async def test_one_session_used_twice_is_noticed(channel: Channel, server: LoopbackTelegram, connect: Connect) -> None:
    first = await connect()
    await first.disconnect()
    await connect()
    assert not server.duplicates

    await connect()
    [duplicate] = server.duplicates
    assert (duplicate.account, duplicate.connections) == ("reader1", (2, 3))


async def test_a_strict_server_takes_a_doubled_session_away(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    server.forbid_duplicates = True
    first = await connect(receive_updates=False)

    with pytest.raises(errors.AuthKeyDuplicatedError):
        await connect(receive_updates=False)
    with pytest.raises(errors.AuthKeyDuplicatedError):
        await first.get_messages("harbour")


@pytest.mark.parametrize("transport", [ConnectionTcpAbridged, ConnectionTcpIntermediate, ConnectionTcpObfuscated])
async def test_every_transport_is_recognised(channel: Channel, connect: Connect, transport: type) -> None:
    client = await connect(connection=transport)

    assert len(await client.get_messages("harbour", limit=30)) == 30


async def test_noise_is_not_answered(server: LoopbackTelegram, connect: Connect) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: nobody.example\r\nUser-Agent: a curious passer-by\r\n\r\n")

    assert await reader.read() == b""
    writer.close()


async def test_an_unknown_session_is_told_so(
    backend: TelegramBackend, server: LoopbackTelegram, connect: Connect
) -> None:
    backend.keys.clear()

    with pytest.raises(errors.AuthKeyNotFound):
        await connect()


async def test_what_is_not_there_is_refused_by_name(
    channel: Channel, server: LoopbackTelegram, connect: Connect
) -> None:
    client = await connect()

    with pytest.raises(errors.MethodInvalidError):
        await client(GetAllStoriesRequest())
    assert server.calls("stories.getAllStories")[0].result == "METHOD_INVALID"


@pytest.mark.spec("G6")
async def test_the_log_of_calls_is_bounded(backend: TelegramBackend, channel: Channel) -> None:
    async with LoopbackTelegram(backend, keep=3) as server:
        client = TelegramClient(StringSession(server.session("reader1")), 1, "hash")
        await client.connect()
        await client.get_messages("harbour")
        await client.disconnect()

        assert [call.method for call in server.calls()][-1] == HISTORY
        assert len(server.calls()) == 3


def test_it_listens_on_loopback_only(backend: TelegramBackend) -> None:
    with pytest.raises(InvalidInput, match="does not listen on"):
        LoopbackTelegram(backend, host="0.0.0.0")


def test_it_can_live_in_a_thread_of_its_own(backend: TelegramBackend, channel: Channel) -> None:
    with LoopbackTelegram.thread(backend) as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            pass
        server.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        server.accept()
        socket.create_connection(("127.0.0.1", server.port)).close()
        channel.post("from another thread")

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
