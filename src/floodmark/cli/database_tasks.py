"""Tasks of `migrate` and `rotate-key` on the database."""

from collections.abc import Mapping

from alembic.util import CommandError

from floodmark.errors import InvalidInput
from floodmark.observability.events import Events
from floodmark.operations.rekeying import Rekeyed, rekey
from floodmark.security.vault import Vault
from floodmark.store.database import open_database
from floodmark.store.migrate import current, migrate, newest

from .session import open_here


async def migrate_database(url: str, revision: str, *, dry_run: bool) -> tuple[str | None, str | None]:
    """Migrate, and return the revisions before and after; a dry run returns the current and the newest one."""
    database = open_database(url, events=Events())
    try:
        await database.ping()
        if dry_run:
            return await current(database), newest()
        return await migrate(database, to=revision)
    except CommandError as error:
        raise InvalidInput(
            f"there is no schema {revision[:40]!r}: {error}", hint=f"the newest is {newest()}; floodmark migrate"
        ) from error
    finally:
        await database.close()


async def rotate_secret_key(overrides: Mapping[str, str]) -> Rekeyed:
    """Encrypt all stored secrets with the new key."""
    async with open_here(overrides) as operations:
        resources = operations.resources
        audit, vault = resources.repositories.audit, Vault.of(resources.settings)
        return await rekey(resources.database, audit, vault, operations.actor)
