"""Access to the dashboard, as an attacker would try it: cookies, forms, links, headers, sizes."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from sqlalchemy import select, update

from certificates import self_signed
from dashboard.proxy import forwarded, proxied
from dashboard.site import Site, csrf_in, post_form, serving_site
from floodmark.dashboard.operations import PermittedOperations
from floodmark.dashboard.routes import PAGES
from floodmark.model.audit import Actor
from floodmark.model.tokens import ROLES
from floodmark.operations.declaration import operations_of
from floodmark.operations.declared import Operations
from floodmark.operations.stored_sessions import KEPT, KEPT_UNUSED, MOST_OF_A_TOKEN, DashboardSessions
from floodmark.operations.stored_tokens import id_in
from floodmark.operations.tables import sessions
from floodmark.store.schema import load_metadata
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

HTTPS = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Host": "monitor.example.org"}


@pytest_asyncio.fixture(loop_scope="session")
async def client(site: Site) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser that has not signed in."""
    async with site.client() as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def tls(site: Site, tmp_path: Path) -> AsyncIterator[str]:
    """The address of the dashboard behind a proxy with TLS."""
    context, _ = self_signed(tmp_path, "localhost")
    async with proxied(site.url, tls=context, headers=forwarded) as url:
        yield url


def cookies_of(answer: httpx2.Response) -> dict[str, str]:
    """The cookies that a response sets, as they are written."""
    return {one.partition("=")[0]: one for one in answer.headers.get_list("set-cookie")}


async def signed_in(client: httpx2.AsyncClient, token: str, **fields: str) -> httpx2.Response:
    return await post_form(client, "/sign-in", "/sign-in", token=token, **fields)


# Cookies


async def test_over_https_cookies_belong_to_this_host_and_to_https(site: Site, tls: str) -> None:
    token = await site.token("admin")
    async with site.client(base_url=tls) as client:
        answer = await signed_in(client, token)
        assert answer.status_code == 303
        for name, cookie in cookies_of(answer).items():
            assert name.startswith("__Host-floodmark_"), name
            assert "; Secure" in cookie
            assert "; HttpOnly" in cookie
            assert "; Path=/" in cookie
            assert "; SameSite=lax" in cookie
            assert "Domain" not in cookie
        [session] = [name for name in cookies_of(answer) if "session" in name]
        text = cookies_of(answer)[session].partition("=")[2].partition(";")[0]
    async with site.client(base_url=tls) as client:
        # The same cookie under a name that a neighbouring host could have set.
        client.cookies.set("floodmark_session", text)
        assert (await client.get("/")).status_code == 303
        client.cookies.set(session, text)
        assert (await client.get("/")).status_code == 200


async def test_without_https_cookies_are_not_lost_on_this_machine(site: Site, client: httpx2.AsyncClient) -> None:
    answer = await signed_in(client, await site.token("admin"))
    assert all("Secure" not in cookie and not name.startswith("__") for name, cookie in cookies_of(answer).items())


# Sessions


async def test_a_sign_in_never_takes_over_the_session_that_was_there(site: Site, client: httpx2.AsyncClient) -> None:
    """Otherwise somebody who gave a browser a session would share it with the next person."""
    first, second = await site.token("admin"), await site.token("read")
    await signed_in(client, first)
    [planted] = (await site.operations.sessions()).items
    given = dict(client.cookies)
    await signed_in(client, second)
    [now] = (await site.operations.sessions()).items
    assert now.session_id != planted.session_id
    assert now.token == "a-read"
    async with site.client() as other:
        other.cookies.update(given)
        assert (await other.get("/")).status_code == 303


async def test_forms_of_the_last_person_at_a_browser_are_refused(site: Site, client: httpx2.AsyncClient) -> None:
    await site.job()
    token = await site.token("admin")
    before = csrf_in((await client.get("/sign-in")).text)
    await signed_in(client, token)
    old = await client.post("/act/pause_job", data={"csrf": before, "job_id": "news"})
    assert old.status_code == 403
    within = csrf_in((await client.get("/jobs")).text)
    await post_form(client, "/jobs", "/sign-out")
    assert (await client.post("/sign-in", data={"csrf": within, "token": token})).status_code == 403
    assert not (await site.operations.job("news")).paused


