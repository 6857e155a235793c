"""Sessions of accounts: the shared key, and the formats from which a client reads it."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from telethon.crypto import AuthKey
from telethon.sessions import SQLiteSession, StringSession

from floodmark.errors import Conflict

HOST = "127.0.0.1"
# The data centre that we are. Media stubs name it too, so that the client looks for them nowhere else.
DC = 2


@dataclass(slots=True)
class Key:
    """An authorization key: the secret of one session. `account` is None until an account has signed in with it."""

    secret: bytes
    account: str | None = None
    revoked: str | None = None
    key_id: int = field(init=False)
    salt: int = field(init=False)

    def __post_init__(self) -> None:
        self.key_id = int(AuthKey(self.secret).key_id)
        self.salt = number(self.secret, "salt")


def derived(size: int, *parts: object) -> bytes:
    """Return pseudo-random bytes derived from the parts."""
    text = "\0".join(part.hex() if isinstance(part, bytes) else str(part) for part in parts).encode()
    blocks = (sha256(text + index.to_bytes(4, "big")).digest() for index in range(-(-size // 32)))
    return b"".join(blocks)[:size]


def number(*parts: object) -> int:
    """Return a positive pseudo-random number of 62 bits derived from the parts."""
    return int.from_bytes(derived(8, *parts), "big") >> 2 | 1


def secret_for(seed: int, account: str) -> bytes:
    """Return the secret of an account's first session. It is the same for the same seed, so that sessions survive a
    restart.
    """
    # A leading zero would be lost where a client takes the key for a number.
    return b"\x5a" + derived(255, seed, "key", account)


def session_text(secret: bytes, port: int) -> str:
    """Return a `StringSession` for this server."""
    return str(_told(StringSession(), secret, port).save())


def write_session(secret: bytes, port: int, path: Path) -> None:
    """Write a `.session` file for this server; an existing file is not overwritten."""
    file = path if path.suffix == ".session" else path.with_name(f"{path.name}.session")
    if file.exists():
        raise Conflict(f"{file} is there already", hint="give another name, or delete it first")
    session = _told(SQLiteSession(str(file)), secret, port)
    session.save()
    session.close()


def _told(session: Any, secret: bytes, port: int) -> Any:
    # In this order: `set_dc` forgets the key.
    session.set_dc(DC, HOST, port)
    session.auth_key = AuthKey(secret)
    return session
