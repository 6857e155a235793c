"""Sessions of other programs: strings and files of Telethon and Pyrogram become string sessions. Imports Telethon.

A Pyrogram session names only the data centre, so its address is looked up in a table. `server` is the test server that
is used instead, if there is one.
"""

import base64
import binascii
import ipaddress
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

from telethon.crypto import AuthKey
from telethon.sessions import StringSession

from floodmark.errors import InvalidInput

from .hints import LOG_IN

_KEY_BYTES = 256
_SQLITE_MAGIC = b"SQLite format 3\0"
# Telegram's data centres; they have had these addresses for years, and a client learns newer ones from any of them.
_CENTRES = {1: "149.154.175.53", 2: "149.154.167.51", 3: "149.154.175.100", 4: "149.154.167.91", 5: "91.108.56.130"}
_PORT = 443
# The layouts of Pyrogram's string sessions by length: version 2, version 1, and version 1 with short user ids.
_LAYOUTS = {271: ">BI?256sQ?", 267: ">B?256sQ?", 263: ">B?256sI?"}
_FORMS = "give a .session file or a string session made by Telethon or Pyrogram"


class ImportedSession:
    """A session as a string session, and the id of the application that created it, if it is known."""

    __slots__ = ("api_id", "session")

    def __init__(self, session: str, api_id: int | None = None) -> None:
        self.session, self.api_id = session, api_id

    def __repr__(self) -> str:
        return "ImportedSession(***)"


def read_session_text(text: str, server: tuple[str, int] | None = None) -> ImportedSession:
    """Return a string session of Telethon or Pyrogram, checked as far as possible without connecting."""
    text = "".join(text.split())
    try:
        session = StringSession(text)
    except Exception:  # noqa: BLE001 - it may be another format; the message may contain a part of the session
        session = None
    if session is not None and text:
        if not session.auth_key:
            raise InvalidInput("this session has no key: it was never logged in", hint=LOG_IN)
        return ImportedSession(text)
    packed = _decode(text)
    layout = _LAYOUTS.get(len(packed))
    if layout is None:
        raise InvalidInput(
            f"that is not a string session of Telethon or Pyrogram: it has {len(text)} characters",
            hint="one of Telethon begins with 1 and has 353 characters, one of Pyrogram has 351 to 362; or give the"
            " path of a .session file",
        )
    dc_id, *middle, key, _user, is_bot = struct.unpack(layout, packed)
    api_id, is_test = middle if len(middle) == 2 else (None, middle[0])
    return _convert("this session", dc_id, key, api_id=api_id, is_test=is_test, is_bot=is_bot, server=server)


def read_session_file(path: Path, server: tuple[str, int] | None = None) -> ImportedSession:
    """Return the session in a `.session` file of Telethon or Pyrogram. The file is only read, and may be in use."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
    if not start:
        raise InvalidInput(f"{path} is empty", hint=LOG_IN)
    if start != _SQLITE_MAGIC:
        raise InvalidInput(f"{path} is not a session file", hint=_FORMS)
    row = _read_row(path)
    key = row.get("auth_key")
    if not key:
        raise InvalidInput(f"{path} has no key: it was never logged in", hint=LOG_IN)
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise InvalidInput(f"the key in {path} is damaged", hint=LOG_IN)
    if "server_address" in row:
        try:
            address = str(ipaddress.ip_address(row["server_address"]))
            return ImportedSession(_pack(int(row["dc_id"]), address, int(row["port"]), key))
        except Exception as error:
            # The values in a file may be of any type.
            raise InvalidInput(f"{path} does not say which server it belongs to", hint=LOG_IN) from error
    api_id = row.get("api_id")
    return _convert(
        str(path),
        row["dc_id"],
        key,
        api_id=api_id if isinstance(api_id, int) else None,
        is_test=bool(row.get("test_mode")),
        is_bot=bool(row.get("is_bot")),
        server=server,
    )


def _read_row(path: Path) -> dict[str, Any]:
    # Immutable: SQLite takes no lock and writes no journal, so that other users of the file are not affected.
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            row = connection.execute("SELECT * FROM sessions LIMIT 1").fetchone()
            found = {} if row is None else dict(row)
    except sqlite3.Error as error:
        raise InvalidInput(f"{path} is not a session file of Telethon or Pyrogram ({error})", hint=_FORMS) from error
    if found and not {"dc_id", "auth_key"} <= found.keys():
        raise InvalidInput(f"{path} is not a session file of Telethon or Pyrogram", hint=_FORMS)
    return found


def _convert(
    what: str,
    dc_id: Any,
    key: bytes,
    *,
    api_id: int | None,
    is_test: bool,
    is_bot: bool,
    server: tuple[str, int] | None,
) -> ImportedSession:
    """Return a session of Pyrogram as a string session."""
    if is_bot:
        raise InvalidInput(f"{what} belongs to a bot: bots cannot read the history of channels", hint=LOG_IN)
    if is_test:
        raise InvalidInput(f"{what} is for Telegram's test servers", hint=LOG_IN)
    if dc_id not in _CENTRES or not any(key):
        raise InvalidInput(f"{what} does not say which server it belongs to, or has no key", hint=LOG_IN)
    address, port = server or (_CENTRES[dc_id], _PORT)
    return ImportedSession(_pack(dc_id, address, port, key), api_id or None)


def _pack(dc_id: int, address: str, port: int, key: bytes) -> str:
    session = StringSession()
    # In this order: `set_dc` clears the key.
    session.set_dc(dc_id, address, port)
    session.auth_key = AuthKey(key)
    return str(session.save())


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
