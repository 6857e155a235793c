"""Sessions of accounts: the shared key, and the formats from which a client reads it."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from telethon.crypto import AuthKey
from telethon.sessions import SQLiteSession, StringSession

from floodmark.errors import Conflict

HOST = "127.0.0.1"
# The data centre of this server. Media stubs name it too, so that the client connects to no other.
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


def derive_bytes(size: int, *parts: object) -> bytes:
    """Return pseudo-random bytes derived from the parts."""
    text = "\0".join(part.hex() if isinstance(part, bytes) else str(part) for part in parts).encode()
    blocks = (sha256(text + index.to_bytes(4, "big")).digest() for index in range(-(-size // 32)))
    return b"".join(blocks)[:size]


def number(*parts: object) -> int:
    """Return a positive pseudo-random number of 62 bits derived from the parts."""
    return int.from_bytes(derive_bytes(8, *parts), "big") >> 2 | 1


def secret_for(seed: int, account: str) -> bytes:
    """Return the secret of an account's first session; the same seed gives the same one, also after a restart."""
    # A leading zero would be lost in a client that converts the key to a number.
    return b"\x5a" + derive_bytes(255, seed, "key", account)


def session_text(secret: bytes, port: int) -> str:
    """Return a `StringSession` for this server."""
    return str(_fill(StringSession(), secret, port).save())


def write_session(secret: bytes, port: int, path: Path) -> None:
    """Write a `.session` file for this server; an existing file is not overwritten."""
    file = path if path.suffix == ".session" else path.with_name(f"{path.name}.session")
    if file.exists():
        raise Conflict(f"{file} exists already", hint="give another name, or delete it first")
    session = _fill(SQLiteSession(str(file)), secret, port)
    session.save()
    session.close()


def _fill(session: Any, secret: bytes, port: int) -> Any:
    # In this order: `set_dc` clears the key.
    session.set_dc(DC, HOST, port)
    session.auth_key = AuthKey(secret)
    return session
