"""Webhooks over HTTP: whom they are believed from, and what they fire; and how triggers are registered."""

import asyncio
import hmac
import shutil
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from api.serving import Api, served, serving
from floodmark.inbound.refusals import FLUSH_EVERY
from floodmark.inbound.webhooks import Webhook, judge
from floodmark.model.clock import SystemClock
from floodmark.operations.stored_tokens import Tokens
from floodmark.security.webhook_signatures import signature_of
from floodmark.testing.clock import SetClock
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened

KEY = SecretStr("a key for tests only")
SECRET = "correct horse battery staple"
# A visitor behind a proxy is not this machine.
ELSEWHERE = {"X-Forwarded-For": "192.0.2.7"}


HERE = "/api/v2/triggers/webhook"


def openssl(timestamp: str, path: str, body: bytes, secret: str = SECRET) -> str:
    """The signature as somebody else's program makes it."""
    program = shutil.which("openssl")
    assert program, "NOT TESTED: the openssl command is needed to sign webhooks independently"
    command = [program, "dgst", "-sha256", "-hmac", secret, "-hex"]
    made = subprocess.run(
        command, input=f"{timestamp}.POST {HERE}{path}\n".encode() + body, capture_output=True, check=True
    )
    return made.stdout.decode().rpartition(" ")[2].strip()


