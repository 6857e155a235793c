"""The key of stored secrets is replaced in one step, and a process that is killed in it loses none of them."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import select, update

from floodmark.errors import Conflict
from floodmark.inbound.tables import triggers
from floodmark.inbound.triggers import secret_label
from floodmark.model.audit import Actor
from floodmark.model.external_triggers import NewTrigger
from floodmark.operations.local import LocalOperations
from floodmark.operations.rekeying import rekey
from floodmark.security.vault import Vault, mark_of
from floodmark.settings import Settings
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.tables import accounts
from floodmark.wiring.resources import Resources, open_resources

ADA = Actor(who="ada")
SECRET = "a secret of a webhook"


async def store_secrets(resources: Resources) -> None:
    vault = Vault.of(resources.settings)
    await Accounts(resources.database, resources.clock, vault).add("reader", api_id=1, api_hash="h", session="s3cr3t")
    await LocalOperations(resources, ADA).add_trigger(NewTrigger(kind="webhook", pattern="/a", secret=SECRET))


async def marks(resources: Resources) -> set[str]:
    """The marks of the keys in use; every secret opens with what a process of these settings knows."""
    vault = Vault.of(resources.settings)
    async with resources.database.reading() as connection:
        [(name, sealed)] = await connection.execute(select(accounts.c.name, accounts.c.secrets))
        assert "s3cr3t" in vault.open(sealed, label=name)
        [(trigger_id, secret)] = await connection.execute(select(triggers.c.trigger_id, triggers.c.secret))
        assert vault.open(secret, label=secret_label(trigger_id)) == SECRET
        return {mark_of(sealed), mark_of(secret)}


class Killed(Vault):
    """A rotation that ends between the commit and the new key file."""

    def end_rotation(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_a_key_file_is_rotated_and_a_kill_at_any_point_loses_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = Settings(database_url=f"sqlite:///{home}/floodmark.db", floodmark_home=home)
    async with open_resources(settings) as resources:
        await store_secrets(resources)
        [old] = await marks(resources)
    command = [sys.executable, "-m", "floodmark", "--set", f"DATABASE_URL={settings.database_url}"]
    command += ["--set", f"FLOODMARK_HOME={home}", "rotate-key", "--yes"]

    # Within the transaction.
    environment = {**os.environ, "FLOODMARK_FAILPOINT": "operation.changed:kill"}
    killed = typed(command, tmp_path, environment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    async with open_resources(settings) as resources:
        assert await marks(resources) == {old}
        begun = (home / "secret.key.new").read_text()
        # Behind it, before the new key has its place.
        with pytest.raises(KeyboardInterrupt):
            await rekey(resources.database, resources.repositories.audit, Killed(None, home / "secret.key"), ADA)
        [new] = await marks(resources)
        assert new != old
        # Sealed meanwhile, with the key that is still in its place.
        await Accounts(resources.database, resources.clock, Vault.of(settings)).add(
            "reader", api_id=1, api_hash="h", session="s3cr3t", replace=True
        )
        assert await marks(resources) == {old, new}

    done = typed(command, tmp_path)
    assert (done.returncode, "1 accounts" in done.stdout) == (0, True), done.stderr
    async with open_resources(settings) as resources:
        assert await marks(resources) == {new}
    assert (home / "secret.key").read_text() == begun
    assert not (home / "secret.key.new").exists()
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.glob("secret.key*")} == {0o600}


@pytest.mark.spec("G9")
async def test_a_key_that_is_set_is_rotated_with_the_old_one_beside_it(migrated_url: str) -> None:
    first, second = SecretStr("the first key of this test"), SecretStr("the second key of this test")
    before = Settings(database_url=migrated_url, floodmark_secret_key=first)
    after = Settings(database_url=migrated_url, floodmark_secret_key=second, floodmark_secret_key_old=first)
    alone = Settings(database_url=migrated_url, floodmark_secret_key=second)
    async with open_resources(before) as resources:
        await store_secrets(resources)
    async with open_resources(alone) as resources:
        with pytest.raises(Conflict, match="wrong key"):
            await rekey(resources.database, resources.repositories.audit, Vault.of(alone), ADA)
    async with open_resources(after) as resources:
        [old] = await marks(resources)
        done = await rekey(resources.database, resources.repositories.audit, Vault.of(after), ADA)
        assert (done.accounts, done.triggers) == (1, 1)
        again = await rekey(resources.database, resources.repositories.audit, Vault.of(after), ADA)
        assert (again.accounts, again.triggers) == (0, 0)
    async with open_resources(alone) as resources:
        assert await marks(resources) == {done.key} != {old}


@pytest.mark.spec("G9")
async def test_the_database_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = Settings(database_url=f"sqlite:///{home}/floodmark.db", floodmark_home=home)
    umask = os.umask(0)
    try:
        async with open_resources(settings) as resources:
            await store_secrets(resources)
            assert modes(home) == {".": 0o700} | dict.fromkeys(
                ["floodmark.db", "floodmark.db-shm", "floodmark.db-wal", "secret.key"], 0o600
            )
        # As an earlier version has left them.
        home.chmod(0o755)
        (home / "floodmark.db").chmod(0o644)
        async with open_resources(settings) as resources:
            async with resources.database.writing() as connection:
                await connection.execute(update(accounts).values(api_id=2))
            assert {mode & 0o077 for mode in modes(home).values()} == {0}
    finally:
        os.umask(umask)


def typed(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def modes(home: Path) -> dict[str, int]:
    found = {file.name: stat.S_IMODE(file.stat().st_mode) for file in home.iterdir() if file.is_file()}
    return {".": stat.S_IMODE(home.stat().st_mode), **found}
