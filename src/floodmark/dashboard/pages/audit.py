"""The audit log: who changed what, and when, with the values before and after."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.model.audit import AuditRow

# The pages of objects, by their kind. `{}` is the name.
_PAGES = {
    "job": "/jobs/{}",
    "account": "/accounts/{}",
    "execution": "/executions/{}",
    "token": "/tokens",
    "session": "/tokens",
    "sessions": "/tokens",
    "trigger": "/triggers",
    "shadow": "/migration",
    "sync": "/migration",
}


_TIME = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$", re.ASCII)
# Names can be of any length; the address of a page cannot.
LONGEST_LINKED = 500


class Change(Struct, frozen=True):
    """One field of a change. `before` and `after` are None where the field was not there."""

    field: str
    before: str | None
    after: str | None


class ShownChange(Struct, frozen=True):
    """One entry of the log, with its differences and the page of its object."""

    row: AuditRow
    changes: tuple[Change, ...]
    path: str | None


@page("/audit", "audit.html", live=("change",))
async def show_audit(view: View) -> Mapping[str, Any]:
    """List changes, newest first; of one object, if the query names it."""
    what = view.query("what")
    found = await view.operations.audit(what=what, cursor=view.query("cursor"), limit=50)
    entries = [entry_of(row) for row in found.items]
    return {"page": found, "entries": entries, "what": what or "", "longest": LONGEST_LINKED}


def entry_of(row: AuditRow) -> ShownChange:
    """Return an entry with what is needed to show it."""
    return ShownChange(row, tuple(differences(row.before, row.after)), object_path(row.object))


def differences(before: Any, after: Any) -> list[Change]:
    """Return the fields that differ, in the order of their names; nested values by their path."""
    old, new = _flat(before), _flat(after)
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if before is None or after is None:
        # An empty field of an object that is new or gone says nothing.
        names = [name for name in names if (old.get(name) or new.get(name)) not in ("{}", "[]", "")]
    return [Change(name, old.get(name), new.get(name)) for name in names]


def object_path(name: str) -> str | None:
    """Return the page of an object such as `job:news`; None if it has none."""
    kind, _, rest = name.partition(":")
    path = _PAGES.get(kind)
    return None if path is None or len(name) > LONGEST_LINKED else path.format(quote(rest, safe=""))


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return the values of an object by their paths: {"params.limit": "5"}."""
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for name, inner in value.items():
            found |= _flat(inner, f"{prefix}.{name}" if prefix else str(name))
        return found or ({prefix: "{}"} if prefix else {})
    if value is None:
        return {}
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return {prefix or "value": _TIME.sub(r"\1 \2 UTC", text)}


PAGES = (show_audit,)