def signed(body: bytes, path: str = "/a", *, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    """Headers of a webhook to this path that was signed at this time."""
    timestamp = f"{SystemClock().now().timestamp() if at is None else at:.6f}"
    return {
        "X-Floodmark-Timestamp": timestamp,
        "X-Floodmark-Signature": f"v2={signature_of(secret, timestamp, body, address=HERE + path)}",
    }


async def send(api: Api, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Any:
    """Deliver a webhook; its path may have any number of segments."""
    url = f"/api/v2/triggers/webhook{path}"
    return await api.client.post(url, content=body, headers={"Content-Type": "application/json", **(headers or {})})


async def register(api: Api, pattern: str, **more: Any) -> dict[str, Any]:
    made = await api.post("triggers/webhooks", json={"pattern": pattern, **more})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


async def shown(api: Api) -> dict[str, Any]:
    """The only webhook there is."""
    [found] = (await api.get("triggers/webhooks")).json()["items"]
    trigger: dict[str, Any] = found
    return trigger


@pytest.fixture
async def hooks(opened: Opened) -> AsyncIterator[Api]:
    """An API with one job."""
    async with serving(opened, floodmark_secret_key=KEY) as api:
        await api.job("news", interval_seconds=900)
        yield api


@pytest.fixture
async def few(sqlite: Opened) -> AsyncIterator[Api]:
    """The same, where the kind of database does not matter."""
    async with serving(sqlite, floodmark_secret_key=KEY) as api:
        await api.job("news", interval_seconds=900)
        yield api


# Signatures


@pytest.mark.spec("V4", "V8", "G9")
async def test_a_webhook_that_openssl_signed_is_taken(hooks: Api) -> None:
    await register(hooks, "/sources/{source_id}/crawl", jobs=["news"], secret=SECRET, params={"t": "body.title"})
    timestamp, body = str(int(SystemClock().now().timestamp())), b'{"title": "Tides"}'
    headers = {
        "X-Floodmark-Timestamp": timestamp,
        "X-Floodmark-Signature": f"v2={openssl(timestamp, '/sources/42/crawl', body)}",
    }

    taken = await send(hooks, "/sources/42/crawl", body, headers | ELSEWHERE)

    assert taken.status_code == 202, taken.text
    answer = taken.json()
    assert (answer["matched"], answer["duplicate"], answer["skipped"]) == (1, False, [])
    [execution] = answer["executions"]
    assert (execution["job_name"], execution["state"]) == ("news", "queued")
    assert execution["trigger"] == "webhook:/sources/{source_id}/crawl"
    found = (await hooks.get(f"executions/{execution['execution_id']}")).json()
    assert found["trigger"] == "webhook:/sources/{source_id}/crawl"


@pytest.mark.spec("V4", "G9")
@pytest.mark.thorough
async def test_altered_replayed_late_and_unsigned_webhooks_are_refused_and_counted(hooks: Api) -> None:
    await register(hooks, "/a/*", jobs=["news"], secret=SECRET)
    now, body = SystemClock().now().timestamp(), b'{"n": 1}'
    good = signed(body, "/a/1")
    assert (await send(hooks, "/a/1", body, good)).status_code == 202

    for reason, sent, headers in [
        ("altered", b'{"n": 2}', signed(body, "/a/1")),
        ("altered", body, signed(body, "/a/1", secret="another secret altogether")),
        ("altered", body, {**signed(body, "/a/1"), "X-Floodmark-Timestamp": str(now)}),
        ("late", body, signed(body, "/a/1", at=now - 301)),
        ("late", body, signed(body, "/a/1", at=now + 900)),
        ("unsigned", body, {}),
        ("unsigned", body, {"X-Floodmark-Timestamp": str(now)}),
        ("malformed", body, {**signed(body, "/a/1"), "X-Floodmark-Signature": "v2=beef"}),
        ("malformed", body, {**signed(body, "/a/1"), "X-Floodmark-Timestamp": "yesterday"}),
        ("replayed", body, good),
        ("replayed", body, {**good, "X-Floodmark-Delivery": "another"}),
    ]:
        refused = await send(hooks, "/a/1", sent, headers)
        assert (refused.status_code, refused.json()["type"]) == (401, f"urn:floodmark:webhook-{reason}"), reason
        assert refused.json()["hint"]
        title = "A signature is needed" if reason == "unsigned" else "The signature was refused"
        assert refused.json()["title"] == title

    async def all_counted() -> dict[str, Any]:
        trigger = await shown(hooks)
        assert trigger["refusals"] == {"altered": 3, "late": 2, "unsigned": 2, "malformed": 2, "replayed": 2}
        return trigger

    trigger = await eventually(all_counted)
    assert (trigger["refused"], trigger["last_refusal"], trigger["fired"]) == (11, "replayed", 1)
    assert len((await hooks.get("executions")).json()["items"]) == 1


async def test_the_window_is_a_setting(sqlite: Opened) -> None:
    clock = SetClock()
    async with serving(sqlite, floodmark_secret_key=KEY, webhook_window=timedelta(hours=1), clock=clock) as api:
        await register(api, "/a", secret=SECRET)
        at = clock.now().timestamp()
        assert (await send(api, "/a", b"", signed(b"", at=at - 3599))).status_code == 202
        assert (await send(api, "/a", b"", signed(b"", at=at - 3601))).status_code == 401


async def test_while_a_secret_is_changed_a_sender_may_sign_with_both(few: Api) -> None:
    await register(few, "/a", secret="the old secret of this path")
    made = await register(few, "/a", signed=True, replace=True)
    headers = signed(b"x", secret=made["secret"])
    old = signature_of("the old secret of this path", headers["X-Floodmark-Timestamp"], b"x", address=f"{HERE}/a")
    headers["X-Floodmark-Signature"] = f"v2={old}, {headers['X-Floodmark-Signature']}"
    headers["Content-Type"] = "text/plain"
    assert (await send(few, "/a", b"x", headers)).status_code == 202
    assert (await send(few, "/a", b"x", signed(b"x", secret="the old secret of this path"))).status_code == 401


@pytest.mark.spec("V4", "V8", "G9")
async def test_a_signature_is_good_for_one_path_and_query(few: Api) -> None:
    await register(few, "/sources/{source_id}/crawl", jobs=["news"], secret=SECRET)
    headers = ELSEWHERE | signed(b"{}", "/sources/1/crawl")
    refused = await send(few, "/sources/2/crawl", b"{}", headers)
    assert (refused.status_code, refused.json()["type"]) == (401, "urn:floodmark:webhook-altered"), refused.text
    assert (await send(few, "/sources/1/crawl", b"{}", headers)).status_code == 202
    timestamp = headers["X-Floodmark-Timestamp"]
    bare = hmac.new(SECRET.encode(), f"{timestamp}.{{}}".encode(), "sha256").hexdigest()
    for old, words in ((f"sha256={bare}", "neither method nor path"), (bare, "cannot be read")):
        refused = await send(few, "/sources/3/crawl", b"{}", {**headers, "X-Floodmark-Signature": old})
        assert (refused.status_code, words in refused.json()["detail"]) == (401, True), refused.text


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(1, 255))
def test_one_changed_byte_is_enough(body: bytes, place: int, change: int) -> None:
    now = SystemClock().now()
    timestamp = str(int(now.timestamp()))
    headers = {
        "x-floodmark-timestamp": timestamp,
        "x-floodmark-signature": f"v2={signature_of(SECRET, timestamp, body, address='/')}",
    }
    window = timedelta(minutes=5)
    assert judge(Webhook(path=(), body=body, headers=headers), SECRET, now=now, window=window).refusal is None
    other = bytearray(body or b"\0")
    other[place % len(other)] ^= change if body else 0
    for changed in (
        Webhook(path=(), body=bytes(other), headers=headers),
        Webhook(path=(), body=body, headers=headers, method="PUT"),
        Webhook(path=(), body=body, headers=headers, address="/?a=1"),
    ):
        assert judge(changed, SECRET, now=now, window=window).refusal == "altered"


# Tokens instead


@pytest.mark.spec("V4", "G9")
@pytest.mark.thorough
async def test_without_a_secret_only_those_who_may_operate_are_believed(hooks: Api) -> None:
    await register(hooks, "/a", jobs=["news"])
    assert (await send(hooks, "/a")).status_code == 202, "this machine, while there are no tokens"

    refused = await send(hooks, "/a", headers=ELSEWHERE)
    assert (refused.status_code, refused.json()["type"]) == (401, "urn:floodmark:webhook-no-token")

    async def is_counted() -> bool:
        return bool((await shown(hooks))["refusals"] == {"no token": 1})

    await eventually(is_counted)
    assert (await send(hooks, "/nothing/here", headers=ELSEWHERE)).status_code == 401, "strangers learn nothing"

    store = Tokens(hooks.resources.database, hooks.resources.clock)
    reader, operator = await store.add("reader", "read"), await store.add("operator", "operate")
    as_reader = {"Authorization": f"Bearer {reader.text}"}
    as_operator = {"Authorization": f"Bearer {operator.text}"}
    assert (await send(hooks, "/a", headers=ELSEWHERE | as_reader)).status_code == 403
    assert (await send(hooks, "/a", headers=ELSEWHERE | as_operator)).status_code == 202


async def test_a_secret_is_asked_for_whoever_comes(few: Api) -> None:
    await register(few, "/a", jobs=["news"], secret=SECRET)
    refused = await send(few, "/a")
    assert (refused.status_code, refused.json()["type"]) == (401, "urn:floodmark:webhook-unsigned")


async def test_a_signature_also_fires_jobs_that_name_the_path_themselves(few: Api) -> None:
    await few.job("naming", trigger_webhook="/a/*")
    assert (await send(few, "/a/1", headers=ELSEWHERE)).status_code == 401
    await register(few, "/a/**", secret=SECRET)
    taken = await send(few, "/a/1", b"", ELSEWHERE | signed(b"", "/a/1"))
    assert [execution["job_name"] for execution in taken.json()["executions"]] == ["naming"]


# What they fire


@pytest.mark.spec("V8", "V4")
async def test_a_webhook_may_name_its_path_in_its_body(hooks: Api) -> None:
    await hooks.job("crawl", trigger_webhook="/sources/{source_id}/crawl")
    for body in ({"path": "/sources/42/crawl"}, {"source_id": "42"}, {"source_id": 42}, {"source": "42"}):
        taken = await hooks.post("triggers/webhook", json=body)
        assert (taken.status_code, taken.json()["matched"]) == (202, 1), body
    odd: list[Any] = [{}, [], "x", {"path": ""}, {"path": 7}, {"source_id": True}]
    for wrong in odd:
        refused = await hooks.post("triggers/webhook", json=wrong)
        assert refused.status_code == 400, wrong
        assert "path" in refused.json()["hint"]
    assert (await hooks.post("triggers/webhook", content=b"{")).status_code == 400


@pytest.mark.spec("V4")
async def test_a_path_where_nothing_is_is_told_and_counted(hooks: Api) -> None:
    taken = await hooks.post("triggers/webhook/nobody")
    assert taken.status_code == 202
    assert (taken.json()["matched"], taken.json()["executions"]) == (0, [])

    async def is_counted() -> bool:
        status = (await hooks.get("triggers/status")).json()
        return bool(status["unmatched"] == {"count": 1, "last": "webhook:/nobody"})

    await eventually(is_counted)


@pytest.mark.spec("V4")
@pytest.mark.thorough
async def test_refused_webhooks_cost_no_database_write_each(sqlite: Opened) -> None:
    """A stranger cannot keep the database busy: the counts are written in batches."""
    async with sqlite(floodmark_secret_key=KEY) as resources, served(resources) as api:
        await api.job("news")
        await register(api, "/a", jobs=["news"], secret=SECRET)
        body = b"{}"
        good = signed(body)
        assert (await send(api, "/a", body, good)).status_code == 202
        watch = sqlite3.connect(resources.settings.database_url.removeprefix("sqlite:///"))
        [before] = watch.execute("PRAGMA data_version").fetchone()
        began, bad = time.monotonic(), {**good, "X-Floodmark-Signature": "v2=" + "0" * 64}
        for _ in range(50):
            assert (await send(api, "/a", body, bad)).status_code == 401
            assert (await send(api, "/a", body, good)).status_code == 401, "replayed"
            assert (await send(api, "/nobody", body)).status_code == 202
        [after] = watch.execute("PRAGMA data_version").fetchone()
        watch.close()
        batches = 1 + (time.monotonic() - began) / FLUSH_EVERY.total_seconds()
        assert after - before <= batches + 1

        async def are_counted() -> bool:
            trigger, status = await shown(api), (await api.get("triggers/status")).json()
            refusals = {"altered": 50, "replayed": 50}
            return bool(trigger["refusals"] == refusals and status["unmatched"]["count"] == 50)

        await eventually(are_counted)


async def test_a_slash_within_a_segment_stays_within_it(few: Api) -> None:
    await register(few, "/a/{name}", jobs=["news"])
    assert (await send(few, "/a/b%2Fc%20d")).json()["matched"] == 1
    assert (await send(few, "/a/b/c")).json()["matched"] == 0


@pytest.mark.spec("B3", "V4")
async def test_a_webhook_for_an_adaptive_job_is_answered_with_its_hint(few: Api) -> None:
    job = await few.job("quiet", schedule_type="adaptive", interval_seconds=None)
    await register(few, "/a", jobs=["quiet"], secret=SECRET)

    answer = (await send(few, "/a", b"{}", signed(b"{}") | ELSEWHERE)).json()

    assert (answer["matched"], answer["executions"]) == (1, [])
    assert answer["hinted"] == [{"job_id": job["job_id"], "job_name": "quiet", "trigger": "webhook:/a"}]
    assert (await shown(few))["hinted"] == 1
    assert (await send(few, "/a", b"{}", signed(b"other") | ELSEWHERE)).status_code == 401


async def test_paused_and_disabled_jobs_are_told_apart_from_fired_ones(few: Api) -> None:
    await few.job("quiet", schedule_enabled=False)
    await few.post("jobs/news/pause", json={"reason": "too loud"})
    await register(few, "/a", jobs=["news", "quiet"])
    answer = (await few.post("triggers/webhook/a")).json()
    assert (answer["matched"], answer["executions"]) == (2, [])
    told = {skipped["job"]: skipped["reason"] for skipped in answer["skipped"]}
    assert told == {"news": "it is paused: too loud", "quiet": "it is disabled"}


@pytest.mark.spec("V4")
async def test_the_same_delivery_at_two_servers_fires_once(opened: Opened) -> None:
    async with (
        opened(floodmark_secret_key=KEY) as one,
        opened(floodmark_secret_key=KEY) as two,
        served(one) as first,
        served(two) as second,
    ):
        await first.job("news")
        await register(first, "/a", jobs=["news"], secret=SECRET)
        answers = await asyncio.gather(
            *(send(api, "/a", b"{}", signed(b"{}") | {"X-Floodmark-Delivery": "d1"}) for api in (first, second) * 3)
        )
        assert [answer.status_code for answer in answers] == [202] * 6, [answer.text for answer in answers]
        assert sorted(answer.json()["duplicate"] for answer in answers) == [False] + [True] * 5
        executions = {tuple(e["execution_id"] for e in answer.json()["executions"]) for answer in answers}
        assert len(executions) == 1
        assert len((await second.get("executions")).json()["items"]) == 1


@pytest.mark.spec("V4")
async def test_what_is_registered_at_one_server_counts_at_the_other_at_once(opened: Opened) -> None:
    async with opened() as one, opened() as two, served(one) as first, served(two) as second:
        await first.job("news")
        await register(first, "/a", jobs=["news"], debounce_seconds=60)
        assert (await second.post("triggers/webhook/a")).json()["debounced_until"] is None
        assert (await first.post("triggers/webhook/a")).json()["debounced_until"] is not None
        answer = (await second.post("triggers/webhook/a")).json()
        assert [execution["folded"] for execution in answer["executions"]] == [True]
        trigger = await shown(second)
        assert (await second.delete(f"triggers/webhooks/{trigger['trigger_id']}")).status_code == 200
        assert (await first.post("triggers/webhook/a")).json()["matched"] == 0


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"{", "application/json", 400),
        (b'{"a": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[" * 500 + b"]" * 500, "application/json", 400),
        (b"[" * 500 + b"]" * 500, "text/plain", 400),
        (b"[" * 30 + b"]" * 30, "application/json", 202),
        (b"\xff\xfe", "application/json", 400),
        (b"\xff\xfe", "text/plain", 202),
        (b'{"a": "\\u0000"}', "application/json", 202),
        (b'{"a": "\\ud800"}', "application/json", 400),
        (b"", "application/json", 202),
        (b"a=1&b=2", "application/x-www-form-urlencoded", 202),
    ],
)
async def test_odd_bodies_do_no_harm(few: Api, body: bytes, kind: str, code: int) -> None:
    await register(few, "/a", jobs=["news"], params={"all": "body", "a": "body.a"})
    assert (await send(few, "/a", body, {"Content-Type": kind})).status_code == code


