"""Logins over HTTP, step by step against a loopback Telegram: the session never leaves the server."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update
from structlog.testing import capture_logs
from telethon import TelegramClient

from api.serving import Api, served, serving
from floodmark.client import Client
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.audit import Actor
from floodmark.model.tokens import Role
from floodmark.operations.logins import NewLogin
from floodmark.operations.rekeying import rekey
from floodmark.operations.stored_tokens import Tokens
from floodmark.scheduler.cleanup import Cleanup
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.stored_logins import MOST_OPEN, MOST_TRIES, StoredLogins
from floodmark.sources.telegram.tables import account_logins
from floodmark.testing.factories import Opened
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend, trust_loopback
from telegram_desk import QUICK

pytestmark = pytest.mark.spec("T1", "B10")

PHONE, LOCKED = "+10000000001", "+10000000002"
CODE, PASSWORD = "24680", "correct horse"
PATIENT = {**QUICK, "telegram_call_timeout": timedelta(seconds=60)}


@pytest.fixture
async def server() -> AsyncIterator[LoopbackTelegram]:
    # Telethon keeps the first server's list of data centres on the class, for every client after it.
    TelegramClient._config = None
    backend = TelegramBackend(seed=7)
    backend.account("reader1", phone=PHONE, code=CODE)
    backend.account("locked", phone=LOCKED, code=CODE, password=PASSWORD)
    trust_loopback()
    async with LoopbackTelegram(backend, forbid_duplicates=True) as made:
        yield made
        assert made.duplicates == []


def settings(server: LoopbackTelegram) -> dict[str, Any]:
    return {**PATIENT, "telegram_test_server": f"127.0.0.1:{server.port}"}


@pytest.fixture
async def api(opened: Opened, server: LoopbackTelegram) -> AsyncIterator[Api]:
    async with serving(opened, **settings(server)) as api:
        yield api


@pytest.fixture
async def light(sqlite: Opened, server: LoopbackTelegram) -> AsyncIterator[Api]:
    async with serving(sqlite, **settings(server)) as api:
        yield api


async def begin(api: Api, name: str = "reader1", phone: str = PHONE, **given: Any) -> dict[str, Any]:
    answer = await api.post("logins", json={"name": name, "phone": phone, **given})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def open_logins(api: Api) -> int:
    [row] = await api.resources.database.fetch(select(func.count().label("n")).select_from(account_logins))
    return int(row["n"])


async def test_a_person_logs_in_by_phone_and_code(api: Api, server: LoopbackTelegram) -> None:
    with capture_logs() as logs:
        step = await begin(api, tenant_id="acme")
        assert (step["step"], step["how"], step["tries_left"]) == ("code", "in the Telegram app", MOST_TRIES)
        done = await api.post(f"logins/{step['login_id']}", json={"code": f" {CODE} "})
    assert done.status_code == 200, done.text
    assert (done.json()["step"], done.json()["stored"]["person"]["name"]) == ("done", "reader1")
    accounts = Accounts(api.resources.database, api.resources.clock, Vault.of(api.resources.settings))
    stored = await accounts.get("reader1")
    assert (stored.tenant_id, stored.phone, stored.secrets.phone) == ("acme", "+10…001", PHONE)
    assert stored.session != server.session("reader1"), "a session of its own"
    assert (await api.post("accounts/reader1/test")).status_code == 200
    assert await open_logins(api) == 0
    told = str(logs) + done.text + (await api.get("audit?limit=200")).text
    for secret in (stored.session[10:60], CODE, PHONE, stored.api_hash):
        assert secret not in told


@pytest.mark.thorough
async def test_a_password_is_asked_for_if_the_account_has_one(api: Api) -> None:
    step = await begin(api, "locked", LOCKED)
    path = f"logins/{step['login_id']}"
    assert (await api.post(path, json={"password": PASSWORD})).status_code == 400, "the code comes first"
    asked = (await api.post(path, json={"code": CODE})).json()
    assert (asked["step"], asked["tries_left"], asked["stored"]) == ("password", MOST_TRIES, None)
    assert (await api.get(path)).json()["step"] == "password"
    wrong = await api.post(path, json={"password": "horse"})
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "that is not the password")
    done = (await api.post(path, json={"password": PASSWORD})).json()
    assert done["stored"]["account"]["name"] == "locked"
    assert (await api.get(path)).status_code == 404


@pytest.mark.thorough
async def test_any_server_of_the_installation_takes_the_next_step(opened: Opened, server: LoopbackTelegram) -> None:
    """Behind a load balancer, and after a restart."""
    given = settings(server)
    async with serving(opened, **given) as one:
        step = await begin(one, "locked", LOCKED)
        async with opened(**given) as resources, served(resources) as other:
            assert (await other.post(f"logins/{step['login_id']}", json={"code": CODE})).json()["step"] == "password"
        done = await one.post(f"logins/{step['login_id']}", json={"password": PASSWORD})
    assert done.json()["step"] == "done"


async def test_a_login_ends_after_some_wrong_codes(api: Api, server: LoopbackTelegram) -> None:
    step = await begin(api)
    path = f"logins/{step['login_id']}"
    left = [(await api.get(path)).json()["tries_left"]]
    for _ in range(MOST_TRIES):
        wrong = await api.post(path, json={"code": "11111"})
        assert (wrong.status_code, wrong.json()["detail"]) == (400, "that is not the code")
        left += [row["tries_left"] for row in [(await api.get(path)).json()] if "tries_left" in row]
    assert left == [5, 4, 3, 2, 1]
    calls = len(server.calls("auth.signIn"))
    ended = await api.post(path, json={"code": CODE})
    assert (ended.status_code, "has ended" in ended.json()["detail"]) == (404, True)
    assert len(server.calls("auth.signIn")) == calls, "Telegram was not asked again"
    assert await open_logins(api) == 0


@pytest.mark.thorough
async def test_a_login_belongs_to_the_caller_who_began_it(light: Api) -> None:
    tokens = Tokens(light.resources.database, light.resources.clock)
    roles: dict[str, Role] = {"ada": "admin", "bob": "admin", "eve": "operate"}
    ada, bob, eve = [{"Authorization": f"Bearer {(await tokens.add(name, role)).text}"} for name, role in roles.items()]
    answer = await light.post("logins", json={"name": "reader1", "phone": PHONE}, headers=ada)
    path = f"logins/{answer.json()['login_id']}"
    for other, status in ((bob, 404), (eve, 403), ({}, 401)):
        assert (await light.get(path, headers=other)).status_code == status
        assert (await light.post(path, json={"code": CODE}, headers=other)).status_code == status
        assert (await light.delete(path, headers=other)).status_code == status
    assert (await light.get("logins/x", headers=ada)).status_code == 404
    assert (await light.post(path, json={"code": CODE}, headers=ada)).json()["step"] == "done"


async def test_a_login_is_not_accepted_over_plain_http(light: Api) -> None:
    step = await begin(light)
    plain = {"X-Forwarded-Proto": "http"}
    body = {"name": "reader2", "phone": PHONE}
    assert (await light.post("logins", json=body, headers=plain)).status_code == 400
    code = await light.post(f"logins/{step['login_id']}", json={"code": CODE}, headers=plain)
    assert (code.status_code, "plain http" in code.json()["detail"]) == (400, True)


async def test_only_a_digest_and_encrypted_secrets_are_stored(light: Api) -> None:
    step = await begin(light)
    [row] = await light.resources.database.fetch(select(account_logins))
    assert step["login_id"] not in str(dict(row))
    assert PHONE not in str(dict(row))
    assert row["secrets"].startswith("v1.")


@pytest.mark.thorough
async def test_logins_are_bounded_in_time_and_number(api: Api, server: LoopbackTelegram) -> None:
    stored = StoredLogins(api.resources.database, api.resources.clock, Vault.of(api.resources.settings))
    for number in range(MOST_OPEN):
        await stored.add("somebody", f"a{number}", "by SMS", {})
    calls = len(server.calls("auth.sendCode"))
    full = await api.post("logins", json={"name": "reader1", "phone": PHONE})
    assert (full.status_code, "wait for their code" in full.json()["detail"]) == (409, True)
    assert len(server.calls("auth.sendCode")) == calls
    async with api.resources.database.writing() as connection:
        await connection.execute(update(account_logins).values(expires_at=api.resources.clock.now()))
    step = await begin(api)
    assert await open_logins(api) == 1, "those that have expired make room"
    again = await begin(api)
    assert await open_logins(api) == 1, "the second login to an account replaces the first"
    assert (await api.get(f"logins/{step['login_id']}")).status_code == 404
    assert (await api.get(f"logins/{again['login_id']}")).status_code == 200


async def test_an_abandoned_login_is_deleted(api: Api) -> None:
    step = await begin(api)
    cleanup = Cleanup(api.resources.database, api.resources.clock)
    forever = timedelta(days=1)
    await cleanup.step(pages=forever, blobs=forever)
    assert await open_logins(api) == 1
    async with api.resources.database.writing() as connection:
        past = api.resources.clock.now() - timedelta(minutes=1)
        await connection.execute(update(account_logins).values(expires_at=past))
    assert (await api.post(f"logins/{step['login_id']}", json={"code": CODE})).status_code == 404
    await cleanup.step(pages=forever, blobs=forever)
    assert await open_logins(api) == 0


@pytest.mark.thorough
async def test_a_login_is_cancelled_and_another_key_begins_again(light: Api) -> None:
    step = await begin(light)
    assert (await light.delete(f"logins/{step['login_id']}")).json()["account"] == "reader1"
    assert (await light.delete(f"logins/{step['login_id']}")).status_code == 404
    await begin(light)
    resources = light.resources
    audit, vault = resources.repositories.audit, Vault(None, resources.settings.floodmark_home / "secret.key")
    await rekey(resources.database, audit, vault, Actor(who="tests"))
    assert await open_logins(light) == 0


async def test_an_account_that_was_added_meanwhile_is_kept_and_the_new_session_is_ended(
    light: Api, server: LoopbackTelegram
) -> None:
    step = await begin(light)
    accounts = Accounts(light.resources.database, light.resources.clock, Vault.of(light.resources.settings))
    await accounts.add("reader1", api_id=1, api_hash="hash", session=server.session("reader1"))
    refused = await light.post(f"logins/{step['login_id']}", json={"code": CODE})
    assert (refused.status_code, "already an account" in refused.json()["detail"]) == (409, True)
    assert len(server.calls("auth.logOut")) == 1
    assert (await accounts.get("reader1")).session == server.session("reader1")


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        ({"name": "reader1"}, 400, "phone is missing"),
        ({"name": "reader1", "phone": "12"}, 400, "not a phone number"),
        ({"name": "no name", "phone": PHONE}, 400, "cannot be the name of an account"),
        ({"name": "reader1", "phone": "+19999999999"}, 400, "no Telegram account has this phone number"),
    ],
)
async def test_a_login_that_makes_no_sense_is_refused(
    light: Api, given: dict[str, Any], status: int, says: str
) -> None:
    answer = await light.post("logins", json=given)
    assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text
    assert await open_logins(light) == 0


@pytest.mark.thorough
async def test_a_client_logs_in_and_logs_in_again(light: Api, server: LoopbackTelegram) -> None:
    async with Client(light.base) as client:
        step = await client.begin_login(NewLogin(name="reader1", phone=PHONE, tenant_id="acme"))
        assert "+1000" not in repr(NewLogin(name="reader1", phone=PHONE))
        with pytest.raises(InvalidInput, match="that is not the code"):
            await client.continue_login(step.login_id, code="11111")
        assert (await client.continue_login(step.login_id, code=CODE)).step == "done"
        # Without the number: it is stored.
        step = await client.begin_login(NewLogin(name="reader1", replace=True))
        done = await client.continue_login(step.login_id, code=CODE)
        assert done.stored is not None
        assert done.stored.replaced
        assert done.stored.account is not None
        assert done.stored.account.tenant_id == "acme"
        with pytest.raises(NotFound):
            await client.login(step.login_id)
