"""Secrets that jobs refer to by name."""

import re
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput

LONGEST_SECRET = 4000
_NAME = re.compile(r"[A-Za-z0-9_]{1,60}", re.ASCII)


class SecretRow(Struct, frozen=True, kw_only=True):
    """A stored secret without its value, which cannot be read back."""

    name: Annotated[str, Meta(description="The name that jobs refer to.", examples=["SHOP"])]
    created_at: datetime
    changed_at: Annotated[datetime, Meta(description="When its value was set last.")]


def is_secret_label(text: Any) -> bool:
    """Return whether a text can be the name of a secret."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def secret_name(text: str) -> str:
    """Return the name of a secret as it is stored: upper and lower case are the same."""
    if not is_secret_label(text):
        raise InvalidInput(
            f"{text[:80]!r} cannot be the name of a secret", hint="up to 60 letters, digits and _, as in SHOP"
        )
    return text.upper()