async def test_odd_paths_and_ids_do_no_harm(few: Api) -> None:
    await register(few, "/**", jobs=["news"])
    assert (await send(few, "/a%0Ab")).status_code == 404
    assert (await send(few, "/a%09b")).status_code == 400
    assert (await send(few, "/" + "a" * 3000)).status_code in (400, 422)
    assert (await send(few, "/a", headers={"X-Floodmark-Delivery": "d" * 300})).status_code == 422
    assert (await send(few, "/%E2%9C%93")).status_code == 202


# Registering


@pytest.mark.spec("V8")
async def test_webhooks_and_channels_are_registered_listed_and_removed(hooks: Api) -> None:
    made = await register(hooks, "/a/*", jobs=["news"], signed=True, debounce_seconds=5)
    assert (made["kind"], made["signed"], made["jobs"], made["listening"]) == ("webhook", True, ["news"], True)
    assert len(made["secret"]) >= 32
    channel = await hooks.post("triggers/channels", json={"pattern": "content:*", "jobs": ["news"]})
    assert channel.status_code == 201
    assert (channel.json()["secret"], channel.json()["why_not"]) == (None, "there is no Redis: set REDIS_URL")
    stream = await hooks.post("triggers/streams", json={"pattern": "orders", "params": {"n": "body.n"}})
    assert (stream.status_code, stream.json()["kind"]) == (201, "stream")

    listed = await hooks.get("triggers/webhooks")
    assert [row["pattern"] for row in listed.json()["items"]] == ["/a/*"]
    assert made["secret"] not in listed.text
    assert [row["pattern"] for row in (await hooks.get("triggers/channels")).json()["items"]] == ["content:*"]
    status = await hooks.get("triggers/status")
    assert [row["kind"] for row in status.json()["triggers"]] == ["webhook", "channel", "stream"]
    assert made["secret"] not in status.text + (await hooks.get("audit")).text

    assert (await hooks.delete("triggers/webhooks/%2Fa%2F*")).json()["trigger_id"] == made["trigger_id"]
    assert (await hooks.delete("triggers/channels/content:*")).status_code == 200
    assert (await hooks.delete("triggers/streams/orders")).status_code == 200
    assert (await hooks.delete("triggers/streams/orders")).status_code == 404
    assert (await hooks.get("triggers/status")).json()["triggers"] == []


