"""Accounts over HTTP: a session comes in, is tested where it is used, and is never shown."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from api.serving import Api, serving
from floodmark.client import Client, NewAccount
from floodmark.errors import Conflict, InvalidInput, Unavailable
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.testing.factories import Opened
from floodmark.testing.telegram import LoopbackTelegram
from telegram_desk import QUICK

pytest_plugins = ("telegram_fixtures",)
pytestmark = pytest.mark.spec("T1", "V8")


@pytest.fixture
async def api(sqlite: Opened) -> AsyncIterator[Api]:
    async with serving(sqlite, **QUICK) as api:
        yield api


def stored(api: Api) -> Accounts:
    return Accounts(api.resources.database, api.resources.clock, Vault.of(api.resources.settings))


@pytest.mark.thorough
async def test_an_account_is_added_tested_and_removed(api: Api, server: LoopbackTelegram) -> None:
    session = server.session("reader1")
    assert (await api.post("accounts", json={"name": "reader1", "dry_run": True})).json()["account"] is None
    added = await api.post("accounts", json={"name": "reader1", "session": session, "tenant_id": "acme"})
    assert (added.status_code, added.json()["replaced"]) == (201, False)
    assert added.json()["person"]["name"] == "reader1"
    assert (await stored(api).get("reader1")).session == session

    assert (await api.post("accounts", json={"name": "reader1", "dry_run": True})).status_code == 409
    known = await api.post("accounts", json={"name": "reader1", "dry_run": True, "replace": True})
    assert (known.status_code, known.json()["account"]["tenant_id"]) == (200, "acme")
    assert (await api.post("accounts", json={"name": "other", "session": session})).status_code == 409

    await api.job("news", account="reader1")
    assert (await api.get("accounts/reader1")).json()["jobs"] == ["news"]
    await stored(api).park("reader1", "told so")
    assert (await api.post("accounts/reader1/test")).json()["activated"] is False
    tested = (await api.post("accounts/reader1/test", json={"activate": True})).json()
    assert (tested["activated"], tested["account"]["state"]) == (True, "active")

    assert (await api.delete("accounts/reader1")).json()["name"] == "reader1"
    assert (await api.get("accounts/reader1")).status_code == 404
    told = [(row["action"], row["who"]) for row in (await api.get("audit?what=account:reader1")).json()["items"]]
    assert told == [("account.removed", "local"), ("account.activated", "local"), ("account.added", "local")]
    everything = (await api.get("audit?limit=200")).text + added.text + known.text
    assert session[10:60] not in everything


@pytest.mark.thorough
async def test_a_session_that_this_very_process_has_open_is_not_opened_again(
    api: Api, server: LoopbackTelegram
) -> None:
    """A worker in the process that serves has leases under its name: a test must not pass for it."""
    session = server.session("reader1")
    await stored(api).add("reader1", api_id=1, api_hash="hash", session=session)
    assert await stored(api).lease("reader1", holder=api.resources.name, ttl=timedelta(minutes=1))
    refused = await api.post("accounts/reader1/test")
    assert (refused.status_code, f"is open in {api.resources.name}" in refused.json()["detail"]) == (409, True)
    again = {"name": "reader1", "session": session, "replace": True}
    assert (await api.post("accounts", json=again)).status_code == 409
    assert (await api.delete("accounts/reader1")).status_code == 409
    assert server.calls() == []
    assert (await api.delete("accounts/reader1?force=true")).status_code == 200


@pytest.mark.spec("G9")
async def test_what_telegram_refuses_and_what_makes_no_sense_is_told(api: Api, server: LoopbackTelegram) -> None:
    session = server.session("reader1")
    async with Client(api.base) as client:
        with pytest.raises(InvalidInput, match="not a string session") as nonsense:
            await client.add_account(NewAccount(name="reader1", session="nonsense"))
        assert "nonsense" not in str(nonsense.value)
        server.revoke("reader1", "SESSION_REVOKED")
        with pytest.raises(Unavailable, match="account reader1: ") as lost:
            await client.add_account(NewAccount(name="reader1", session=session))
        assert "floodmark accounts add reader1" in lost.value.hint
        added, person = await client.add_account(NewAccount(name="reader1", session=session, is_checked=False))
        assert (added.account.name, person) == ("reader1", None)
        refused = await api.post("accounts/reader1/test")
        assert (refused.status_code, refused.json()["type"]) == (502, "urn:floodmark:source-refused")
        server.restore("reader1")
        assert (await client.test_account("reader1")).person.name == "reader1"
        with pytest.raises(Conflict):
            await client.expect_account("reader1")
        assert (await client.account("reader1")).jobs == ()
        assert (await client.remove_account("reader1")).name == "reader1"
    too_long = await api.post("accounts", json={"name": "a", "session": session * 9})
    assert (too_long.status_code, session[:40] in too_long.text) == (422, False)
    assert (await api.post("accounts", json={"name": "a"})).status_code == 400


@pytest.mark.spec("G9")
async def test_a_session_is_not_taken_in_the_clear(api: Api, server: LoopbackTelegram) -> None:
    session = server.session("reader1")
    body = {"name": "reader1", "session": session, "check": False}
    refused = await api.post("accounts", json=body, headers={"X-Forwarded-Proto": "http"})
    assert (refused.status_code, "plain http" in refused.json()["detail"]) == (400, True)
    assert (await api.post("accounts", json=body, headers={"X-Forwarded-Proto": "https"})).status_code == 201
    async with Client("http://192.0.2.1:8060") as client:
        with pytest.raises(InvalidInput, match=r"is not sent to http://192\.0\.2\.1:8060"):
            await client.add_account(NewAccount(name="a", session=session))
