"""Accounts of sources: list, show, add by session, log in by phone. Their sessions are never shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from floodmark.api.addresses import is_private
from floodmark.dashboard.actions import first, read_form, require_private, show_result
from floodmark.dashboard.csrf import sent_cookie, set_cookie
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.model.accounts import AccountRow, Person
from floodmark.model.limits import LimitRow
from floodmark.operations.accounts import NewAccount, StoredAccount, Tested
from floodmark.operations.logins import LoginStep, NewLogin
from floodmark.sources.telegram.stored_logins import LASTS

# The id of the login that this browser has begun; other browsers cannot continue it.
_LOGIN = "floodmark_login"
_MOST_JOBS = 100
_TYPED = ("name", "phone", "api_id", "tenant_id", "user_id", "replace", "by")


@page("/accounts", "accounts.html", live=("change", "limit", "worker", "execution"))
async def list_accounts(view: View) -> Mapping[str, Any]:
    """List accounts, each with the limits that hold for it."""
    found = await view.operations.accounts(cursor=view.query("cursor"), limit=50)
    limits = await view.operations.limits(limit=500)
    return {"accounts": found, "limits": {row.name: limits_of(row, limits) for row in found.items}}


@page("/add-account", "account_add.html", role="admin", shared=False, methods=("GET", "POST"))
async def add_account(view: View) -> Mapping[str, Any] | Response:
    """Add an account, by phone number or with a session."""
    typed = {name: view.query(name) or "" for name in _TYPED}
    values = {"typed": typed, "is_open": is_private(view.request), "refused": None}
    values["has_application"] = view.resources.settings.telegram_api_id is not None
    if view.request.method != "POST":
        return values
    fields = await read_form(view.request)
    values["typed"] = typed = {name: first(fields, name) for name in _TYPED}
    try:
        require_private(view.request)
        if typed["by"] == "session":
            return await _store(view, fields)
        return await _begin(view, fields)
    except FloodmarkError as error:
        return show_again(view, "account_add.html", values, Refused.of(error))


@page("/account-login", "account_login.html", role="admin", shared=False, methods=("GET", "POST"))
async def log_in(view: View) -> Mapping[str, Any] | Response:
    """Ask for the code or the password of the login that this browser has begun."""
    login_id = sent_cookie(view.request, _LOGIN)
    fields = await read_form(view.request) if view.request.method == "POST" else {}
    try:
        step = await view.operations.login(login_id or "-")
    except NotFound as error:
        return show_again(view, "account_login.html", {"step": None}, Refused.of(error))
    if not fields:
        return {"step": step, "refused": None}
    if first(fields, "cancel"):
        await view.operations.cancel_login(login_id)
        return _forget_login(view, go_to(view, view.url("/accounts"), f"The login to {step.account} was cancelled."))
    return await _continue(view, step, fields)


@page("/accounts/{name}", "account.html", live=("change", "limit", "worker", "execution"))
async def show_account(view: View) -> Mapping[str, Any]:
    """Show an account, its limits and the jobs that name it."""
    shown = await view.operations.account(view.param("name"))
    limits = limits_of(shown.account, await view.operations.limits(limit=500))
    return {"account": shown.account, "jobs": shown.jobs[:_MOST_JOBS], "count": shown.job_count, "limits": limits}


def limits_of(account: AccountRow, limits: Sequence[LimitRow]) -> list[LimitRow]:
    """Return the limits of an account: of all its calls, or of one method."""
    scope = f"{account.kind}:{account.name}"
    return [row for row in limits if row.key == scope or row.key.startswith(f"{scope}:")]


def person_name(person: Person | None) -> str:
    """Return the name of a person at Telegram."""
    if person is None:
        return "unchecked"
    handle = f"@{person.username}" if person.username else f"id {person.id}"
    return f"{person.name} ({handle})" if person.name else handle


@show_result.register
def _(tested: Tested) -> str:
    return person_name(tested.person)


def describe_stored(stored: StoredAccount) -> str:
    """Return one sentence on an account that was stored."""
    name = stored.account.name if stored.account is not None else ""
    resumed = f" Resumed: {', '.join(stored.resumed[:10])}." if stored.resumed else ""
    return f"{'Replaced' if stored.replaced else 'Added'} {name}: {person_name(stored.person)}.{resumed}"


async def _store(view: View, fields: Mapping[str, list[str]]) -> Response:
    """Store an account with a session, which Telegram is asked about first."""
    if not first(fields, "session").strip():
        raise InvalidInput("the session is missing", hint="paste a string session of Telethon or Pyrogram")
    new = NewAccount(**_read_given(fields), session=first(fields, "session"), is_checked=True)
    stored = await view.operations.store_account(new)
    return go_to(view, view.url(f"/accounts/{new.name}"), describe_stored(stored))


async def _begin(view: View, fields: Mapping[str, list[str]]) -> Response:
    """Let Telegram send a code."""
    step = await view.operations.begin_login(NewLogin(**_read_given(fields)))
    response = RedirectResponse(view.url("/account-login"), 303)
    set_cookie(view.request, response, _LOGIN, step.login_id, seconds=int(LASTS.total_seconds()))
    return response


async def _continue(view: View, step: LoginStep, fields: Mapping[str, list[str]]) -> Response:
    secret = first(fields, step.step)
    try:
        require_private(view.request)
        done = await view.operations.continue_login(step.login_id, **{step.step: secret or None})
    except FloodmarkError as error:
        try:
            step = await view.operations.login(step.login_id)
        except NotFound as ended:
            return show_again(view, "account_login.html", {"step": None}, Refused(str(error), ended.hint))
        return show_again(view, "account_login.html", {"step": step}, Refused.of(error))
    if done.stored is None:
        return RedirectResponse(view.url("/account-login"), 303)
    return _forget_login(view, go_to(view, view.url(f"/accounts/{step.account}"), describe_stored(done.stored)))


def _forget_login(view: View, response: Response) -> Response:
    set_cookie(view.request, response, _LOGIN, "", seconds=0)
    return response


def _read_given(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the fields that both ways to add an account have in common."""
    texts = {
        name: first(fields, name).strip() or None for name in ("phone", "api_hash", "proxy", "tenant_id", "user_id")
    }
    name, api_id = first(fields, "name").strip(), first(fields, "api_id").strip()
    if not name:
        raise InvalidInput("the name is missing", hint="choose one, for example reader1")
    if api_id and not (api_id.isascii() and api_id.isdecimal() and len(api_id) < 19):
        raise InvalidInput("the api id is not a number", hint="copy it from https://my.telegram.org")
    return {**texts, "name": name, "api_id": int(api_id) if api_id else None, "replace": bool(first(fields, "replace"))}


PAGES = (list_accounts, add_account, log_in, show_account)
