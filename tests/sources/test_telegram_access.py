"""Accounts behind proxies, imported sessions, and takeout sessions."""

from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from floodmark.errors import InvalidInput, Permanent
from floodmark.model.proxies import parse_proxy
from floodmark.settings import Settings
from floodmark.sources.telegram.proxies import mask_proxy, resolve_proxy
from floodmark.sources.telegram.tables import accounts
from floodmark.testing.factories import expire, rescue
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from telegram_desk import collect_some, expected, opened, stream_of, working
from telegram_proxies import mtproxy, socks5

pytest_plugins = ("backends", "telegram_fixtures")

SECRET = "00112233445566778899aabbccddeeff"


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_accounts_connect_through_their_socks5_proxy_and_never_without_it(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with socks5("ada", "pass word") as proxy:
        url = f"socks5://ada:pass%20word@127.0.0.1:{proxy.port}"
        settings: dict[str, Any] = {"telegram_proxy": url, "http_allow_hosts": "127.0.0.1"}
        async with working(server, sqlite_copy, **settings) as desk:
            job = await desk.collected(params={"history": 20})
            assert len(await desk.posts(stream_of(channel))) == 20
            assert proxy.seen == [("127.0.0.1", server.port)]
            assert server.connections == 1

            # A wrong password: the account waits for its proxy rather than connect directly.
            await desk.account(replace=True, proxy=url.replace("pass%20word", "wrong"))
            shown = await desk.services.accounts.show("reader1")
            assert shown.proxy == f"socks5://***@127.0.0.1:{proxy.port}"
            server.disconnect()
        async with working(server, sqlite_copy, **settings) as desk:
            await desk.reaches(await desk.ask(job), "waiting", "dead")
            assert proxy.refused
            assert server.connections == 1


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_an_mtproxy_with_a_dd_secret_carries_a_run(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with mtproxy(bytes.fromhex(SECRET), server.port) as proxy:
        async with working(server, sqlite_copy, http_allow_hosts="127.0.0.1") as desk:
            await desk.account(proxy=f"https://t.me/proxy?server=127.0.0.1&port={proxy.port}&secret=dd{SECRET}")
            ended = await desk.run(await desk.job(params={"history": 20}))
            assert ended.state == "done", ended.error_message
            assert len(await desk.posts(stream_of(channel))) == 20
        assert [kind for kind, _ in proxy.seen] == ["data centre"]
        assert expected(channel)


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_a_first_read_is_made_in_a_takeout_session_that_survives_a_restart(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, sqlite_copy: str
) -> None:
    params = {"history": "all", "takeout": True}
    async with opened(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job(params=params)
        # Killed after a page.
        lease = await collect_some(desk, job, batches=1)
        begun = await desk.services.accounts.takeout("reader1")
        assert begun == backend.takeouts["reader1"]
        await expire(desk.resources, lease)
        await rescue(desk.resources)
        server.disconnect()
        async with desk.resources.database.writing() as connection:
            await connection.execute(update(accounts).values(holder=None, lease_until=None))
    server.forget()
    async with working(server, sqlite_copy) as desk:
        ended = await desk.reaches(lease.execution_id, "done", "dead")
        assert ended.state == "done", ended.error_message
        assert list(await desk.posts(stream_of(channel))) == expected(channel)
        reads = {call.takeout_id for call in server.calls("messages.getHistory")}
        assert reads == {begun}
        assert not server.calls("account.initTakeoutSession")
        assert backend.finished_takeouts == [("reader1", True)]
        assert await desk.services.accounts.takeout("reader1") is None

        # Later runs need none.
        channel.post("new")
        assert (await desk.run(job)).items_new == 1
        assert len(server.calls("account.initTakeoutSession")) == 0


@pytest.mark.spec("B11")
@pytest.mark.thorough
async def test_a_takeout_session_waits_until_it_is_allowed_and_is_begun_again_when_it_has_ended(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, sqlite_copy: str
) -> None:
    server.fail("account.initTakeoutSession", "TAKEOUT_INIT_DELAY_86400", code=420)
    server.fail("messages.getHistory", "TAKEOUT_INVALID", after=1)
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job(params={"history": "all", "takeout": True})
        execution = await desk.ask(job)
        waiting = await desk.reaches(execution, "waiting")
        assert "allow the export of data in a Telegram app" in (waiting.reason or "")
        assert not await desk.posts(stream_of(channel))
    async with opened(server, sqlite_copy) as desk:
        # The owner has allowed it, as the reason says.
        await desk.limits.clear("telegram:reader1:account.initTakeoutSession")
    async with working(server, sqlite_copy) as desk:
        await desk.reaches(execution, "done")
        assert list(await desk.posts(stream_of(channel))) == expected(channel)
        begun = [call.result for call in server.calls("account.initTakeoutSession")]
        assert begun == ["TAKEOUT_INIT_DELAY_86400", "ok", "ok"]
        assert backend.finished_takeouts == [("reader1", True)]


def test_proxies_are_read_in_every_form_and_shown_without_secrets() -> None:
    forms = {
        "socks5://127.0.0.1:1080": "socks5://127.0.0.1:1080",
        "socks5://ada:secret@proxy.example:1080": "socks5://***@proxy.example:1080",
        "http://ada:secret@[2001:db8::1]:8080": "http://***@[2001:db8::1]:8080",
        f"mtproxy://dd{SECRET}@proxy.example:443": "mtproxy://***@proxy.example:443",
        f"tg://proxy?server=proxy.example&port=443&secret={SECRET}": "mtproxy://***@proxy.example:443",
        "https://t.me/socks?server=proxy.example&port=1080&user=ada&pass=secret": "socks5://***@proxy.example:1080",
        "mtproxy://3QARIjNEVWZ3iJmqu8zd7v8@proxy.example:443": "mtproxy://***@proxy.example:443",
    }
    for text, shown in forms.items():
        assert mask_proxy(text) == shown == repr(parse_proxy(text))
    assert parse_proxy(f"mtproxy://dd{SECRET}@h:1").secret == SECRET
    assert parse_proxy("mtproxy://3QARIjNEVWZ3iJmqu8zd7v8@h:1").secret == SECRET
    assert parse_proxy("socks5://ada:a%40b@h:1").password == "a@b"
    assert (mask_proxy("none"), mask_proxy(None)) == ("none", None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"mtproxy://ee{SECRET}676f6f676c652e636f6d@h:443", "imitates TLS"),
        ("mtproxy://7gARIjNEVWZ3iJmqu8zd7v9nb29nbGUuY29t@h:443", "imitates TLS"),
        ("mtproxy://1234@h:443", "secret of the MTProxy is not valid"),
        ("socks4://h:1080", "this kind of proxy is not supported"),
        (f"mtproxy://{SECRET}@h", "no host or no port"),
        ("socks5://h:port", "not the address of a proxy"),
        ("https://t.me/other?server=h&port=1", "not one of a proxy"),
    ],
)
def test_a_proxy_that_cannot_work_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as told:
        parse_proxy(text)
    assert told.value.hint
    assert SECRET not in str(told.value)


async def test_the_guard_decides_about_the_address_of_a_proxy() -> None:
    settings = Settings(http_resolve="proxy.example=10.0.0.7")
    with pytest.raises(Permanent, match=r"10\.0\.0\.7"):
        await resolve_proxy("socks5://proxy.example:1080", settings)
    allowed = Settings(http_resolve="proxy.example=10.0.0.7", http_allow_hosts="proxy.example")
    found = await resolve_proxy("socks5://proxy.example:1080", allowed)
    assert found is not None
    assert found.address == "10.0.0.7"
    assert await resolve_proxy(None, allowed) is None
    with_default = Settings(telegram_proxy=SecretStr("socks5://proxy.example:1080"))
    assert await resolve_proxy("none", with_default) is None
