"""Secrets that jobs refer to by name: list, set, remove.

Values are accepted by https or locally, and never returned.
"""

from typing import Annotated

from msgspec import Meta, Struct

from floodmark.model.page import Page
from floodmark.model.secrets import LONGEST_SECRET, SecretRow

from .declaration import Body, Each, Path, delete, get, put
from .words import Cursor, Label, Limit

_TAG = "Secrets"

SecretName = Annotated[Label, Path("The name of a secret; upper and lower case are the same.", examples=["SHOP"])]


class SecretSet(Struct, frozen=True, kw_only=True):
    """A secret that was stored."""

    secret: SecretRow
    replaced: Annotated[bool, Meta(description="Whether there was a secret of this name.")]


class SecretOperations:
    """Secrets of jobs: passwords, tokens, cookies and proxies."""

    @get("/secrets", role="admin", tag=_TAG, operation_id="list_secrets")
    async def secrets(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[SecretRow]:
        """List secrets. They are sorted by name; their values are never shown."""

    each_secret = Each(secrets)

    @put(
        "/secrets/{name}",
        role="admin",
        tag=_TAG,
        is_private=True,
        body=("SecretIn", "The value of a secret. It is stored encrypted."),
    )
    async def set_secret(
        self,
        name: SecretName,
        value: Annotated[
            str,
            Body(
                "One line: a token, user:password, or the URL of a proxy.",
                min_length=1,
                max_length=LONGEST_SECRET,
                examples=["user:password"],
            ),
        ],
    ) -> SecretSet:
        """Store a secret. Jobs use it from their next run on. Requires https, or this machine."""

    @delete("/secrets/{name}", tag=_TAG)
    async def remove_secret(self, name: SecretName) -> SecretRow:
        """Remove a secret. Jobs that refer to it fail until it is set again."""
