"""`add`: create a job. One file per source; `add_job.py` is what they share."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from floodmark.cli.option_groups import expand_options

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
    """Accepts other sources too: those of a package or an app."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of a source, or the one for all others."""
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return args[0], self.commands[_OTHER], args[1:]


add = typer.Typer(cls=_Kinds, help="Add a job.", no_args_is_help=True, rich_markup_mode="rich")
for _name, _command in _KINDS.items():
    add.command(_name)(expand_options(_command))
