"""`add`: from words on a command line to a job that is known to work. One file for each kind of source.

`options.py` has the options that all of them share, `making.py` the way from there to the job.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from floodmark.cli.grouping import grouped

from .cookies import cookies
from .feed import feed
from .other import other
from .python import python
from .telegram import telegram
from .web import web

_OTHER = "KIND"
_KINDS: dict[str, Callable[..., None]] = {
    "telegram": telegram,
    "python": python,
    "cookies": cookies,
    "web": web,
    "feed": feed,
    _OTHER: other,
}


class _Kinds(TyperGroup):
    """Takes the names of sources it has no command for, too: those that a package or an app brings."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command of a kind, or the one for all others."""
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return args[0], self.commands[_OTHER], args[1:]


def _assembled() -> typer.Typer:
    made = typer.Typer(cls=_Kinds, help="Add a job.", no_args_is_help=True, rich_markup_mode="rich")
    for name, command in _KINDS.items():
        made.command(name)(grouped(command))
    return made


add = _assembled()
