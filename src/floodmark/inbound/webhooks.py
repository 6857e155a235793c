"""Webhooks: verifies them and fires their jobs.

A trigger with a secret accepts requests that are signed with it, from anyone; a trigger without one accepts requests
with a token of the role operate. A signature is HMAC-SHA256 over `TIMESTAMP.METHOD PATH?QUERY`, a newline and the body
as sent, so it is valid for one request only and not for another path with the same secret:

    X-Floodmark-Timestamp   seconds since 1970, a fraction is allowed
    X-Floodmark-Signature   v2=HEX; several, separated by commas, while a secret is being changed
    X-Floodmark-Delivery    optional: the id of this delivery; a repeated id fires nothing
    X-Floodmark-Hops        optional: how often in a row Floodmark's own events have led to it; at most 3
"""

import hmac
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.clock import Clock
from floodmark.model.strict_json import NotJson, TooDeep, read_json
from floodmark.security.webhook_signatures import DELIVERY, HOPS, OLD_SCHEME, SCHEME, SIGNATURE, TIMESTAMP, signature_of
from floodmark.triggers.matching import LONGEST

from .deliveries import Replayed, Taken
from .hops import TooManyHops, read_hops
from .intake import Arrival, BadParams, Intake
from .triggers import Rule

_SECONDS = re.compile(r"\d{1,11}(?:\.\d{1,9})?", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_MOST_SIGNATURES = 5
_HOW_TO_SIGN = (
    "send X-Floodmark-Timestamp: SECONDS and X-Floodmark-Signature: v2=HEX, where HEX is the HMAC-SHA256 of "
    "`SECONDS.POST /api/v2/triggers/webhook/...`, a newline and the body, under the secret of the trigger"
)
_WHY: Mapping[str, tuple[str, str]] = {
    "unsigned": ("the webhook is not signed", _HOW_TO_SIGN),
    "malformed": ("the signature or its timestamp cannot be read", _HOW_TO_SIGN),
    "altered": ("the signature does not match: wrong secret, or the request was changed on the way", _HOW_TO_SIGN),
    "old": ("signatures `sha256=` cover neither method nor path, and are no longer accepted", _HOW_TO_SIGN),
    "late": ("the timestamp is too far from now", "sign right before sending, and check the clock of the sender"),
    "replayed": ("this signature was used before", "sign each delivery with its own timestamp"),
    "no token": (
        "a webhook without a signature needs a token of the role operate",
        "send Authorization: Bearer fm_..., or give the trigger a secret and sign",
    ),
}


class WebhookRefused(FloodmarkError):
    """A webhook that failed verification. `reason` is the word under which it is counted."""

    def __init__(self, reason: str) -> None:
        message, hint = _WHY[reason]
        super().__init__(message, hint=hint)
        self.reason = reason


class Webhook(Struct, frozen=True, kw_only=True):
    """A request. `headers` have names in lower case; `is_trusted`: it has a token of the role operate.

    `address` is the path with the query, as in the request line.
    """

    path: tuple[str, ...]
    body: bytes
    method: str = "POST"
    address: str = "/"
    headers: Mapping[str, str]
    is_trusted: bool = False


class Webhooks:
    """Takes webhooks. A refused one is counted in memory and writes nothing to the database."""

    def __init__(self, intake: Intake, clock: Clock, window: timedelta) -> None:
        self._intake, self._clock, self._window = intake, clock, window
        self.refusals = intake.refusals

    async def take(self, webhook: Webhook) -> Taken:
        """Fire the jobs of its path; `WebhookRefused` if no trigger of that path accepts it."""
        subject = "/" + "/".join(webhook.path)
        if len(subject) > LONGEST or not subject.isprintable():
            raise InvalidInput("the path is too long or not printable", hint="for example /sources/42/crawl")
        arrival = Arrival(kind="webhook", subject=subject, path=webhook.path, delivery_id=webhook.headers.get(DELIVERY))
        matches = await self._intake.matching(arrival)
        accepting, signature = self._verify(webhook, matches.rules)
        if not accepting and not webhook.is_trusted:
            self.refusals.refuse("webhook", (), "no token")
            raise WebhookRefused("no token")
        # Only now: the body of an unverified request is not parsed.
        hops = read_hops(webhook.headers.get(HOPS, "0"))
        arrival = replace(arrival, body=read_body(webhook), signature=signature, hops=hops)
        try:
            return await self._intake.take(arrival, replace(matches, rules=accepting))
        except Replayed:
            self.refusals.refuse("webhook", [rule.trigger_id for rule in accepting], "replayed")
            raise WebhookRefused("replayed") from None
        except (BadParams, TooManyHops) as error:
            self.refusals.refuse("webhook", [rule.trigger_id for rule in accepting], error.reason)
            raise

    def _verify(self, webhook: Webhook, rules: tuple[Rule, ...]) -> tuple[tuple[Rule, ...], str | None]:
        """Return the triggers that accept it, and the signature; count it for the others."""
        accepting: list[Rule] = []
        signature: str | None = None
        refusals: dict[str, list[str]] = {}
        for rule in rules:
            verdict = self._judge(webhook, rule)
            if verdict.refusal is None:
                accepting.append(rule)
                signature = signature or verdict.signature
            else:
                refusals.setdefault(verdict.refusal, []).append(rule.trigger_id)
        for reason, trigger_ids in refusals.items():
            self.refusals.refuse("webhook", trigger_ids, reason)
        if refusals and not accepting:
            raise WebhookRefused(next(iter(refusals)))
        return tuple(accepting), signature

    def _judge(self, webhook: Webhook, rule: Rule) -> "Verdict":
        if rule.sealed is None:
            return Verdict() if webhook.is_trusted else Verdict(refusal="no token")
        secret = self._intake.triggers.secret(rule)
        return judge(webhook, secret, now=self._clock.now(), window=self._window)


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of a verification: the valid signature, or the reason of the refusal."""

    signature: str | None = None
    refusal: str | None = None


def judge(webhook: Webhook, secret: str, *, now: datetime, window: timedelta) -> Verdict:
    """Verify a webhook with a secret, in a time that does not depend on how much of a signature is right."""
    timestamp, given = webhook.headers.get(TIMESTAMP), webhook.headers.get(SIGNATURE)
    if timestamp is None or given is None:
        return Verdict(refusal="unsigned")
    signatures = _signatures(given)
    if not signatures and OLD_SCHEME in given:
        return Verdict(refusal="old")
    if not _SECONDS.fullmatch(timestamp) or not signatures:
        return Verdict(refusal="malformed")
    right = signature_of(secret, timestamp, webhook.body, address=webhook.address, method=webhook.method)
    if not any(hmac.compare_digest(right, each) for each in signatures):
        return Verdict(refusal="altered")
    if abs(now.timestamp() - float(timestamp)) > window.total_seconds():
        return Verdict(refusal="late")
    return Verdict(signature=right)


def _signatures(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")[:_MOST_SIGNATURES]]
    found = [word.removeprefix(SCHEME) for word in words if word.startswith(SCHEME)]
    return [word.lower() for word in found if _HEX.fullmatch(word)]


def read_body(webhook: Webhook) -> Any:
    """Return the body as JSON or else as text, None if it is empty; refuse invalid JSON that is declared as JSON."""
    if not webhook.body.strip():
        return None
    try:
        return read_json(webhook.body)
    except TooDeep as error:
        raise InvalidInput(f"the body is {error}", hint="send a flatter object") from None
    except NotJson as error:
        if "json" in webhook.headers.get("content-type", ""):
            raise InvalidInput(f"the body is not JSON: {error}", hint="send JSON, or another Content-Type") from None
    return webhook.body.decode("utf-8", "replace")


def path_in(body: Any) -> tuple[str, ...]:
    """Return the path that a webhook names in its body: by `path`, or by its source."""
    if isinstance(body, dict):
        path, source = body.get("path"), body.get("source_id", body.get("source"))
        if isinstance(path, str) and path.strip("/"):
            return tuple(part for part in path.split("/") if part)
        if path is None and isinstance(source, str | int) and not isinstance(source, bool) and str(source):
            return ("sources", str(source), "crawl")
    raise InvalidInput(
        "the body names neither a path nor a source",
        hint='send {"path": "/sources/42/crawl"}, or {"source_id": "42"} which means the same',
    )


def path_of(raw: str) -> tuple[str, ...]:
    """Return the segments of the path of a URL; a slash written as %2F belongs to its segment."""
    return tuple(unquote(part) for part in raw.split("/") if part)
