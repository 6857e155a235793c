"""Encryption of stored secrets: AES-256-GCM with a key from FLOODMARK_SECRET_KEY, or from a file created at first use.

The stored text is `v1.KEY.DATA`: a mark of the key, which distinguishes a wrong key from damage, then the nonce and the
ciphertext. The label (the owner of the secret) is authenticated with it, so that a row cannot be copied to another
owner.
"""

import base64
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

from floodmark.errors import Conflict, InvalidInput, Unavailable
from floodmark.process.inner_folders import sync_folder

SHORTEST_KEY = 16
KEY_FILE = "secret.key"
# Next to it, during and after a rotation.
NEW_KEY_FILE, OLD_KEY_FILE = "secret.key.new", "secret.key.old"

_VERSION = "v1"
_NONCE_BYTES = 12
# Slow on purpose, about 50 ms once per process: people choose weak keys.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}
_SALT = b"floodmark vault v1"
_SHARE = (
    "set FLOODMARK_SECRET_KEY to the key it was stored with; several machines on one database need the same key: "
    "copy the text of secret.key from the FLOODMARK_HOME of the one that stored it"
)


class KeySettings(Protocol):
    """The settings that name the keys."""

    @property
    def floodmark_secret_key(self) -> SecretStr | None:
        """FLOODMARK_SECRET_KEY."""
        ...

    @property
    def floodmark_secret_key_old(self) -> SecretStr | None:
        """FLOODMARK_SECRET_KEY_OLD."""
        ...

    @property
    def floodmark_home(self) -> Path:
        """FLOODMARK_HOME, the folder of the key file."""
        ...


class Vault:
    """Encrypts and decrypts texts. The key is read when it is needed, and created when the first text is encrypted.

    During a rotation two keys are accepted: an encrypted text names its key, and any known key can decrypt it. The key
    files are read each time, so that a running process takes part in a rotation.
    """

    def __init__(self, key: str | None, file: Path, old: str | None = None) -> None:
        self._given, self._old, self._file = key, old, file

    @staticmethod
    def of(settings: KeySettings) -> "Vault":
        """Return the vault of the settings."""
        key, old = settings.floodmark_secret_key, settings.floodmark_secret_key_old
        given = key.get_secret_value() if key is not None else ""
        before = old.get_secret_value() if old is not None else ""
        return Vault(given or None, settings.floodmark_home / KEY_FILE, before or None)

    def seal(self, text: str, *, label: str) -> str:
        """Encrypt a text for `label`."""
        return _encrypt(self._current(), text, label)

    def open(self, sealed: str, *, label: str) -> str:
        """Return the decrypted text. `Conflict` if the key is wrong or the row was changed."""
        version, _, rest = sealed.partition(".")
        mark, _, data = rest.partition(".")
        if version != _VERSION:
            raise Conflict(f"the secret of {label} is not in a form this version knows", hint="upgrade Floodmark")
        key = next((key for key in self._list_keys() if key.mark == mark), None)
        if key is None:
            raise self._unknown(label, mark)
        return _decrypt(key.cipher, data, label)

    def begin_rotation(self) -> str:
        """Return the mark of the new key: a new one next to the key file, or the one that is set.

        An interrupted rotation continues with its new key.
        """
        if self._given is not None:
            return self._current().mark
        if self._file.exists():
            with _name_file(self._new_file, "made"):
                _create(self._new_file)
            return self._read(self._new_file).mark
        return self._current().mark

    def reseal(self, sealed: str, *, label: str) -> str:
        """Encrypt the secret again with the new key of the rotation."""
        text = self.open(sealed, label=label)
        key = self._read(self._new_file) if self._new_file.exists() and self._given is None else self._current()
        return _encrypt(key, text, label)

    def end_rotation(self) -> None:
        """Make the new key current. The old key stays next to it, for texts encrypted during the rotation."""
        if self._given is None and self._new_file.exists():
            with _name_file(self._file, "replaced"):
                spare = self._file.with_name(f".{OLD_KEY_FILE}.tmp")
                spare.unlink(missing_ok=True)
                os.link(self._file, spare)
                spare.replace(self._old_file)
                self._new_file.replace(self._file)
                if os.name == "posix":
                    sync_folder(self._file.parent)

    @property
    def _new_file(self) -> Path:
        return self._file.with_name(NEW_KEY_FILE)

    @property
    def _old_file(self) -> Path:
        return self._file.with_name(OLD_KEY_FILE)

    def _current(self) -> "_Key":
        if self._given is not None:
            return _derive_key(self._given, "FLOODMARK_SECRET_KEY")
        return _derive_key(_read_or_create(self._file), str(self._file))

    def _list_keys(self) -> "Iterator[_Key]":
        """Yield the keys that may decrypt, the current one first. Each is derived only if needed, as that is slow."""
        if self._given is not None:
            yield _derive_key(self._given, "FLOODMARK_SECRET_KEY")
        if self._old is not None:
            yield _derive_key(self._old, "FLOODMARK_SECRET_KEY_OLD")
        for file in (self._file, self._new_file, self._old_file):
            with suppress(FileNotFoundError):
                yield self._read(file)

    def _read(self, file: Path) -> "_Key":
        return _derive_key(_read(file), str(file))

    def _unknown(self, label: str, mark: str) -> Conflict:
        if self._given is None and not self._file.exists():
            # A new key cannot be the right one, and would look as if it were.
            return Conflict(f"there is no key to open the secret of {label}: {self._file} does not exist", hint=_SHARE)
        return Conflict(
            f"wrong key: the secret of {label} was stored with the key {mark}, "
            f"and {self._key_origin()} is {self._current().mark}",
            hint=_SHARE,
        )

    def _key_origin(self) -> str:
        return "FLOODMARK_SECRET_KEY" if self._given is not None else f"the one in {self._file}"


