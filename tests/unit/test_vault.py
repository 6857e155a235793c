"""Secrets at rest: what is sealed can be opened with the same key only, and nothing shows it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from floodmark.errors import Conflict, InvalidInput, Unavailable
from floodmark.security.vault import Vault
from floodmark.settings import Settings

KEY = "correct horse battery staple"
SECRET = "1BVtsOK4Bu-a-session-that-nobody-may-see"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(KEY, tmp_path / "secret.key")


def test_what_is_sealed_can_be_opened_and_not_be_read(vault: Vault, tmp_path: Path) -> None:
    sealed = vault.seal(SECRET, label="reader1")

    assert vault.open(sealed, label="reader1") == SECRET
    assert Vault(KEY, tmp_path / "elsewhere").open(sealed, label="reader1") == SECRET
    assert SECRET not in sealed
    assert vault.seal(SECRET, label="reader1") != sealed, "the same text twice must not look the same"
    assert list(tmp_path.iterdir()) == [], "a key that was given needs no file"


def test_a_wrong_key_is_said_to_be_one(vault: Vault, tmp_path: Path) -> None:
    sealed = vault.seal(SECRET, label="reader1")

    with pytest.raises(Conflict, match="wrong key: the secret of reader1") as told:
        Vault("another key of enough length", tmp_path / "secret.key").open(sealed, label="reader1")

    assert "FLOODMARK_SECRET_KEY" in told.value.hint
    assert "several machines" in told.value.hint


def test_without_any_key_none_is_made_to_open_something(vault: Vault, tmp_path: Path) -> None:
    """A new key could not be the right one, and would hide that the right one is missing."""
    sealed = vault.seal(SECRET, label="reader1")

    with pytest.raises(Conflict, match="there is no key"):
        Vault(None, tmp_path / "secret.key").open(sealed, label="reader1")

    assert not (tmp_path / "secret.key").exists()


@pytest.mark.parametrize("damage", ["label", "data", "cut", "form", "nothing"])
def test_a_changed_secret_is_refused(vault: Vault, damage: str) -> None:
    sealed, label = vault.seal(SECRET, label="reader1"), "reader1"
    if damage == "label":
        label = "reader2"
    elif damage == "data":
        sealed = sealed[:-6] + ("A" if sealed[-6] != "A" else "B") + sealed[-5:]
    elif damage == "cut":
        sealed = sealed[:25]
    elif damage == "form":
        sealed = "v9" + sealed[2:]
    else:
        sealed = ""

    with pytest.raises(Conflict) as told:
        vault.open(sealed, label=label)

    assert told.value.hint
    assert told.value.__cause__ is None


@pytest.mark.parametrize("key", ["hunter2", " " * 40, "fifteen letters"])
def test_a_key_that_is_too_short_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidInput, match="FLOODMARK_SECRET_KEY is too short") as told:
        Vault(key, tmp_path / "secret.key").seal(SECRET, label="reader1")

    assert "secrets.token_urlsafe" in told.value.hint
    assert key.strip() == "" or key not in str(told.value)


def test_a_key_file_is_made_at_first_use_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "home" / "secret.key"
    vault = Vault(None, path)
    assert not path.exists()

    sealed = vault.seal(SECRET, label="reader1")

    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret.key"]
    assert Vault(None, path).open(sealed, label="reader1") == SECRET
    assert Vault(path.read_text(), tmp_path / "other").open(sealed, label="reader1") == SECRET, "for other machines"


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    Vault(None, path).seal(SECRET, label="reader1")
    path.chmod(0o640)

    with pytest.raises(InvalidInput, match=r"can be read by others \(mode 0640\)") as told:
        Vault(None, path).seal(SECRET, label="reader1")

    assert told.value.hint == f"chmod 600 {path}"


def test_an_empty_key_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    path.touch(mode=0o600)

    with pytest.raises(InvalidInput, match="too short: 0 characters"):
        Vault(None, path).seal(SECRET, label="reader1")

    assert path.read_text() == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")

    with pytest.raises(Unavailable, match=r"secret\.key cannot be") as told:
        Vault(None, tmp_path / "home" / "secret.key").seal(SECRET, label="reader1")

    assert "FLOODMARK_SECRET_KEY" in told.value.hint


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from floodmark.security.vault import Vault\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(Vault(None, Path('home/secret.key')).seal('x', label='a'))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    sealed = [process.communicate(timeout=60)[0].strip() for process in processes]

    mine = Vault(None, tmp_path / "home" / "secret.key")
    assert [mine.open(text, label="a") for text in sealed] == ["x"] * 4
    assert os.listdir(tmp_path / "home") == ["secret.key"]


def test_the_settings_say_where_the_key_is(tmp_path: Path) -> None:
    given = Settings(floodmark_home=tmp_path, floodmark_secret_key=SecretStr(KEY))
    sealed = Vault.of(given).seal(SECRET, label="reader1")
    assert Vault(KEY, tmp_path / "unused").open(sealed, label="reader1") == SECRET

    Vault.of(Settings(floodmark_home=tmp_path)).seal(SECRET, label="reader1")
    assert (tmp_path / "secret.key").exists()


def test_nothing_shows_the_key(vault: Vault) -> None:
    vault.seal(SECRET, label="reader1")
    assert KEY not in f"{vault!r} {vault}"
