"""Ask for confirmation before something is deleted or reset."""

import sys
from collections.abc import Iterable
from typing import Protocol, TypeVar

import typer

from floodmark.errors import InvalidInput, NotFound

from .output import plain
from .root import CliContext


def confirm(cli: CliContext, action: str, *, yes: bool, dry_run: bool | None = None) -> bool:
    """Return whether to do it. Without a terminal, only `--yes` confirms.

    `dry_run` is None for a command that has no such option.
    """
    if dry_run:
        cli.out.print(f"Would {plain(action)}. Nothing was changed.")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"this would {action}: it needs confirmation, and there is no terminal to ask on",
            hint="repeat it with --yes to do it" + ("" if dry_run is None else ", or with --dry-run to only show it"),
        )
    if not typer.confirm(f"This will {action}. Continue?", default=False, err=True):
        raise typer.Abort
    return True


class Keyed(Protocol):
    """A row that is named by its key."""

    @property
    def key(self) -> str:
        """The key that people type."""
        ...


K = TypeVar("K", bound=Keyed)


def find_by_key(rows: Iterable[K], key: str, kind: str) -> K:
    """Return the row with this key, or raise `NotFound` with some of the existing keys."""
    found = {row.key: row for row in rows}
    if key not in found:
        known = f"There are: {', '.join(list(found)[:5])}" if found else "There are none"
        raise NotFound(f"there is no {kind} {key!r}", hint=known)
    return found[key]
