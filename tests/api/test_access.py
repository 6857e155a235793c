"""Who may do what: every role at every route, tokens that are no good, and visitors who only look like this machine."""

import asyncio
import hmac
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select, update
from starlette.requests import Request
from structlog.testing import capture_logs

from api.serving import Api, document, served, serving
from command_line import CommandLine
from floodmark.api.access import (
    FAILURES_ALLOWED,
    FAILURES_WITHIN_SECONDS,
    MOST_REMEMBERED,
    Access,
    Failures,
    Recent,
    require_token_to_listen,
)
from floodmark.api.addresses import address_of, is_local
from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.client import Client, Denied
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.tokens import ROLES, Role
from floodmark.operations.stored_sessions import DashboardSessions
from floodmark.operations.stored_tokens import StoredToken, Tokens, digest_of
from floodmark.operations.tables import tokens
from floodmark.repositories.audit import AuditLog
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources

UNKNOWN = f"fm_{'0' * 16}_{'0' * 64}"
# Open to whoever has no token: health for load balancers, and webhooks, which are signed instead.
OPEN = {"/health", "/health/live", "/health/ready", "/api/v2/triggers/webhook", "/api/v2/triggers/webhook/{path}"}
WILDCARD = "0.0.0.0"
ELSEWHERE = {"X-Forwarded-For": "192.0.2.7"}
# Not for `read` although they only look, and the other way round.
NOT_FOR_READING = {
    "list_tokens",
    "show_token",
    "list_sessions",
    "examine",
    "show_login",
    "list_settings",
    "list_secrets",
}
ASKING = {"try_watch"}


def tokens_of(api: Api) -> Tokens:
    return Tokens(api.resources.database, api.resources.clock)


def sessions_of(api: Api) -> DashboardSessions:
    return DashboardSessions(api.resources.database, api.resources.clock)


