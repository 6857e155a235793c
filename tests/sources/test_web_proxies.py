"""Secrets of jobs in the vault, and proxies of the sources `web` and `feed`."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from typer.testing import CliRunner

from command_line import CommandLine
from floodmark.cli import app
from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.audit import Actor
from floodmark.model.proxies import parse_proxy
from floodmark.operations.rekeying import rekey
from floodmark.repositories.secrets import StoredSecrets
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.store.tables import secrets
from floodmark.testing.web import Site
from floodmark.wiring.resources import open_resources
from web_desk import working

pytest_plugins = ("backends",)

ADA = Actor(who="ada")
KEY = SecretStr("a key that is only for these tests")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


class LoopbackProxy:
    """A proxy on this machine for SOCKS5 and CONNECT, with a user and a password. `asked`: the addresses."""

    def __init__(self, *, is_socks: bool, target_port: int) -> None:
        self.is_socks, self.asked, self.refused = is_socks, list[str](), 0
        self._port_of_target = target_port

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["LoopbackProxy"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    def url(self, password: str = "pass word") -> str:
        scheme = "socks5" if self.is_socks else "http"
        return f"{scheme}://ann:{password.replace(' ', '%20')}@127.0.0.1:{self.port}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wanted = await (self._greet_socks if self.is_socks else self._greet_http)(reader, writer)
            if wanted is None:
                self.refused += 1
                return
            self.asked.append(wanted)
            there = await asyncio.open_connection("127.0.0.1", self._port_of_target)
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
        except (OSError, EOFError):
            # The other side has left.
            pass
        finally:
            writer.close()

    async def _greet_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if base64.b64encode(b"ann:pass word").decode() not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return None
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        return head.split(" ")[1].rpartition(":")[0]

    async def _greet_socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x02")
        said = [await reader.readexactly((await reader.readexactly(n))[-1]) for n in (2, 1)]
        is_right = said == [b"ann", b"pass word"]
        writer.write(b"\x01\x00" if is_right else b"\x01\x01")
        if not is_right:
            return None
        head = await reader.readexactly(4)
        assert head[3] == 1, "the target is asked for by its address"
        address = ".".join(map(str, await reader.readexactly(4)))
        await reader.readexactly(2)
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        return address


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()
    writer.close()


@pytest.mark.spec("B15")
@pytest.mark.parametrize("is_socks", [True, False], ids=["socks5", "connect"])
async def test_a_job_uses_the_proxy_of_a_secret_and_the_guard_still_judges_targets(
    site: Site, sqlite_copy: str, *, is_socks: bool
) -> None:
    site.page("/", "Through a proxy", host="shop.example")
    feed = (
        "<rss version='2.0'><channel><title>News</title><item><guid>1</guid><title>One</title></item></channel></rss>"
    )
    site.xml("/feed.xml", feed, host="shop.example")
    allowed = site.settings("shop.example") | {"http_allow_hosts": "shop.example, 127.0.0.1"}
    settings: dict[str, Any] = {**allowed, "floodmark_secret_key": KEY}
    async with (
        LoopbackProxy(is_socks=is_socks, target_port=site.port).serve() as proxy,
        working(site, sqlite_copy, **settings) as desk,
    ):
        await desk.operations.set_secret("way", proxy.url())
        job = await desk.job(site.at("shop.example", "/"), proxy="WAY", max_pages=1)
        assert (await desk.run(job)).result["new"] == 1
        entries = await desk.job(site.at("shop.example", "/feed.xml"), source="feed", proxy="way")
        assert (await desk.run(entries)).state == "done"
        # By the address that the guard has checked.
        assert set(proxy.asked) == {"127.0.0.1"}
        assert len(proxy.asked) >= 2

        before = len(proxy.asked)
        await desk.operations.set_secret("way", proxy.url("wrong-pass-word"))
        failed = await desk.run(job)
        assert failed.state == "dead"
        assert "refuses" in str(failed.error_message)
        assert "wrong-pass-word" not in str(failed)
        assert (len(proxy.asked), proxy.refused > 0) == (before, True)


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_private_targets_and_private_proxies_are_refused_unless_the_operator_has_chosen_them(
    site: Site, sqlite_copy: str
) -> None:
    site.page("/plain", "Through a proxy", host="shop.example")
    async with LoopbackProxy(is_socks=True, target_port=site.port).serve() as proxy:
        # shop.example is a public address here, and nothing on this machine is allowed.
        public: dict[str, Any] = {
            "http_allow_hosts": None,
            "http_resolve": "shop.example=93.184.215.14, home.example=10.0.0.7",
        }
        async with working(site, sqlite_copy, **public, floodmark_secret_key=KEY) as desk:
            await desk.operations.set_secret("way", proxy.url())
            job = await desk.job(site.at("shop.example", "/"), proxy="way", max_pages=1)
            refused = await desk.run(job)
            assert "127.0.0.1 is not a public address" in str(refused.error_message)
            assert proxy.asked == []
        # The operator has chosen the proxy: it is allowed, but as a target this machine still is not.
        async with working(site, sqlite_copy, **public, web_proxy=proxy.url(), floodmark_secret_key=KEY) as desk:
            plain = await desk.job(site.at("shop.example", "/plain"), max_pages=1)
            assert (await desk.run(plain)).result["new"] == 1
            assert set(proxy.asked) == {"93.184.215.14"}
            private = await desk.run(await desk.job(site.at("home.example", "/"), max_pages=1))
            assert "leads to 10.0.0.7, which is not a public address" in str(private.error_message)
            assert set(proxy.asked) == {"93.184.215.14"}


@pytest.mark.spec("G9")
async def test_secrets_are_encrypted_never_shown_audited_and_rotated(sqlite_copy: str) -> None:
    old = Settings(database_url=sqlite_copy, floodmark_secret_key=KEY)
    new_key = SecretStr("another key that is only for these tests")
    new = Settings(database_url=sqlite_copy, floodmark_secret_key=new_key, floodmark_secret_key_old=KEY)
    async with open_resources(old) as resources:
        stored = StoredSecrets(resources.database, resources.clock, Vault.of(old))
        assert (await stored.put("shop", "ann:pass word"))[1] is False
        row, is_replaced = await stored.put("SHOP", "ann:other word")
        assert (row.name, is_replaced) == ("SHOP", True)
        async with resources.database.reading() as connection:
            [sealed] = (await connection.execute(select(secrets.c.value))).scalars()
        assert "other" not in sealed
        with pytest.raises(InvalidInput, match="one line"):
            await stored.put("x", "two\nlines")
        with pytest.raises(InvalidInput, match="name of a secret"):
            await stored.put("a-b", "x")
    async with open_resources(new) as resources:
        done = await rekey(resources.database, resources.repositories.audit, Vault.of(new), ADA)
        assert done.secrets == 1
        alone = Settings(database_url=sqlite_copy, floodmark_secret_key=new_key)
        stored = StoredSecrets(resources.database, resources.clock, Vault.of(alone))
        assert await stored.values(["shop", "unknown"]) == {"SHOP": "ann:other word"}
        with pytest.raises(Conflict, match="wrong key"):
            await StoredSecrets(resources.database, resources.clock, Vault.of(old)).values(["shop"])
        await stored.remove("shop")
        with pytest.raises(NotFound):
            await stored.remove("shop")


@pytest.mark.spec("G9")
def test_a_secret_is_set_from_standard_input_and_only_its_name_is_listed(
    tmp_path: Path, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, DATABASE_URL=sqlite_copy, FLOODMARK_HOME=str(tmp_path / "home"))
    typed = CliRunner().invoke(app, [*cli.options(), "secrets", "set", "shop"], input="ann:s3cret-word\n")
    assert (typed.exit_code, "Stored SHOP" in typed.output) == (0, True), typed.output
    assert "SHOP" in cli.good("secrets", "ls").out
    shown = cli.good("secrets", "ls", "--json").out + cli.good("audit", "--json").out
    assert "secret.added" in shown
    assert "s3cret-word" not in shown + typed.output
    cli.good("secrets", "rm", "shop", "--yes")
    assert "No secrets" in cli.good("secrets", "ls").out
    cli.refused("secrets", "set", "shop", says="the value is missing")


@pytest.mark.parametrize(
    "text", ["proxy.example:8080", "https://proxy.example", "socks5://", "http://h:0", "http://ann:s3cret@h/path"]
)
def test_what_is_no_proxy_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_proxy(text)
    assert "s3cret" not in f"{refused.value}{refused.value.hint}"
