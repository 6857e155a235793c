"""Accounts of sources: list, add, test, remove. Sessions are accepted by https or locally, and never returned."""

from typing import Annotated

from msgspec import Meta, Struct

from floodmark.model.accounts import AccountRow, Added, JoinedChannel, Person
from floodmark.model.page import Page

from .declaration import WHOLE_LIST, Body, Derived, Each, Fields, Path, Query, delete, get, post
from .words import Cursor, Label, Limit, Name, Text

_TAG = "Accounts"
_BIGGEST_ID = 2**63 - 1
_REFUSED = {502: "Telegram has ended the session, refuses it, or asks to wait."}

AccountName = Annotated[Label, Path("The name of an account.", examples=["reader1"])]
Identifier = Annotated[int, Meta(ge=1, le=_BIGGEST_ID)]
Proxy = Annotated[str, Meta(min_length=1, max_length=1000)]


class NewAccount(Struct, frozen=True, kw_only=True):
    """A new account. `session` gives full access to the account; `identity` is its id at Telegram, if known.

    Values that are left out stay when an account is replaced; otherwise the settings have them.
    """

    name: Annotated[Label, Body("Its name: letters, digits, and any of - _ .", examples=["reader1"])]
    session: Annotated[
        str,
        Body(
            "A string session of Telethon or Pyrogram, with full access to the account. Required, except in a dry run"
            " or to change the proxy of an account.",
            type=Annotated[str, Meta(min_length=1, max_length=2000)] | None,
            send=lambda text: text or None,
        ),
    ] = ""
    api_id: Annotated[Identifier | None, Body("The id of the application; TELEGRAM_API_ID, if left out.")] = None
    api_hash: Annotated[Name | None, Body("The hash of the application; TELEGRAM_API_HASH, if left out.")] = None
    phone: Annotated[Name | None, Body("Its phone number; only a part of it is shown.")] = None
    identity: Annotated[Identifier | None, Body("Its id at Telegram, if known.")] = None
    proxy: Annotated[
        Proxy | None,
        Body(
            "The proxy that it uses, as in socks5://USER:PASSWORD@HOST:PORT or mtproxy://SECRET@HOST:PORT; `none` to"
            " use none, even if TELEGRAM_PROXY is set.",
        ),
    ] = None
    tenant_id: Annotated[Text | None, Body("The owner; posts contain it.")] = None
    user_id: Annotated[Text | None, Body("The owner; posts contain it.")] = None
    replace: Annotated[bool, Body("Replace the account of this name; values that are left out stay.")] = False
    is_checked: Annotated[
        bool, Body("Ask Telegram first who it is; refused if the session does not work.", name="check")
    ] = True

    def __repr__(self) -> str:
        return f"NewAccount({self.name!r})"


class StoredAccount(Struct, frozen=True, kw_only=True):
    """A stored account, or in a dry run the existing one."""

    account: Annotated[
        AccountRow | None, Meta(description="Its current state; null in a dry run if there is none of this name.")
    ]
    replaced: Annotated[bool, Meta(description="Whether an account of this name existed.")]
    resumed: Annotated[tuple[str, ...], Meta(description="The jobs that were resumed.")]
    person: Annotated[Person | None, Meta(description="Who it is; null if that was not checked.")]
    dry_run: bool


class AccountShown(Struct, frozen=True):
    """An account, and the jobs that use it."""

    account: AccountRow
    jobs: Annotated[tuple[str, ...], Meta(description="The first 500 jobs that name this account.")]
    job_count: Annotated[int, Meta(description="The number of jobs that name this account.")] = 0


class Tested(Struct, frozen=True, kw_only=True):
    """An account that works."""

    account: AccountRow
    person: Person
    activated: Annotated[bool, Meta(description="Whether it was parked and is in use again.")] = False
    resumed: Annotated[tuple[str, ...], Meta(description="The jobs that were resumed.")] = ()


def _location(stored: StoredAccount) -> dict[str, str]:
    if stored.dry_run or stored.account is None:
        return {}
    return {"Location": f"/api/v2/accounts/{stored.account.name}"}


class AccountOperations:
    """Accounts that sources log in with."""

    @get("/accounts", tag=_TAG, operation_id="list_accounts")
    async def accounts(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[AccountRow]:
        """List accounts. They are sorted by name and contain no secrets."""

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
        body=("AccountIn", "A new account. It is stored encrypted."),
        answers={200: "A dry run: it would be accepted.", **_REFUSED},
    )
    async def store_account(
        self,
        new: Annotated[NewAccount, Fields()],
        *,
        dry_run: Annotated[bool, Body("Only check whether it would be accepted.")] = False,
    ) -> StoredAccount:
        """Add an account. Store its session, and resume jobs that waited for it. Requires https, or this machine.

        To log in, use `floodmark --url ... accounts add NAME --phone ...`, which sends this.
        """

    @Derived
    async def add_account(self, new: NewAccount) -> tuple[Added, Person | None]:
        """Store an account; return it, and who it is if that was checked."""
        stored = await self.store_account(new)
        assert stored.account is not None
        added = Added(account=stored.account, replaced=stored.replaced, resumed=stored.resumed)
        return added, stored.person

    @Derived
    async def expect_account(self, name: str, *, replace: bool = False) -> AccountRow | None:
        """Return the account of this name, if there is one. Refuse now what `add_account` would refuse.

        Otherwise a login would be wasted, and Telegram limits their number.
        """
        return (await self.store_account(NewAccount(name=name, replace=replace), dry_run=True)).account

    @get("/accounts/{name}", tag=_TAG, operation_id="show_account")
    async def account(self, name: AccountName) -> AccountShown:
        """Show an account. The answer says whether it is usable, who holds its session, and which jobs use it."""

    @post(
        "/accounts/{name}/test",
        tag=_TAG,
        operation_id="check_account",
        body=("TestIn", "How to test an account."),
        answers=_REFUSED,
    )
    async def test_account(
        self, name: AccountName, *, activate: Annotated[bool, Body("Use a parked account again if it works.")] = False
    ) -> Tested:
        """Test an account. Connect to Telegram for at most 20 s and ask who the account is.

        409 while a process has its session open.
        """

    @post("/accounts/{name}/channels", tag=_TAG, envelope=WHOLE_LIST, answers=_REFUSED)
    async def joined_channels(self, name: AccountName) -> list[JoinedChannel]:
        """List the channels that an account has joined. Connect to Telegram for at most 20 s, and store their names.

        Jobs for these channels need not look up names. 409 while a process has its session open and uses it.
        """

    @delete("/accounts/{name}", tag=_TAG)
    async def remove_account(
        self,
        name: AccountName,
        *,
        force: Annotated[bool, Query("Remove it even while a process has its session open.")] = False,
    ) -> AccountRow:
        """Remove an account. Delete it and its session, and return what it was.

        Jobs that use this account stay, and wait for another.
        """
