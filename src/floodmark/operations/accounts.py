"""Accounts at the sources: list, add, test, remove. A session comes in by https or from this machine; none goes out."""

from typing import Annotated

from msgspec import Meta, Struct

from floodmark.model.accounts import AccountRow, Added, Person
from floodmark.model.page import Page

from .declaration import Body, Derived, Each, Fields, Path, Query, delete, get, post
from .words import Cursor, Limit, Name, Text

_TAG = "Accounts"
_BIGGEST_ID = 2**63 - 1
_REFUSED = {502: "Telegram has ended the session, refuses it, or asks for patience."}

AccountName = Annotated[
    str, Path(description="The name of an account.", min_length=1, max_length=64, examples=["reader1"])
]
Identifier = Annotated[int, Meta(ge=1, le=_BIGGEST_ID)]


class NewAccount(Struct, frozen=True, kw_only=True):
    """An account to be stored. `session` is as good as the account itself; `identity`: who it is, if that is known.

    What is left out stays as it was when an account is replaced, or is as the settings have it.
    """

    name: Annotated[
        str,
        Body(
            description="What to call it: letters, digits, and any of - _ .",
            min_length=1,
            max_length=64,
            examples=["reader1"],
        ),
    ]
    session: Annotated[
        str,
        Body(
            type=Annotated[str, Meta(min_length=1, max_length=2000)] | None,
            send=lambda text: text or None,
            description="A string session of Telethon, as good as the account itself. Needed, except in a dry run.",
        ),
    ] = ""
    api_id: Annotated[
        Identifier | None, Body(description="Of the application that logged in; as TELEGRAM_API_ID, if left out.")
    ] = None
    api_hash: Annotated[Name | None, Body(description="Its hash; as TELEGRAM_API_HASH, if left out.")] = None
    phone: Annotated[Name | None, Body(description="Its number, of which only a part is ever shown.")] = None
    identity: Annotated[Identifier | None, Body(description="Its number at Telegram, if it is known.")] = None
    tenant_id: Annotated[Text | None, Body(description="Whose it is: posts carry it.")] = None
    user_id: Annotated[Text | None, Body(description="Whose it is: posts carry it.")] = None
    replace: Annotated[bool, Body(description="Also if there is one of this name; what is left out stays.")] = False
    is_checked: Annotated[
        bool, Body("check", description="Ask Telegram first who it is; refused if the session is of no use.")
    ] = True

    def __repr__(self) -> str:
        return f"NewAccount({self.name!r})"


class StoredAccount(Struct, frozen=True, kw_only=True):
    """An account that was stored, or would be."""

    account: Annotated[
        AccountRow | None, Meta(description="As it is now; null in a dry run, if there is none of this name.")
    ]
    replaced: Annotated[bool, Meta(description="Whether there was one of this name.")]
    resumed: Annotated[tuple[str, ...], Meta(description="The jobs that go on because of it.")]
    person: Annotated[Person | None, Meta(description="Who it is, if that was checked.")]
    dry_run: bool


class AccountShown(Struct, frozen=True):
    """An account, and who asks for it."""

    account: AccountRow
    jobs: Annotated[tuple[str, ...], Meta(description="The jobs that ask for this very account.")]


class Tested(Struct, frozen=True, kw_only=True):
    """An account that works."""

    account: AccountRow
    person: Person
    activated: Annotated[bool, Meta(description="Whether it was parked and is used again.")] = False
    resumed: Annotated[tuple[str, ...], Meta(description="The jobs that go on because of it.")] = ()


def _location(stored: StoredAccount) -> dict[str, str]:
    if stored.dry_run or stored.account is None:
        return {}
    return {"Location": f"/api/v2/accounts/{stored.account.name}"}


class AccountOperations:
    """The accounts that sources log in with."""

    @get("/accounts", tag=_TAG, operation_id="list_accounts")
    async def accounts(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[AccountRow]:
        """List accounts.

        In order of name, without secrets.
        """

    each_account = Each(accounts)

    @post(
        "/accounts",
        role="admin",
        tag=_TAG,
        operation_id="add_account",
        status=201,
        status_of=lambda stored: 200 if stored.dry_run else 201,
        headers=_location,
        is_private=True,
        body=("AccountIn", "An account to be stored. It is encrypted before it is."),
        answers={200: "A dry run: it would be taken.", **_REFUSED},
    )
    async def store_account(
        self,
        new: Annotated[NewAccount, Fields()],
        *,
        dry_run: Annotated[bool, Body(description="Only tell whether it would be taken.")] = False,
    ) -> StoredAccount:
        """Add an account.

        Store the session of an account, and let the jobs go on that waited for it. Only by https, or on this machine.

        Logging in is done where the person is: `floodmark --url ... accounts add NAME --phone ...` does it and sends this.
        """  # noqa: E501 - one line in the document, too

    @Derived
    async def add_account(self, new: NewAccount) -> tuple[Added, Person | None]:
        """Store an account; return it, and who it is, if that was to be checked."""
        stored = await self.store_account(new)
        assert stored.account is not None
        added = Added(account=stored.account, replaced=stored.replaced, resumed=stored.resumed)
        return added, stored.person

    @Derived
    async def expect_account(self, name: str, *, replace: bool = False) -> AccountRow | None:
        """Return the account of this name, if there is one. Refuses now what `add_account` would refuse.

        Otherwise a login would be lost, and Telegram counts them.
        """
        return (await self.store_account(NewAccount(name=name, replace=replace), dry_run=True)).account

    @get("/accounts/{name}", tag=_TAG, operation_id="show_account")
    async def account(self, name: AccountName) -> AccountShown:
        """Show an account.

        Whether it can be used, who has its session open, and which jobs ask for it.
        """

    @post(
        "/accounts/{name}/test",
        tag=_TAG,
        operation_id="check_account",
        body=("TestIn", "How to test an account."),
        answers=_REFUSED,
    )
    async def test_account(
        self,
        name: AccountName,
        *,
        activate: Annotated[bool, Body(description="Use it again, if it is parked and works.")] = False,
    ) -> Tested:
        """Test an account.

        Connect and ask Telegram who it is, for at most 20 s. 409 while a process has its session open.
        """

    @delete("/accounts/{name}", tag=_TAG)
    async def remove_account(
        self,
        name: AccountName,
        *,
        force: Annotated[bool, Query(description="Also while a process has its session open.")] = False,
    ) -> AccountRow:
        """Remove an account.

        Forget an account and its session; the answer is what it was. Jobs that ask for it stay, and wait for another.
        """