class _Key(NamedTuple):
    cipher: AESGCM
    mark: str


def mark_of(sealed: str) -> str:
    """Return the mark of the key that encrypted a text."""
    return sealed.partition(".")[2].partition(".")[0]


def _encrypt(key: _Key, text: str, label: str) -> str:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    data = key.cipher.encrypt(nonce, text.encode(), label.encode())
    return f"{_VERSION}.{key.mark}.{base64.urlsafe_b64encode(nonce + data).decode()}"


@lru_cache(maxsize=8)
def _derive_key(text: str, origin: str) -> _Key:
    text = text.strip()
    if len(text) < SHORTEST_KEY:
        raise InvalidInput(
            f"the key in {origin} is too short: {len(text)} characters, at least {SHORTEST_KEY} are needed",
            hint="create one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    key = hashlib.scrypt(text.encode(), salt=_SALT, **_SCRYPT)
    # A mark of the derived key does not help to guess the text.
    return _Key(AESGCM(key), hashlib.sha256(b"mark" + key).hexdigest()[:8])


def _decrypt(cipher: AESGCM, data: str, label: str) -> str:
    try:
        raw = base64.urlsafe_b64decode(data)
        return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], label.encode()).decode()
    except (InvalidTag, ValueError):
        # Without the cause: no part of the secret may appear in a traceback.
        raise Conflict(
            f"the secret of {label} has been changed, or was stored under another name",
            hint=f"store it again with: floodmark accounts add {label} --replace",
        ) from None


def _read_or_create(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        with _name_file(path, "made"):
            _create(path)
        return _read(path)


def _read(path: Path) -> str:
    with _name_file(path, "read"), path.open(encoding="utf-8", errors="replace") as file:
        # The mode of the open file, not of its name: the file cannot be exchanged before it is read.
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if os.name == "posix" and mode & 0o077:
            raise InvalidInput(f"the key file {path} can be read by others (mode {mode:04o})", hint=f"chmod 600 {path}")
        return file.read(4096)


def _create(path: Path) -> None:
    """Write a complete key file, or keep the one that another process has written first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only the owner can read files made by `mkstemp`.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        _link(name, path)
    finally:
        Path(name).unlink()
    if os.name == "posix":
        sync_folder(path.parent)


def _link(made: str, path: Path) -> None:
    try:
        os.link(made, path)
    except FileExistsError:
        # The other process was first; its file was complete before it got this name.
        return


@contextmanager
def _name_file(path: Path, what: str) -> Iterator[None]:
    """Add the name of the file to errors; a missing file is handled by the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(
            f"the key file {path} cannot be {what}: {error.strerror}",
            hint="let this user read and write it, or set FLOODMARK_SECRET_KEY",
        ) from error
