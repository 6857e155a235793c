"""External triggers: webhooks, and channels and streams of Redis. The secret of a new webhook is shown once."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args
from urllib.parse import quote

from starlette.responses import Response

from floodmark.api.addresses import base_url
from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import forget_shared, html, page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.external_triggers import Kind, NewTrigger, TriggerStatus
from floodmark.operations.triggers import AddedTrigger

KINDS: tuple[Kind, ...] = get_args(Kind)
_TYPED = ("kind", "pattern", "jobs", "params", "debounce", "signed")
_ADDED = {"webhook": "add_webhook", "channel": "add_channel", "stream": "add_stream_trigger"}
# Of each reason for which a delivery is refused: what it means.
REASONS = {
    "unsigned": "the signature or its timestamp is missing",
    "malformed": "a header cannot be read",
    "altered": "the signature does not match: another secret, or a changed request",
    "old": "the signature has the earlier form sha256=",
    "late": "the timestamp is too far from now",
    "replayed": "the signature was used before",
    "no token": "the trigger has no secret, and the sender no token with the role operate",
    "bad params": "the source of a job refuses the params",
    "too many hops": "Floodmark's own events have led to it again and again: a loop",
}


@page("/triggers", "triggers.html", live=("change", "execution"))
async def list_triggers(view: View) -> Mapping[str, Any]:
    """List the triggers of one kind, and what was refused."""
    kind = _kind(view.query("kind"))
    found = await view.operations.triggers(kind, cursor=view.query("cursor"), limit=50)
    status = await view.operations.triggers_status()
    tries = {row.trigger_id: try_line(view, row) for row in found.items if row.kind == "webhook"}
    of_jobs = [row for row in status.of_jobs if row.kind == kind]
    return {"kind": kind, "triggers": found, "status": status, "of_jobs": of_jobs, "tries": tries, "reasons": REASONS}


@page("/add-trigger", "trigger_add.html", role="admin", shared=False, methods=("GET", "POST"))
async def add_trigger(view: View) -> Mapping[str, Any] | Response:
    """Add a trigger."""
    typed = {name: view.query(name) or "" for name in _TYPED}
    if view.request.method != "POST":
        kind = _kind(typed["kind"])
        return {"typed": {**typed, "kind": kind, "signed": "true"}, "added": None, "refused": None, "line": ""}
    fields = await read_form(view.request)
    typed = {name: first(fields, name) for name in _TYPED}
    values = {"typed": {**typed, "kind": _kind(typed["kind"])}, "added": None, "line": ""}
    try:
        added = await _add(view, typed)
    except FloodmarkError as error:
        return show_again(view, "trigger_add.html", values, Refused.of(error))
    if added.secret is None:
        return go_to(view, view.url("/triggers", kind=added.kind), f"The {added.kind} {added.pattern} was added.")
    forget_shared(view.request)
    # Not by a redirect: the secret must not be in a cookie or an address.
    shown = {**values, "added": added, "line": try_line(view, added), "refused": None}
    return html(view, "trigger_add.html", shown)


async def _add(view: View, typed: Mapping[str, str]) -> AddedTrigger:
    kind = _kind(typed["kind"])
    new = NewTrigger(
        kind=kind,
        pattern=typed["pattern"].strip(),
        jobs=tuple(word for word in typed["jobs"].replace(",", " ").split() if word),
        params=dict(_place(line) for line in typed["params"].splitlines() if line.strip()),
        debounce=parse_every(typed["debounce"].strip()) if typed["debounce"].strip() else timedelta(),
    )
    if not new.pattern:
        raise InvalidInput(f"the {kind} is missing", hint="say what to listen to")
    options: dict[str, Any] = {name: getattr(new, name) for name in ("jobs", "params", "debounce")}
    if kind == "webhook":
        options["signed"] = bool(typed["signed"])
    added: AddedTrigger = await getattr(view.operations, _ADDED[kind])(new.pattern, **options)
    return added


def _place(line: str) -> tuple[str, str]:
    name, equals, place = (part.strip() for part in line.partition("="))
    if not equals or not name or not place:
        raise InvalidInput(f"{line[:60]!r} is not NAME=PLACE", hint="write one per line, for example title=body.title")
    return name, place


def _kind(text: str | None) -> Kind:
    return next((kind for kind in KINDS if kind == text), "webhook")


def try_line(view: View, row: TriggerStatus) -> str:
    """Return the shell commands that deliver a webhook to a trigger, as an example."""
    path = "/".join("42" if part.startswith(("*", "{")) else part for part in row.pattern.split("/"))
    # Encoded, it has no character that a shell treats specially.
    address = f"/api/v2/triggers/webhook{quote(path)}"
    return delivery_line(base_url(view.request), address, is_signed=row.signed, has_token=view.needs_token)


def delivery_line(base: str, path: str, *, is_signed: bool, has_token: bool) -> str:
    """Return the commands for an address: with a signature, or with a token if one is needed."""
    if not is_signed:
        token = ' -H "Authorization: Bearer $FLOODMARK_TOKEN"' if has_token else ""
        return f"curl -X POST '{base}{path}'{token} -d '{{}}'"
    return "\n".join(
        (
            "SECRET=...  # of this trigger",
            "body='{}'; now=$(date +%s)",
            f"signature=$(printf '%s.POST %s\\n%s' \"$now\" '{path}' \"$body\" |",
            "  openssl dgst -sha256 -hmac \"$SECRET\" -hex | sed 's/^.* //')",
            f"curl -X POST '{base}{path}' -d \"$body\" \\",
            '  -H "X-Floodmark-Timestamp: $now" -H "X-Floodmark-Signature: v2=$signature"',
        )
    )


PAGES = (list_triggers, add_trigger)