async def test_triggers_come_in_pages(few: Api) -> None:
    for number in range(5):
        await register(few, f"/a/{number}")
    first = (await few.get("triggers/webhooks", params={"limit": 3})).json()
    second = (await few.get("triggers/webhooks", params={"limit": 3, "cursor": first["next"]})).json()
    patterns = [row["pattern"] for row in [*first["items"], *second["items"]]]
    assert (patterns, second["next"]) == ([f"/a/{number}" for number in range(5)], None)


@pytest.mark.parametrize(
    ("where", "body", "code"),
    [
        ("webhooks", {"pattern": "a"}, 400),
        ("webhooks", {"pattern": "/a", "jobs": ["nothing"]}, 404),
        ("webhooks", {"pattern": "/a", "params": {"x": "y"}}, 400),
        ("webhooks", {"pattern": "/a", "secret": "short"}, 422),
        ("webhooks", {"pattern": "/a", "debounce_seconds": 4000}, 422),
        ("webhooks", {"pattern": "/a", "jobz": []}, 422),
        ("channels", {"pattern": "c", "secret": "s" * 20}, 422),
        ("channels", {}, 422),
    ],
)
async def test_what_cannot_be_registered_is_refused(few: Api, where: str, body: dict[str, Any], code: int) -> None:
    refused = await few.post(f"triggers/{where}", json=body)
    assert refused.status_code == code
    assert refused.json()["hint"]


async def test_a_pattern_that_is_taken_is_told_and_can_be_replaced(few: Api) -> None:
    made = await register(few, "/a", jobs=["news"])
    assert (await few.post("triggers/webhooks", json={"pattern": "/a"})).status_code == 409
    assert (await register(few, "/a", replace=True))["trigger_id"] == made["trigger_id"]


async def test_a_secret_that_cannot_be_opened_is_no_fault_of_the_sender(opened: Opened) -> None:
    async with opened(floodmark_secret_key=KEY) as resources, served(resources) as api:
        await register(api, "/a", secret=SECRET)
    async with opened(floodmark_secret_key=SecretStr("quite another key")) as resources, served(resources) as api:
        answer = await send(api, "/a", b"", signed(b""))
        assert answer.status_code == 503
        assert "FLOODMARK_SECRET_KEY" in answer.json()["hint"]
