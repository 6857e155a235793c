"""Secrets are masked for everyone but an admin, in every answer, and a mask is never stored."""

import pytest

from api.serving import Api
from api.test_access import a_token, bearer
from floodmark.errors import InvalidInput
from floodmark.security.masking import MASK, mask_text, mask_values, restore_masked

BOT = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
SECRETS = ("hunter2", "s3cr3t-dsn", "s3cr3t-url", "s3cr3t-header", "s3cr3t-cookie", BOT.partition(":")[2])
PARAMS = {
    "password": "hunter2",
    "dsn": "postgresql://app:s3cr3t-dsn@db/app",
    "proxy": "http://me:s3cr3t-url@proxy:3128",
    "headers": ["X-Api-Key: s3cr3t-header", "Cookie: sid=s3cr3t-cookie; a=b"],
    "bot": f"https://api.telegram.org/bot{BOT}/getUpdates",
    "count": 3,
}


@pytest.mark.parametrize(
    "text",
    [
        "password: hunter2",
        "Password = 'hunter2'",
        '{"password": "hunter2", "n": 1}',
        "X-Api-Key: s3cr3t-header",
        "{'X-API-KEY': 's3cr3t-header'}",
        "Cookie: sid=s3cr3t-cookie; theme=dark",
        "Set-Cookie: sid=s3cr3t-cookie",
        "Authorization: Bearer s3cr3t-header",
        "Proxy-Authorization: Basic s3cr3t-header",
        "curl -H 'authorization: Token s3cr3t-header' http://host",
        f"GET https://api.telegram.org/bot{BOT}/getMe failed",
        f"bot token {BOT}",
        "postgresql://app:s3cr3t-dsn@db/app",
        "could not connect to redis://:s3cr3t-dsn@host:6379/0",
        "host=db user=app password=s3cr3t-dsn dbname=app",
        "https://user:s3cr3t-url@site.example/feed",
        "https://site.example/?api_key=s3cr3t-url&page=2",
    ],
)
def test_a_secret_is_masked_in_any_text(text: str) -> None:
    masked = mask_text(f"it said {text}, twice: {text}")
    assert not any(secret in masked for secret in SECRETS), masked
    assert MASK in masked
    assert mask_text(masked) == masked
    assert restore_masked(mask_text(text), text) == text


@pytest.mark.parametrize(
    "text", ["3 sessions, 2 keys", "https://site.example/a:b?c=d", "news: done", "12:30:45 tick", "author: ada"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_text(text) == text


def test_a_masked_value_stands_for_the_one_that_is_there_and_nothing_else() -> None:
    masked = mask_values(PARAMS)
    assert restore_masked({**masked, "count": 4}, PARAMS) == {**PARAMS, "count": 4}
    assert restore_masked({"include": "/a/***"}, {}) == {"include": "/a/***"}
    for stray in ({"password": MASK}, {"proxy": masked["proxy"]}, {"headers": [masked["headers"][0]]}):
        with pytest.raises(InvalidInput, match="mask"):
            restore_masked(stray, {})


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_secrets_are_masked_for_those_who_may_only_read(light: Api) -> None:
    made = await light.job("news", params=PARAMS, url=PARAMS["proxy"])
    run = await light.post("jobs/news/force-run", json={"params": {"password": "hunter2", "count": 1}})
    execution = run.json()["execution_id"]
    await light.post("jobs/news/pause", json={"reason": "password: hunter2"})
    bad = await light.patch("jobs/news", json={"params": {**PARAMS, "password": ["hunter2"]}, "priority": "hunter2"})
    assert (bad.status_code, "hunter2" in str(bad.json()["errors"][0].get("given"))) == (422, True)
    tokens = {
        role: bearer(await a_token(light.resources, name=role, role=role)) for role in ("read", "operate", "admin")
    }
    paths = (
        "jobs", "jobs/news", "jobs/news/explain", "executions", f"executions/{execution}", "audit", "overview",
        "dead-letters", "stats", "workers", "events", "watermarks", "triggers", "health",
    )  # fmt: skip
    for role in ("read", "operate"):
        for path in paths:
            found = await light.get(path, headers=tokens[role])
            assert not any(secret in found.text for secret in SECRETS), (path, found.text)
    seen = (await light.get("jobs/news", headers=tokens["read"])).json()
    assert seen["params"] == mask_values(PARAMS)
    assert seen["params"]["count"] == 3
    whole = (await light.get("jobs/news", headers=tokens["admin"])).json()
    assert whole["params"] == PARAMS

    # Sent back as it was read, nothing is lost; a mask of something else is refused.
    patched = await light.patch("jobs/news", json={"params": {**seen["params"], "count": 4}}, headers=tokens["admin"])
    assert patched.json()["params"] == {**PARAMS, "count": 4}
    body = {name: seen[name] for name in ("source", "target", "interval_seconds", "params", "url")}
    replaced = await light.put("jobs/news", json=body, headers=tokens["admin"])
    assert (replaced.json()["params"], replaced.json()["url"]) == (PARAMS, made["url"])
    stray = await light.post("jobs", json={**body, "name": "copy"}, headers=tokens["admin"])
    assert (stray.status_code, "mask" in stray.json()["detail"]) == (400, True)
    forced = await light.post("jobs/news/force-run", json={"params": {"password": MASK}}, headers=tokens["operate"])
    assert forced.status_code == 400
