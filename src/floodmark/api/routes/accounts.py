"""Accounts at the sources: list, add, test, remove. A session comes in by https or from this machine; none goes out."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Body, Query, Request
from fastapi import Path as InPath
from msgspec.structs import asdict
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from floodmark.api.access import is_private
from floodmark.api.deps import Administering, Operating, Reading
from floodmark.api.models import Given, Name, Text, model_of, whole
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.errors import InvalidInput
from floodmark.operations.accounts import LocalAccounts
from floodmark.operations.local import LocalOffice
from floodmark.operations.port import NewAccount
from floodmark.sources.telegram.accounts import AccountRow, Person

accounts = router("/accounts", tag="Accounts")

# Less than a request may take, so that it ends with what Telegram said.
_DEADLINE = timedelta(seconds=20)
_BIGGEST_ID = 2**63 - 1
_REFUSED: dict[int | str, dict[str, Any]] = {
    502: {"description": "Telegram has ended the session, refuses it, or asks for patience."}
}

AccountName = Annotated[
    str, InPath(description="The name of an account.", min_length=1, max_length=64, examples=["reader1"])
]
WholeNumber = Annotated[int, BeforeValidator(whole), Field(ge=1, le=_BIGGEST_ID)]

AccountOut: Any = model_of(
    "AccountOut",
    AccountRow,
    "An account at a source, without anything secret.",
    {
        "phone": "As much of the number as may be shown.",
        "reason": "Why it is parked.",
        "holder": "The process that has its session open.",
    },
)
PersonOut: Any = model_of("PersonOut", Person, "Who an account is at Telegram.")


class AccountShownOut(BaseModel):
    """An account, and who asks for it."""

    account: AccountOut
    jobs: list[str] = Field(description="The jobs that ask for this very account.")


class AddedAccountOut(BaseModel):
    """An account that was stored, or would be."""

    account: AccountOut | None = Field(description="As it is now; null in a dry run, if there is none of this name.")
    replaced: bool = Field(description="Whether there was one of this name.")
    resumed: list[str] = Field(description="The jobs that go on because of it.")
    person: PersonOut | None = Field(description="Who it is, if that was checked.")
    dry_run: bool


class TestedOut(BaseModel):
    """An account that works."""

    account: AccountOut
    person: PersonOut
    activated: bool = Field(description="Whether it was parked and is used again.")
    resumed: list[str] = Field(description="The jobs that go on because of it.")


class AccountIn(Given):
    """An account to be stored. It is encrypted before it is."""

    name: str = Field(
        description="What to call it: letters, digits, and any of - _ .",
        min_length=1,
        max_length=64,
        examples=["reader1"],
    )
    session: Annotated[str, Field(min_length=1, max_length=2000)] | None = Field(
        default=None,
        description="A string session of Telethon, as good as the account itself. Needed, except in a dry run.",
    )
    api_id: WholeNumber | None = Field(
        default=None, description="Of the application that logged in; as TELEGRAM_API_ID, if left out."
    )
    api_hash: Name | None = Field(default=None, description="Its hash; as TELEGRAM_API_HASH, if left out.")
    phone: Name | None = Field(default=None, description="Its number, of which only a part is ever shown.")
    identity: WholeNumber | None = Field(default=None, description="Its number at Telegram, if it is known.")
    tenant_id: Text | None = Field(default=None, description="Whose it is: posts carry it.")
    user_id: Text | None = Field(default=None, description="Whose it is: posts carry it.")
    replace: bool = Field(default=False, description="Also if there is one of this name; what is left out stays.")
    check: bool = Field(default=True, description="Ask Telegram first who it is; refused if the session is of no use.")
    dry_run: bool = Field(default=False, description="Only tell whether it would be taken.")


class TestIn(Given):
    """How to test an account."""

    activate: bool = Field(default=False, description="Use it again, if it is parked and works.")


@accounts.get("", response_model=Page[AccountOut], summary="List accounts")
async def list_accounts(office: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """In order of name, without secrets."""
    key = key_of("accounts", cursor, str)
    found = await office.accounts(after=None if key is None else key[0], limit=limit + 1)
    return answer(page(found, limit, "accounts", lambda row: [row.name], asdict))


@accounts.post(
    "",
    status_code=201,
    response_model=AddedAccountOut,
    responses={200: {"model": AddedAccountOut, "description": "A dry run: it would be taken."}, **_REFUSED},
    summary="Add an account",
)
async def add_account(request: Request, office: Administering, body: AccountIn) -> Response:
    """Store the session of an account, and let the jobs go on that waited for it. Only by https, or on this machine.

    Logging in is done where the person is: `floodmark --url ... accounts add NAME --phone ...` does it and sends this.
    """
    if not is_private(request):
        raise InvalidInput(
            "a session is not taken over plain http: whoever listens on the way would have the account",
            hint="use https (the proxy in front of the server has to send X-Forwarded-Proto), or add it on the server",
        )
    given = body.model_dump(exclude={"check", "dry_run"})
    if body.dry_run:
        known = await _verbs(office).expect(body.name, replace=body.replace)
        told = {"account": known.row, "replaced": known.row is not None, "resumed": (), "person": None}
        return answer({**told, "dry_run": True})
    if body.session is None:
        raise InvalidInput("session is missing", hint="send a string session of Telethon, or dry_run")
    added, person = await _verbs(office).add(NewAccount(**given, is_checked=body.check))
    headers = {"Location": f"/api/v2/accounts/{body.name}"}
    return answer({**asdict(added), "person": person, "dry_run": False}, 201, headers)


@accounts.get("/{name}", response_model=AccountShownOut, summary="Show an account")
async def show_account(office: Reading, name: AccountName) -> Response:
    """Whether it can be used, who has its session open, and which jobs ask for it."""
    verbs = _verbs(office)
    return answer({"account": await verbs.show(name), "jobs": await verbs.jobs_of(name)})


@accounts.post("/{name}/test", response_model=TestedOut, responses=_REFUSED, summary="Test an account")
async def check_account(
    office: Operating, name: AccountName, body: Annotated[TestIn | None, Body()] = None
) -> Response:
    """Connect and ask Telegram who it is, for at most 20 s. 409 while a process has its session open."""
    return answer(await _verbs(office).test(name, activate=body is not None and body.activate))


@accounts.delete("/{name}", response_model=AccountOut, summary="Remove an account")
async def remove_account(
    office: Administering,
    name: AccountName,
    force: Annotated[bool, Query(description="Also while a process has its session open.")] = False,
) -> Response:
    """Forget an account and its session; the answer is what it was. Jobs that ask for it stay, and wait for another."""
    return answer(await _verbs(office).remove(name, force=force))


def _verbs(office: LocalOffice) -> LocalAccounts:
    return LocalAccounts(office, deadline=_DEADLINE)