async def test_signing_out_everywhere_ends_every_session_of_the_token(site: Site) -> None:
    token, other_token = await site.token("operate"), await site.token("read")
    async with site.client(token) as here, site.client(token) as there, site.client(other_token) as other:
        assert (await post_form(here, "/", "/sign-out", everywhere="yes")).status_code == 303
        assert (await here.get("/")).status_code == 303
        assert (await there.get("/")).status_code == 303
        assert (await other.get("/")).status_code == 200
    [row] = (await site.operations.audit(what="token:a-operate")).items
    assert (row.action, row.who, row.before) == ("sessions.ended", "a-operate", {"sessions": 2})


async def test_an_admin_ends_all_sessions(any_site: Site) -> None:
    token, other = await any_site.token("read"), await any_site.token("admin")
    async with any_site.client(token) as one, any_site.client(other) as two:
        assert await any_site.operations.end_sessions(token="a-read") == 1
        assert await any_site.operations.end_sessions() == 1
        assert await any_site.operations.end_sessions() == 0
        for client in (one, two):
            while (await client.get("/")).status_code != 303:
                pass


async def test_a_session_ends_after_a_week_without_use_and_after_a_month_at_the_latest(any_site: Site) -> None:
    token, resources = await any_site.token("read"), any_site.resources
    stored = DashboardSessions(resources.database, resources.clock)
    cookie = await stored.add(id_in(token) or "", browser="", address="")
    [row] = await stored.page()
    assert abs(row.expires_at - row.created_at - KEPT) < timedelta(seconds=1)
    for columns in ({"last_used_at": row.created_at - KEPT_UNUSED}, {"expires_at": row.created_at}):
        async with resources.database.writing() as connection:
            await connection.execute(update(sessions).values(last_used_at=row.last_used_at, expires_at=row.expires_at))
            assert await stored.find(row.session_id)
            await connection.execute(update(sessions).values(**columns))
        assert await stored.find(row.session_id) is None
        assert await stored.page() == []
    assert row.session_id in cookie
    await stored.add(id_in(token) or "", browser="", address="")
    assert len(await resources.database.fetch(select(sessions))) == 1, "an ended session is deleted"


async def test_a_token_has_a_bounded_number_of_sessions(any_site: Site) -> None:
    token = await any_site.token("read")
    stored = DashboardSessions(any_site.resources.database, any_site.resources.clock)
    for _ in range(MOST_OF_A_TOKEN + 3):
        last = await stored.add(id_in(token) or "", browser="", address="")
    rows = await stored.page(limit=500)
    assert len(rows) == MOST_OF_A_TOKEN
    assert any(row.session_id in last for row in rows), "the newest stays"


async def test_every_sign_in_is_in_the_audit_log_without_secrets(site: Site, tls: str) -> None:
    token = await site.token("admin")
    async with site.client(base_url=tls, headers={"User-Agent": "A browser"}) as client:
        await signed_in(client, token)
        [session] = (await site.operations.sessions()).items
        assert (session.browser, session.address) == ("A browser", "127.0.0.1 via 127.0.0.1")
        await post_form(client, "/", "/sign-out")
    rows = (await site.operations.audit(what=f"session:{session.session_id}")).items
    assert [(row.action, row.who, row.via) for row in rows] == [
        ("session.ended", "a-admin", "dashboard"),
        ("session.began", "a-admin", "dashboard"),
    ]
    assert token.rpartition("_")[2] not in str(rows)


async def test_a_form_after_the_end_of_the_session_changes_nothing_and_asks_to_sign_in(site: Site) -> None:
    await site.job()
    async with site.client(await site.token("admin")) as client:
        proof = csrf_in((await client.get("/jobs")).text)
        [session] = (await site.operations.sessions()).items
        await site.operations.end_session(session.session_id)
        fields = {"csrf": proof, "job_id": "news", "back": "/jobs"}
        while (answer := await client.post("/act/resume_job", data=fields)).status_code == 303:
            pass
        assert answer.status_code == 401
        assert "your session has ended" in answer.text
        assert 'action="/sign-in"' in answer.text


# Forms


async def test_nobody_is_signed_in_by_a_form_of_another_site(site: Site, client: httpx2.AsyncClient) -> None:
    """Else a person would work under the token of somebody else, who can read everything that is typed."""
    token = await site.token("admin")
    assert (await client.post("/sign-in", data={"token": token})).status_code == 403
    good = csrf_in((await client.get("/sign-in")).text)
    foreign = {"Origin": "https://elsewhere.example"}
    assert (await client.post("/sign-in", data={"token": token, "csrf": good}, headers=foreign)).status_code == 403
    assert (await site.operations.sessions()).items == []


