"""Before something is taken away: say what, and ask."""

import sys

import typer

from floodmark.errors import InvalidInput

from .root import Desk
from .showing import plain


def go_ahead(desk: Desk, what: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether to do it. A dry run only says so; without a person at the keyboard only `--yes` counts as one."""
    if dry_run:
        desk.out.print(f"Would {plain(what)}. Nothing was changed.", highlight=False)
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"this would {what}: that has to be confirmed, and nobody is at the keyboard",
            hint="the same command with --yes does it, with --dry-run it only tells",
        )
    if not typer.confirm(f"This will {what}. Go ahead?", default=False, err=True):
        raise typer.Abort
    return True
