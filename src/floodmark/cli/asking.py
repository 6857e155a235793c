"""Before something is taken away: find it, say what, and ask."""

import sys
from collections.abc import Iterable
from typing import Protocol, TypeVar

import typer

from floodmark.errors import InvalidInput, NotFound

from .root import Desk
from .showing import plain


def go_ahead(desk: Desk, what: str, *, yes: bool, dry_run: bool | None = None) -> bool:
    """Whether to do it. A dry run only says so; without a person at the keyboard only `--yes` counts as one.

    `dry_run` is None for a command that has no such option.
    """
    if dry_run:
        desk.out.print(f"Would {plain(what)}. Nothing was changed.", highlight=False)
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"this would {what}: that has to be confirmed, and nobody is at the keyboard",
            hint="the same command with --yes does it" + ("" if dry_run is None else ", with --dry-run it only tells"),
        )
    if not typer.confirm(f"This will {what}. Go ahead?", default=False, err=True):
        raise typer.Abort
    return True


class Keyed(Protocol):
    """Something that is named by its key."""

    @property
    def key(self) -> str:
        """What a person types to name it."""
        ...


K = TypeVar("K", bound=Keyed)


def picked(rows: Iterable[K], key: str, what: str) -> K:
    """The one of this key; if it is not there, the error names some that are."""
    found = {row.key: row for row in rows}
    if key not in found:
        there = f"There are: {', '.join(list(found)[:5])}" if found else "There are none"
        raise NotFound(f"there is no {what} {key!r}", hint=there)
    return found[key]
