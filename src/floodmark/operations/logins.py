"""Log in to accounts of sources, step by step: phone number, code, password."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .accounts import Identifier, Proxy, StoredAccount
from .declaration import Body, Fields, Path, delete, get, post
from .words import Label, Name, Text

_TAG = "Accounts"
_REFUSED = {502: "Telegram refuses the login, or asks to wait."}
Secret = Annotated[str, Meta(min_length=1, max_length=500)]

LoginId = Annotated[Name, Path("The id of a login: a secret of the caller who began it.")]


class NewLogin(Struct, frozen=True, kw_only=True):
    """An account to log in to. Values that are left out come from the stored account or from the settings."""

    name: Annotated[Label, Body("The name of the account: letters, digits, and any of - _ .", examples=["reader1"])]
    phone: Annotated[
        Name | None,
        Body("Its phone number, with the country code. Left out: that of the account.", examples=["+4915112345678"]),
    ] = None
    api_id: Annotated[Identifier | None, Body("The id of the application; TELEGRAM_API_ID, if left out.")] = None
    api_hash: Annotated[Name | None, Body("The hash of the application; TELEGRAM_API_HASH, if left out.")] = None
    proxy: Annotated[Proxy | None, Body("The proxy that it uses, as in `AccountIn`; TELEGRAM_PROXY, if left out.")] = (
        None
    )
    tenant_id: Annotated[Text | None, Body("The owner; posts contain it.")] = None
    user_id: Annotated[Text | None, Body("The owner; posts contain it.")] = None
    replace: Annotated[bool, Body("Log in again to the account of this name.")] = False

    def __repr__(self) -> str:
        return f"NewLogin({self.name!r})"


class LoginStep(Struct, frozen=True, kw_only=True):
    """A login, and what it waits for."""

    login_id: Annotated[str, Meta(description="Needed for the next step. It is valid for its caller only.")]
    account: Annotated[str, Meta(description="The name of the account.")]
    step: Annotated[Literal["code", "password", "done"], Meta(description="What is needed next; `done`: nothing.")]
    how: Annotated[str, Meta(description="How Telegram sends the code.", examples=["in the Telegram app"])]
    tries_left: Annotated[int, Meta(description="The number of tries until the login ends.")]
    expires_at: Annotated[datetime | None, Meta(description="When it ends; null if it is done.")]
    stored: Annotated[StoredAccount | None, Meta(description="The stored account, when it is done.")] = None


class LoginOperations:
    """Log in by phone. The sessions stay on the server."""

    @post(
        "/logins",
        role="admin",
        tag=_TAG,
        status=201,
        is_private=True,
        body=("LoginIn", "An account to log in to."),
        answers=_REFUSED,
    )
    async def begin_login(self, new: Annotated[NewLogin, Fields()]) -> LoginStep:
        """Begin a login. Telegram sends a code to the phone number. Requires https, or this machine.

        The login ends after ten minutes. A new login to the same account replaces it.
        """

    @get("/logins/{login_id}", role="admin", tag=_TAG, operation_id="show_login")
    async def login(self, login_id: LoginId) -> LoginStep:
        """Show a login. The answer says whether it waits for the code or the password. 404 when it has ended."""

    @post(
        "/logins/{login_id}",
        role="admin",
        tag=_TAG,
        is_private=True,
        body=("LoginSecretIn", "The code, or the password of the two-step verification."),
        answers=_REFUSED,
    )
    async def continue_login(
        self,
        login_id: LoginId,
        *,
        code: Annotated[Secret | None, Body("The code that Telegram has sent.")] = None,
        password: Annotated[Secret | None, Body("The password, if the step is `password`.")] = None,
    ) -> LoginStep:
        """Continue a login with the code or the password. When it is complete, the account is stored.

        400 if it is wrong; after five wrong ones the login ends.
        """

    @delete("/logins/{login_id}", tag=_TAG)
    async def cancel_login(self, login_id: LoginId) -> LoginStep:
        """Cancel a login. Return what it was."""