@pytest.mark.parametrize("headers", [{"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-Proto": "http"}])
async def test_over_plain_http_no_token_is_asked_for_or_taken(site: Site, headers: dict[str, str]) -> None:
    token = await site.token("admin")
    async with site.client(headers=headers) as client:
        shown = await client.get("/sign-in")
        assert 'name="token"' not in shown.text
        assert "not accepted over plain http" in shown.text
        answer = await client.post("/sign-in", data={"token": token, "csrf": csrf_in(shown.text)})
        assert answer.status_code == 400
        assert "session" not in str(cookies_of(answer))


async def test_the_cookie_changes_data_through_the_api_only_from_our_own_pages(sqlite: Opened) -> None:
    friend = "https://friend.example.org"
    async with serving_site(sqlite, api_cors_origins=friend) as site:
        await site.job()
        token = await site.token("admin")
        async with site.client(token) as client:
            pause = "/api/v2/jobs/news/pause"
            for headers in ({}, {"Origin": friend}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
                assert (await client.post(pause, headers=headers)).status_code == 403, headers
            assert not (await site.operations.job("news")).paused
            assert (await client.get("/api/v2/jobs/news", headers={"Origin": friend})).status_code == 200
            assert (await client.post(pause, headers={"Origin": site.url})).status_code == 200
            bearer = {"Authorization": f"Bearer {token}", "Origin": friend}
            assert (await client.post("/api/v2/jobs/news/resume", headers=bearer)).status_code == 200


async def test_a_page_that_was_changed_on_its_way_is_no_page_of_ours(site: Site) -> None:
    await site.job()
    async with site.client(headers={**HTTPS, "Host": "monitor.example.org"}) as client:
        for origin, status in (("http://monitor.example.org", 403), ("https://monitor.example.org", 401)):
            answer = await client.post("/api/v2/jobs/news/pause", headers={"Origin": origin})
            assert answer.status_code == status, origin


async def test_a_secret_is_not_taken_over_plain_http_by_any_button(site: Site) -> None:
    token = await site.token("admin")
    async with site.client(token) as client:
        proof = csrf_in((await client.get("/")).text)
        data = {"csrf": proof, "name": "reader1", "session": "1abc"}
        plain = {"X-Forwarded-Proto": "http"}
        answer = await client.post("/act/store_account", data=data, headers=plain)
        assert answer.status_code == 400
        assert "not accepted over plain http" in answer.text


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"csrf={csrf}&" + b"x=1&" * 2001, 400, "this is not a form"),
        (b"csrf={csrf}&job_id=a%00b", 400, "NUL"),
        (b"\xff\xfe", 400, "this is not a form"),
        (b"csrf={csrf}&job_id=" + b"x" * 2_000_000, 413, "1048576 bytes"),
    ],
)
async def test_a_form_that_is_none_is_refused(
    site: Site, client: httpx2.AsyncClient, body: bytes, status: int, says: str
) -> None:
    await site.job()
    body = body.replace(b"{csrf}", csrf_in((await client.get("/jobs")).text).encode())
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await client.post("/act/pause_job", content=body, headers=kind)
    assert answer.status_code == status
    assert says in answer.text
    assert not (await site.operations.job("news")).paused


@pytest.mark.parametrize("name", ["nonsense", "_method", "actor"])
async def test_a_field_that_the_operation_does_not_have_is_refused(
    site: Site, client: httpx2.AsyncClient, name: str
) -> None:
    await site.job()
    await post_form(client, "/jobs", "/act/pause_job", **{"job_id": "news", "back": "/jobs", name: "DELETE"})
    assert "has no argument" in (await client.get("/jobs")).text
    assert not (await site.operations.job("news")).paused


# Links


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_no_link_acts_also_not_under_another_method(site: Site, client: httpx2.AsyncClient, method: str) -> None:
    job_id = await site.job()
    proof = csrf_in((await client.get("/jobs")).text)
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        query = f"?job_id={job_id}&csrf={proof}&_method=POST"
        for path in ("/act/pause_job", "/act/remove_job", "/sign-out", f"/api/v2/jobs/{job_id}/pause"):
            answer = await client.request(method, path + query, headers={name: "POST"})
            assert answer.status_code in (404, 405), path
    assert not (await site.operations.job("news")).paused


@pytest.mark.thorough
async def test_what_is_shown_to_any_role_changes_nothing(sqlite: Opened, is_release: bool) -> None:
    """Every page and every GET of the API, for the lowest and the highest role: the database is the same afterwards.

    With `--release` for every role.
    """
    async with serving_site(sqlite) as site:
        job_id = await site.job()
        tokens = [await site.token(role) for role in (ROLES if is_release else (ROLES[0], ROLES[-1]))]
        for token in tokens:
            async with site.client(token) as client:
                # The first use is noted.
                await client.get("/")
                before = await _contents(site)
                for path in _paths(job_id):
                    answer = await client.get(path)
                    assert answer.status_code < 500, f"{path}: {answer.text}"
                assert await _contents(site) == before


