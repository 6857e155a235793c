"""Signing in by phone and code, with and without a password."""

import pytest
from telethon import errors
from telethon.sessions import StringSession

from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend, trust_loopback

from .conftest import Connect


@pytest.fixture
def nobody(server: LoopbackTelegram) -> StringSession:
    """A session that leads here and is nobody's yet."""
    trust_loopback()
    made = StringSession()
    made.set_dc(2, "127.0.0.1", server.port)
    return made


async def test_phone_and_code(channel: Channel, connect: Connect, nobody: StringSession) -> None:
    client = await connect(session=nobody)
    assert not await client.is_user_authorized()

    await client.send_code_request("+10000000001")
    with pytest.raises(errors.PhoneCodeInvalidError):
        await client.sign_in("+10000000001", "11111")
    assert (await client.sign_in("+10000000001", "24680")).first_name == "reader1"

    text = client.session.save()
    await client.disconnect()
    again = await connect(session=StringSession(text))
    assert len(await again.get_messages("harbour")) == 1


@pytest.mark.thorough
async def test_phone_code_and_password(
    backend: TelegramBackend, channel: Channel, connect: Connect, nobody: StringSession
) -> None:
    backend.account("careful", phone="+10000000077", code="13579", password="порт и wine")
    client = await connect(session=nobody)
    await client.send_code_request("+10000000077")

    with pytest.raises(errors.SessionPasswordNeededError):
        await client.sign_in("+10000000077", "13579")
    assert not await client.is_user_authorized()
    with pytest.raises(errors.PasswordHashInvalidError):
        await client.sign_in(password="wrong")
    assert (await client.sign_in(password="порт и wine")).first_name == "careful"
    assert len(await client.get_messages("harbour")) == 1


async def test_an_unknown_phone_is_refused(connect: Connect, nobody: StringSession) -> None:
    client = await connect(session=nobody)

    with pytest.raises(errors.PhoneNumberUnoccupiedError):
        await client.send_code_request("+19999999999")


async def test_signing_out_ends_the_session(channel: Channel, connect: Connect, nobody: StringSession) -> None:
    client = await connect(session=nobody)
    await client.send_code_request("+10000000001")
    await client.sign_in("+10000000001", "24680")
    text = client.session.save()

    await client.log_out()

    assert not await (await connect(session=StringSession(text))).is_user_authorized()