class Seconds:
    """A count of seconds that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def a_token(resources: Resources, role: Role = "admin", name: str | None = None, **options: Any) -> str:
    return (await Tokens(resources.database, resources.clock).add(name or role, role, **options)).text


async def set_column(resources: Resources, name: str, **values: Any) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(update(tokens).where(tokens.c.name == name).values(**values))


# Roles


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_without_any_token_this_machine_may_do_everything(light: Api) -> None:
    assert (await light.get("whoami")).json() == {"who": "local", "role": "admin"}
    assert (await light.job())["name"] == "news"


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_from_the_first_token_on_everybody_needs_one(light: Api) -> None:
    made = await light.post("tokens", json={"name": "ci", "role": "operate", "expires_in": "90d"})
    assert made.status_code == 201
    text = made.json()["token"]

    refused = await light.get("jobs")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="floodmark"'
    assert "floodmark tokens add" in refused.json()["hint"]

    assert (await light.get("whoami", headers=bearer(text))).json() == {"who": "ci", "role": "operate"}
    assert (await light.get("jobs", headers=bearer(text))).status_code == 200


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_every_route_asks_for_its_role(light: Api) -> None:
    given = {role: await a_token(light.resources, role) for role in ROLES}
    # As many wrong tokens as there are routes, from one address.
    light.app.state.access = Access(tokens_of(light), sessions_of(light), now=_hurrying())
    seen = 0
    for path, operations in document()["paths"].items():
        if path in OPEN:
            continue
        for method, operation in operations.items():
            seen += 1
            await _asks_for_its_role(light, method.upper(), path, operation["operationId"], given)
    assert seen > 30


async def _asks_for_its_role(light: Api, method: str, path: str, name: str, given: dict[Role, str]) -> None:
    address = re.sub(r"\{\w+\}", "nothing", path)
    # Looked at only once it is clear who asks, so that nobody learns from it what there is.
    body: dict[str, Any] = {"json": {"no such": "field"}} if method != "GET" else {}
    told: dict[str, int] = {}
    visitors: dict[str, dict[str, str]] = {"nobody": {}, "stranger": bearer(UNKNOWN)}
    visitors |= {role: bearer(text) for role, text in given.items()}
    for who, headers in visitors.items():
        async with light.client.stream(method, address, headers=headers | ELSEWHERE, **body) as answer:
            told[who] = answer.status_code
            if answer.status_code == 403:
                await answer.aread()
                assert "this needs the role" in answer.json()["detail"]
    assert (told["nobody"], told["stranger"]) == (401, 401), f"{method} {path}: {told}"
    assert told["admin"] not in (401, 403, 500), f"{method} {path}: {told}"
    is_for_reading = (method == "GET" and name not in NOT_FOR_READING) or name in ASKING
    assert (told["read"] == 403) is not is_for_reading, f"{method} {path}: {told}"
    assert told["operate"] != 403 or told["read"] == 403, f"{method} {path}: {told}"


def _hurrying() -> Seconds:
    class Hurrying(Seconds):
        def __call__(self) -> float:
            self.now += FAILURES_WITHIN_SECONDS
            return self.now

    return Hurrying()


@pytest.mark.spec("V8")
async def test_a_role_that_is_not_enough_is_told_which_one_is(light: Api) -> None:
    reader, operator = await a_token(light.resources, "read"), await a_token(light.resources, "operate")
    refused = await light.post("jobs/news/pause", headers=bearer(reader))
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "this needs the role operate, and read has the role read",
    )
    assert (await light.post("jobs/news/pause", headers=bearer(operator))).status_code == 404
    assert (await light.delete("jobs/news", headers=bearer(operator))).status_code == 403
    assert await AuditLog(light.resources.database, light.resources.clock).page() == []


@pytest.mark.thorough
async def test_the_document_tells_of_tokens_and_shows_none(light: Api) -> None:
    text = await a_token(light.resources)
    answer = await light.client.get("/api/v2/openapi.json", headers=bearer(text))
    [scheme] = answer.json()["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert re.search(r"fm_[0-9a-f]", answer.text) is None


# Tokens


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_a_token_is_shown_once_listed_and_revoked_at_once(api: Api) -> None:
    admin = bearer(await a_token(api.resources))
    made = await api.post("tokens", json={"name": "ci", "role": "read"}, headers=admin)
    ci = made.json()
    assert made.headers["cache-control"] == "no-store"
    assert (await api.get("jobs", headers=bearer(ci["token"]))).status_code == 200

    first = (await api.get("tokens?limit=1", headers=admin)).json()
    rest = await api.get("tokens", params={"cursor": first["next"]}, headers=admin)
    assert [row["name"] for row in first["items"] + rest.json()["items"]] == ["admin", "ci"]
    assert ci["token"].rpartition("_")[2] not in rest.text
    assert "digest" not in rest.text

    revoked = await api.delete("tokens/ci", headers=admin)
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    refused = await api.get("jobs", headers=bearer(ci["token"]))
    assert (refused.status_code, refused.json()["detail"]) == (401, "the token ci was revoked")
    assert (await api.delete("tokens/ci", headers=admin)).status_code == 409
    assert (await api.get("tokens/ci", headers=admin)).json() == revoked.json()
    assert (await api.delete("tokens/nobody", headers=admin)).status_code == 404


@pytest.mark.spec("G9")
async def test_a_token_that_makes_no_sense_is_refused(light: Api) -> None:
    for change, status in [
        ({"name": "a b"}, 400),
        ({"name": "local"}, 400),
        ({"name": "anonymous"}, 400),
        ({"name": ""}, 422),
        ({"role": "root"}, 422),
        ({"expires_in": "0s"}, 400),
        ({"expires_in": "999999999w"}, 400),
        ({"expires_in": "soon"}, 400),
        ({"token": UNKNOWN}, 422),
    ]:
        refused = await light.post("tokens", json={"name": "ci", "role": "read", **change})
        assert refused.status_code == status, change
        assert refused.json()["hint"]
    assert (await light.get("tokens")).json()["items"] == []


async def test_a_name_is_free_again_once_its_token_is_revoked_or_has_expired(api: Api) -> None:
    admin = bearer(await a_token(api.resources))
    ci = {"name": "ci", "role": "read"}
    old = (await api.post("tokens", json=ci, headers=admin)).json()["token"]
    taken = await api.post("tokens", json=ci, headers=admin)
    assert taken.status_code == 409
    assert "floodmark tokens revoke ci" in taken.json()["hint"]
    await api.delete("tokens/ci", headers=admin)
    new = (await api.post("tokens", json=ci, headers=admin)).json()["token"]
    assert (await api.get("whoami", headers=bearer(old))).status_code == 401
    assert (await api.get("whoami", headers=bearer(new))).json()["who"] == "ci"
    await set_column(api.resources, "ci", expires_at=datetime.now(UTC) - timedelta(days=1))
    assert (await api.post("tokens", json=ci, headers=admin)).status_code == 201


@pytest.mark.thorough
async def test_a_token_that_has_expired_lets_nobody_in(api: Api) -> None:
    text = await a_token(api.resources, "admin", expires_in=timedelta(days=90))
    assert (await api.get("whoami", headers=bearer(text))).status_code == 200
    await set_column(api.resources, "admin", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    api.app.state.access.forget()
    refused = await api.get("whoami", headers=bearer(text))
    assert (refused.status_code, refused.json()["detail"]) == (401, "the token admin has expired")


async def test_the_last_token_taken_away_opens_no_door(light: Api) -> None:
    text = await a_token(light.resources)
    assert (await light.delete("tokens/admin", headers=bearer(text))).status_code == 200
    assert (await light.get("jobs")).status_code == 401
    assert (await light.get("jobs", headers=bearer(text))).status_code == 401


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_a_token_revoked_by_another_process_is_refused(light: Api, tmp_path: Path) -> None:
    text = await a_token(light.resources, name="ci")
    assert (await light.get("jobs", headers=bearer(text))).status_code == 200
    cli = CommandLine(tmp_path, DATABASE_URL=light.resources.settings.database_url)
    told = await asyncio.to_thread(cli.real, "tokens", "revoke", "ci", "--yes")
    assert told.code == 0, told

    async def is_refused() -> bool:
        return (await light.get("jobs", headers=bearer(text))).status_code == 401

    await eventually(is_refused)


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_tokens_are_looked_after_from_elsewhere(light: Api, tmp_path: Path) -> None:
    admin = await a_token(light.resources)
    async with Client(light.base, admin) as client:
        minted = await client.add_token("ci", "read", timedelta(days=90, seconds=1))
        assert (await client.token("ci")).expires_at == minted.row.expires_at
        async with Client(light.base, minted.text) as other:
            assert (await other.whoami()).who == "ci"
            with pytest.raises(Denied, match="this needs the role admin"):
                await other.revoke_token("ci")
        first = await client.tokens(limit=1)
        assert [row.name for row in first.items] == ["admin"]
        assert [row.name for row in (await client.tokens(cursor=first.next)).items] == ["ci"]
        assert [row.name async for row in client.each_token()] == ["admin", "ci"]
        assert (await client.revoke_token("ci")).state == "revoked"
        with pytest.raises(NotFound, match="no token 'nobody'"):
            await client.revoke_token("nobody")

    cli = CommandLine(tmp_path, FLOODMARK_URL=light.base, FLOODMARK_TOKEN=admin)
    told = await asyncio.to_thread(cli.real, "tokens", "ls")
    assert told.code == 0, told
    assert "revoked" in told.out
    assert not (tmp_path / ".floodmark").exists()


async def test_what_is_known_of_a_token_is_old_after_less_than_a_second(light: Api) -> None:
    seconds = Seconds()
    access = light.app.state.access = Access(tokens_of(light), sessions_of(light), now=seconds)
    text = await a_token(light.resources, name="ci")
    assert (await light.get("jobs", headers=bearer(text))).status_code == 200
    await Tokens(light.resources.database, light.resources.clock).revoke("ci")
    seconds.now += 0.99
    assert (await light.get("jobs", headers=bearer(text))).status_code == 401
    assert light.app.state.access is access


async def test_the_last_use_is_noted_at_most_once_a_minute(api: Api) -> None:
    seconds = Seconds()
    api.app.state.access = Access(tokens_of(api), sessions_of(api), now=seconds)
    text, store = await a_token(api.resources, name="ci"), Tokens(api.resources.database, api.resources.clock)
    assert (await store.show("ci")).last_used_at is None

    await asyncio.gather(*(api.get("whoami", headers=bearer(text)) for _ in range(5)))
    first = (await store.show("ci")).last_used_at
    assert first is not None
    # Time passes for the API but not for the store: another process has just noted it.
    seconds.now += 61
    await api.get("whoami", headers=bearer(text))
    assert (await store.show("ci")).last_used_at == first

    await set_column(api.resources, "ci", last_used_at=first - timedelta(seconds=61))
    seconds.now += 61
    await api.get("whoami", headers=bearer(text))
    assert (await store.show("ci")).last_used_at >= first  # type: ignore[operator] # it has been used


async def test_only_a_digest_is_stored_and_compared_in_constant_time(
    light: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = await a_token(light.resources, name="ci")
    async with light.resources.database.reading() as connection:
        [row] = (await connection.execute(select(tokens))).mappings().all()
    assert row["digest"] == digest_of(text)
    assert text.rpartition("_")[2] not in str(row)

    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert (await light.get("whoami", headers=bearer(wrong))).status_code == 401
    assert compared == [(digest_of(text), digest_of(wrong))]
    found = await Tokens(light.resources.database, light.resources.clock).find(row["token_id"])
    assert isinstance(found, StoredToken)
    assert digest_of(text) not in repr(found)


# Guessing


async def test_garbage_is_no_token(light: Api) -> None:
    await a_token(light.resources)
    for header in [
        "Bearer",
        "Bearer fm_",
        "Bearer fm__",
        f"Bearer {UNKNOWN}",
        f"Bearer {UNKNOWN}0",
        f"Bearer {UNKNOWN.upper()}",
        "Bearer fm_0123456789abcdef_' OR 1=1 --",
        "Bearer \xff\xfe\xfd",
        f"Bearer {'a' * 20_000}",
        "Basic YWRtaW46YWRtaW4=",
        "fm_0123456789abcdef",
        "",
    ]:
        light.app.state.access = Access(tokens_of(light), sessions_of(light))
        refused = await light.get("jobs", headers={"Authorization": header.encode("latin-1")})
        assert refused.status_code == 401, header
        assert "www-authenticate" in refused.headers


async def test_guessing_is_limited_by_address_and_logged_without_the_guess(light: Api) -> None:
    seconds = Seconds()
    light.app.state.access = Access(tokens_of(light), sessions_of(light), now=seconds)
    known, fresh = await a_token(light.resources, name="known"), await a_token(light.resources, name="fresh")
    assert (await light.get("jobs", headers=bearer(known))).status_code == 200
    guess = known[:-4] + "beef"

    with capture_logs() as logs:
        for _ in range(FAILURES_ALLOWED):
            assert (await light.get("jobs", headers=bearer(guess))).status_code == 401
        limited = await light.get("jobs", headers=bearer(guess))

    assert limited.status_code == 429
    assert 1 <= int(limited.headers["retry-after"]) <= FAILURES_WITHIN_SECONDS
    refusals = [line for line in logs if line["event"] == "token refused"]
    assert [(line["address"], line["reason"]) for line in refusals] == [("127.0.0.1", "wrong")] * FAILURES_ALLOWED
    assert not any(secret in str(logs) for secret in (guess, guess.rpartition("_")[2], digest_of(guess)))
    # A right token is never refused because others behind the same address guess.
    assert (await light.get("jobs", headers=bearer(fresh))).status_code == 200
    assert (await light.get("jobs", headers=bearer(known))).status_code == 200
    assert (await light.get("jobs", headers=bearer(guess))).status_code == 429
    seconds.now += FAILURES_WITHIN_SECONDS
    assert (await light.get("jobs", headers=bearer(guess))).status_code == 401


async def test_a_request_without_a_token_is_no_guess(light: Api) -> None:
    text = await a_token(light.resources)
    for _ in range(FAILURES_ALLOWED + 1):
        assert (await light.get("jobs")).status_code == 401
    assert (await light.get("jobs", headers=bearer(text))).status_code == 200


def test_failures_of_many_addresses_take_a_bounded_memory() -> None:
    seconds = Seconds()
    failures = Failures(seconds)
    for number in range(3 * MOST_REMEMBERED):
        failures.add(str(number))
    for _ in range(100):
        failures.add("loud")
    assert len(failures) == MOST_REMEMBERED
    assert failures.wait("loud") == FAILURES_WITHIN_SECONDS
    assert failures.wait("0") == 0


class CountedLoads:
    """Loads that wait for `go`, and how many there were."""

    def __init__(self) -> None:
        self.go, self.count = asyncio.Event(), 0

    async def load(self) -> str:
        self.count += 1
        number = self.count
        await self.go.wait()
        return f"value {number}"


async def test_callers_at_the_same_time_share_one_look_and_do_not_end_it_when_they_leave() -> None:
    recent, loads = Recent[str](Seconds(), 1.0), CountedLoads()
    first, second = (asyncio.create_task(recent.read("key", loads.load)) for _ in range(2))
    await eventually(lambda: loads.count == 1)
    first.cancel()
    await asyncio.wait([first])
    loads.go.set()
    assert first.cancelled()
    assert await second == await recent.read("key", loads.load) == "value 1"
    assert loads.count == 1


async def test_what_was_asked_before_a_change_is_not_remembered_after_it() -> None:
    recent, loads = Recent[str](Seconds(), 1.0), CountedLoads()
    before = asyncio.create_task(recent.read("key", loads.load))
    await eventually(lambda: loads.count == 1)
    recent.clear()
    after = asyncio.create_task(recent.read("key", loads.load))
    await eventually(lambda: loads.count == 2)
    loads.go.set()
    assert [await before, await after] == ["value 1", "value 2"]
    assert recent.get("key") == "value 2"


async def test_a_look_that_fails_is_repeated_for_the_next_caller() -> None:
    recent, loads = Recent[str](Seconds(), 1.0), CountedLoads()
    loads.go.set()

    async def fail() -> str:
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError):
        await recent.read("key", fail)
    assert await recent.read("key", loads.load) == "value 1"


# Where requests come from


def a_request(peer: str | None, host: str = "localhost:8060", **headers: str) -> Request:
    named = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    return Request({"type": "http", "headers": raw, "client": None if peer is None else (peer, 40000)})


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8060", "127.0.0.1:8060", "[::1]:8060"])
def test_this_machine_is_known(peer: str, host: str) -> None:
    assert is_local(a_request(peer, host))


@pytest.mark.parametrize(
    "request_",
    [
        a_request("192.168.1.7"),
        a_request("::ffff:10.0.0.1"),
        a_request("fe80::1%eth0"),
        a_request(None),
        a_request("testclient"),
        a_request("127.0.0.1", "evil.example:8060"),
        a_request("127.0.0.1", "127.0.0.1.evil.example"),
        a_request("127.0.0.1", "localhost.evil.example"),
        a_request("127.0.0.1", "localhost@evil.example"),
        a_request("127.0.0.1", "[::1"),
        a_request("127.0.0.1", ""),
        a_request("127.0.0.1", x_forwarded_for="127.0.0.1"),
        a_request("127.0.0.1", forwarded="for=127.0.0.1"),
        a_request("127.0.0.1", x_real_ip="127.0.0.1"),
        a_request("127.0.0.1", via="1.1 proxy"),
    ],
)
def test_what_only_looks_like_this_machine_is_not(request_: Request) -> None:
    assert not is_local(request_)


def test_an_address_of_ipv6_stands_for_its_network() -> None:
    assert address_of(a_request("2001:db8:1:2:3::4")) == address_of(a_request("2001:db8:1:2:9::9"))
    assert address_of(a_request("2001:db8:1:2::4")) != address_of(a_request("2001:db8:1:3::4"))
    assert address_of(a_request("::ffff:10.0.0.1")) == address_of(a_request("10.0.0.1")) == "10.0.0.1"
    assert address_of(a_request(None)) == "unknown"


async def test_a_page_that_points_its_own_name_here_is_refused(light: Api) -> None:
    rebound = {"Host": "evil.example:8060", "Origin": "http://evil.example:8060"}
    assert (await light.get("jobs", headers=rebound)).status_code == 401
    refused = await light.post("tokens", json={"name": "evil", "role": "admin"}, headers=rebound)
    assert refused.status_code == 401
    assert (await light.get("tokens")).json()["items"] == []


async def test_a_page_of_another_origin_changes_nothing(light: Api) -> None:
    await light.job()
    for headers in [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]:
        assert (await light.delete("jobs/news", headers=headers)).status_code == 403
        assert (await light.post("jobs/news/pause", headers=headers)).status_code == 403
    assert (await light.get("jobs/news")).json()["paused"] is False


async def test_a_page_of_our_own_may(light: Api) -> None:
    await light.job()
    own = {"Origin": light.base, "Sec-Fetch-Site": "same-origin"}
    assert (await light.post("jobs/news/pause", headers=own)).status_code == 200


@pytest.fixture
def outside() -> str:
    """An address of this machine that is not loopback; nothing is sent to find it.

    Without a network there is none: then it is the wildcard, which is no name for this machine either. Where everything
    has to be tested, that is not enough.
    """
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            assert os.environ.get("CI") != "true", "this machine has no address but loopback"
            return WILDCARD
        return str(asking.getsockname()[0])


@pytest.fixture
async def far(sqlite: Opened, outside: str) -> AsyncIterator[Api]:
    """The API as it is seen from elsewhere."""
    async with sqlite() as resources:
        app = create_app(resources)
        async with (
            HttpServer(app, outside) as server,
            httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
        ):
            yield Api(resources, app, client)


async def test_from_elsewhere_nothing_goes_without_a_token(far: Api, outside: str) -> None:
    assert (await far.get("jobs")).status_code == 401
    # Whoever reaches us through the wildcard may well be this machine, and then may call it so.
    assert (await far.get("jobs", headers={"Host": "localhost"})).status_code == (200 if outside == WILDCARD else 401)
    text = await a_token(far.resources, "read")
    assert (await far.get("whoami", headers=bearer(text))).json() == {"who": "read", "role": "read"}


async def test_everybody_may_do_everything_only_if_told_so_and_never_beside_tokens(
    sqlite: Opened, outside: str
) -> None:
    async with sqlite(api_public_without_token=True) as resources:
        app = create_app(resources)
        async with HttpServer(app, outside) as server, httpx2.AsyncClient(base_url=server.url, timeout=120) as client:
            assert (await client.get("/api/v2/whoami")).json() == {"who": "anonymous", "role": "admin"}
            await a_token(resources)
            app.state.access.forget()
            assert (await client.get("/api/v2/whoami")).status_code == 401


# Starting


@pytest.mark.spec("G9")
async def test_the_api_is_not_served_to_others_without_a_token(sqlite: Opened) -> None:
    others = ["0.0.0.0", "::", "", "192.0.2.1", "2001:db8::1", "no.such.host.invalid"]
    async with sqlite() as resources:
        for host in others:
            with pytest.raises(InvalidInput, match="without a token") as refused:
                await require_token_to_listen(resources, host)
            assert "floodmark tokens add NAME --role admin" in refused.value.hint
        await a_token(resources)
        for host in others:
            await require_token_to_listen(resources, host)
        await Tokens(resources.database, resources.clock).revoke("admin")
        with pytest.raises(InvalidInput):
            await require_token_to_listen(resources, "0.0.0.0")
    async with sqlite(api_public_without_token=True) as resources:
        await require_token_to_listen(resources, "0.0.0.0")


async def test_the_api_is_served_to_this_machine_without_a_token(sqlite: Opened) -> None:
    async with sqlite() as resources:
        for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"):
            await require_token_to_listen(resources, host)


# The audit


@pytest.mark.spec("V8")
async def test_every_change_carries_who_made_it_and_in_which_request(api: Api) -> None:
    admin = bearer(await a_token(api.resources, name="ada"))
    made = await api.post("tokens", json={"name": "ci", "role": "operate"}, headers=admin)
    operator = {**bearer(made.json()["token"]), "X-Request-ID": "r-7"}
    body = {"name": "news", "source": "python", "target": "feeds:news", "interval_seconds": 900}
    assert (await api.post("jobs", json=body, headers=admin)).status_code == 201
    assert (await api.post("jobs/news/pause", headers=operator)).status_code == 200
    assert (await api.delete("tokens/ci", headers=admin)).status_code == 200

    rows = await AuditLog(api.resources.database, api.resources.clock).page()

    assert [(row.who, row.via, row.action, row.object) for row in reversed(rows)] == [
        ("ada", "api", "token.added", "token:ci"),
        ("ada", "api", "job.added", "job:news"),
        ("ci", "api", "job.paused", "job:news"),
        ("ada", "api", "token.revoked", "token:ci"),
    ]
    assert rows[1].request_id == "r-7"
    assert all(row.request_id for row in rows)
    assert made.json()["token"].rpartition("_")[2] not in str(rows)
    assert digest_of(made.json()["token"]) not in str(rows)


@pytest.mark.spec("V8")
async def test_two_servers_on_one_database_know_the_same_tokens(opened: Opened) -> None:
    async with serving(opened) as one, opened() as resources, served(resources) as other:
        text = (await one.post("tokens", json={"name": "ci", "role": "admin"})).json()["token"]
        assert (await other.get("whoami", headers=bearer(text))).json()["who"] == "ci"
        assert (await one.delete("tokens/ci", headers=bearer(text))).status_code == 200

        async def is_refused() -> bool:
            return (await other.get("whoami", headers=bearer(text))).status_code == 401

        await eventually(is_refused)