async def test_a_page_cannot_carry_out_a_change_by_mistake(site: Site) -> None:
    await site.job()
    operations = PermittedOperations(site.resources, Actor(who="tests"), role="admin")
    operations.reads_only = True
    assert (await operations.job("news")).name == "news"
    with pytest.raises(AssertionError, match="changes data"):
        await operations.pause_job("news")


def _paths(job_id: str) -> list[str]:
    pages = [page.path for page in PAGES]
    api = [f"/api/v2{one.path}" for one in operations_of(Operations) if one.method == "GET"]
    return [path.replace("{job_id}", job_id).replace("{", "").replace("}", "") for path in (*pages, *api)]


async def _contents(site: Site) -> dict[str, Any]:
    """Every row of every table, except the times of the last use."""
    found: dict[str, Any] = {}
    for table in load_metadata().sorted_tables:
        columns = [column for column in table.c if column.name != "last_used_at"]
        found[table.name] = sorted(map(repr, await site.resources.database.fetch(select(*columns))))
    return found


@pytest.mark.parametrize(
    "to", ["//elsewhere.example/", "https://elsewhere.example/", "/\\elsewhere.example", "/\t/elsewhere.example", "x"]
)
async def test_a_sign_in_leads_only_to_pages_of_the_dashboard(site: Site, client: httpx2.AsyncClient, to: str) -> None:
    answer = await signed_in(client, await site.token("read"), to=to)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/jobs?tag=a%20b&text=%22%3E", "/jobs?tag=a%20b&text=%22%3E"),
        ("/jobs?text=a%2Fb%25%3F%23%20", "/jobs?text=a%2Fb%25%3F%23%20"),
        ("/jobs?x=%0d%0aSet-Cookie:%20a=b", "/jobs?x=%0d%0aSet-Cookie:%20a=b"),
    ],
)
async def test_a_sign_in_leads_to_the_page_that_was_asked_for(
    site: Site, client: httpx2.AsyncClient, path: str, to: str
) -> None:
    token = await site.token("read")
    sent = await client.get(path)
    assert sent.status_code == 303
    shown = await client.get(sent.headers["location"])
    asked = shown.text.partition('name="to" value="')[2].partition('"')[0].replace("&amp;", "&")
    answer = await client.post("/sign-in", data={"csrf": csrf_in(shown.text), "token": token, "to": asked})
    assert answer.headers["location"] == to


async def test_a_path_of_two_slashes_is_not_another_host(site: Site, client: httpx2.AsyncClient) -> None:
    for name in ("one", "two"):
        answer = await client.get("//elsewhere.example/%2e%2e", headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert '"//' not in answer.text
        await site.token("read", name)


# Headers


async def test_pages_are_neither_framed_nor_cached_nor_opened_by_others(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/sign-in", "/nowhere"):
        headers = (await client.get(path, headers={"Accept": "text/html"})).headers
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "form-action 'self'" in headers["content-security-policy"]
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("field", ["back", "said", "job_id"])
async def test_no_field_of_a_form_becomes_a_header(site: Site, client: httpx2.AsyncClient, field: str) -> None:
    await site.job()
    fields = {"job_id": "news", "back": "/jobs", field: "/jobs\r\nSet-Cookie: planted=1"}
    answer = await post_form(client, "/jobs", "/act/pause_job", **fields)
    assert answer.status_code == 303
    assert "planted" not in answer.headers
    assert "planted" not in cookies_of(answer)


async def test_a_long_message_is_shown_too(site: Site, client: httpx2.AsyncClient) -> None:
    """A browser drops a cookie that is too large."""
    await site.job()
    answer = await post_form(client, "/jobs", "/act/pause_job", job_id="news", back="/jobs", said="\U0001f30a" * 3000)
    assert all(len(cookie) < 4096 for cookie in cookies_of(answer).values())
    assert "\U0001f30a" in (await client.get("/jobs")).text


async def test_a_query_in_no_encoding_is_no_trouble(site: Site, client: httpx2.AsyncClient) -> None:
    assert (await client.get("/jobs?text=%ff%fe")).status_code == 200
    await site.token("read")
    while (answer := await client.get("/jobs?text=%ff")).status_code == 200:
        pass
    assert answer.status_code == 303
