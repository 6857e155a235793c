"""The frame around every command: options that may stand anywhere, the settings, and how errors end."""

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from rich.status import Status
from typer.core import TyperGroup
from typer.exceptions import TyperException

from floodmark.errors import Conflict, FloodmarkError, InvalidInput, NotFound

from .showing import console, plain

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.operations.declared import AsyncOperations
    from floodmark.settings import Settings

T = TypeVar("T")

# What was asked for cannot be done as asked; for everything else the exit code is 1.
_BAD_INPUT = (InvalidInput, NotFound, Conflict)
_WITH_VALUE, _FLAGS = ("--set", "--url"), ("--quiet", "-q", "--debug")
_URL = "FLOODMARK_URL"

# Commands that only show something: they create no database where there is none.
READING = frozenset(
    {
        "accounts",
        "accounts ls",
        "audit",
        "breakers",
        "breakers ls",
        "dlq",
        "dlq ls",
        "doctor",
        "events",
        "explain",
        "history",
        "items",
        "limits",
        "limits ls",
        "ls",
        "next",
        "report cookies",
        "show",
        "stats",
        "tokens",
        "tokens ls",
        "top",
        "triggers",
        "triggers ls",
        "triggers status",
        "watermark",
        "watermark show",
    }
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name or id of a job, or a unique prefix.")]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:NAME", help="Your Floodmark instance (default: FLOODMARK_APP)."),
]


class Root(TyperGroup):
    """Takes global options wherever they stand, and turns errors into one message and what to type next."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Global options first, wherever they were typed."""
        return super().parse_args(ctx, hoisted(args))

    def main(self, *positional: Any, **options: Any) -> NoReturn:
        """Run a command line; always ends the process, or raises SystemExit in a test."""
        given = options.get("args") or (positional[0] if positional else None) or sys.argv[1:]
        try:
            code = super().main(*positional, **{**options, "standalone_mode": False})
        except FloodmarkError as error:
            _tell(str(error), error.hint)
            code = 2 if isinstance(error, _BAD_INPUT) else 1
        except TyperException as error:
            # Without one it was a command that needs another behind it, and its help was shown.
            if message := error.format_message():
                _tell(message, _help_for(error))
            code = error.exit_code
        except typer.Abort:
            _tell("nothing was changed", "")
            code = 1
        except Exception as error:  # noqa: BLE001 - the last stop: whoever typed this gets a message, not a traceback
            code = _surprised(error, is_debugging="--debug" in given)
        sys.exit(code if isinstance(code, int) else 0)


def hoisted(args: Sequence[str]) -> list[str]:
    """The same command line with the global options in front; what follows `--` is left alone."""
    front: list[str] = []
    rest: list[str] = []
    ahead: Iterator[str] = iter(args)
    for word in ahead:
        if word == "--":
            rest += [word, *ahead]
        elif word in _FLAGS or word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            front.append(word)
        elif word in _WITH_VALUE:
            front += [word, *[value for value in [next(ahead, None)] if value is not None]]
        else:
            rest.append(word)
    return front + rest


def command_in(args: Sequence[str]) -> str | None:
    """Return the command of a command line; None if an option comes first that is not global."""
    ahead = iter(hoisted(args))
    for word in ahead:
        if word in _WITH_VALUE:
            next(ahead, None)
        elif not word.startswith("-"):
            return word
        elif word not in _FLAGS and not word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            return None
    return None


class Desk:
    """What was said for the whole command line, and how to answer it."""

    def __init__(self, overrides: dict[str, str], *, is_quiet: bool) -> None:
        self.overrides, self.is_quiet = overrides, is_quiet
        self.out = console()
        self.command = ""

    @staticmethod
    def of(context: typer.Context) -> "Desk":
        """The desk of this command line."""
        found = context.obj
        assert isinstance(found, Desk)
        found.command = context.command_path.partition(" ")[2]
        return found

    @property
    def only_reads(self) -> bool:
        """Whether this command changes nothing, whatever its options are."""
        return self.command in READING

    def note(self, text: Any = "") -> None:
        """Something friendly, which `--quiet` leaves out."""
        if not self.is_quiet:
            self.out.print(text, highlight=False)

    def busy(self, text: str) -> Status:
        """A spinner while something takes time; on a terminal only, and never among what is printed."""
        return console(stderr=True).status(text)

    def set(self, key: str, value: object) -> None:
        """Let an option of a command be a setting; None leaves it as it is."""
        if value is not None:
            self.overrides[key] = str(value)

    def settings(self) -> "Settings":
        """The settings that are in force."""
        return self.application().settings

    def application(self) -> "Floodmark":
        """The user's application, or one without collectors."""
        from .session import application  # noqa: PLC0415 - takes a second that `--help` should not take

        return application(self.overrides)

    def url(self) -> str | None:
        """The server that commands are meant for; None: this installation."""
        from .session import loaded  # noqa: PLC0415 - as above

        return loaded(self.overrides).floodmark_url

    def maker(self) -> "Floodmark":
        """What knows how jobs are made: the user's application, which a server has for itself."""
        from floodmark.app import Floodmark  # noqa: PLC0415 - as above

        from .session import loaded  # noqa: PLC0415 - as above

        return self.application() if self.url() is None else Floodmark(loaded(self.overrides))

    def work(self, what: "Callable[[AsyncOperations], Awaitable[T]]") -> T:
        """Open the operations, on the server that was named or else on the database, do this, close it."""
        from .session import open_operations  # noqa: PLC0415 - as above

        async def opened() -> T:
            async with open_operations(self.overrides, only_reads=self.only_reads) as operations:
                return await what(operations)

        return asyncio.run(opened())

    def require_database(self) -> None:
        """Refuse to watch an installation that is not there yet."""
        from .session import is_missing, loaded  # noqa: PLC0415 - as above

        settings = loaded(self.overrides)
        if settings.floodmark_url is None and is_missing(settings.database_url):
            raise NotFound(f"there is no database at {settings.database_url} yet", hint="start it with: floodmark up")

    def only_here(self, command: str) -> None:
        """Refuse a command that no server does for us: better told than done to the wrong installation."""
        self.refuse_url(command)
        if (url := self.url()) is not None:
            raise InvalidInput(
                f"`floodmark {command}` works on this machine only, and FLOODMARK_URL names {url}",
                hint=f"type it where the server runs, or for this machine: floodmark --url '' {command} ...",
            )

    def refuse_url(self, command: str) -> None:
        """Refuse `--url` where it means nothing; FLOODMARK_URL may be set for other commands."""
        if self.overrides.get(_URL):
            raise InvalidInput(
                f"`floodmark {command}` works on this machine only: it cannot be asked of {self.overrides[_URL][:200]}",
                hint="leave out --url, or type it where the server runs",
            )


def start(
    context: typer.Context,
    *,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a setting for this command; can be repeated."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Use this server instead of the database (default: FLOODMARK_URL; token: FLOODMARK_TOKEN).",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result, no hints.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Collect every item once: a scheduler for incremental collection."""
    if version:
        from floodmark.version import __version__  # noqa: PLC0415 - the name is needed here only

        typer.echo(f"floodmark {__version__}")
        raise typer.Exit
    desk = Desk(dict(_assignment(text) for text in assignments or ()), is_quiet=quiet)
    desk.set(_URL, url)
    context.obj = desk
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(f"--set {text[:60]!r} is not KEY=VALUE", hint="for example --set LOG_LEVEL=debug")
    return key.strip(), value.strip()


def _tell(message: str, hint: str) -> None:
    err = console(stderr=True)
    err.print(f"[bold red]Error:[/] {plain(message)}", highlight=False, soft_wrap=True)
    if hint:
        err.print(f"[bold]Next:[/] {plain(hint)}", highlight=False, soft_wrap=True)


def _help_for(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if str(getattr(error, "option_name", "")).removeprefix("-").isdecimal():
        # The number of a channel, as bots write it.
        return f"put -- before what begins with a minus: {context.command_path} -- -1001234567890"
    return f"{context.command_path} --help"


def _surprised(error: Exception, *, is_debugging: bool) -> int:
    from floodmark.security.masking import mask_text  # noqa: PLC0415 - hardly ever needed

    if is_debugging or os.environ.get("FLOODMARK_DEBUG", "") not in ("", "0"):
        sys.stderr.write(mask_text("".join(traceback.format_exception(error))))
        return 1
    _tell(
        f"something unexpected happened: {mask_text(f'{type(error).__name__}: {error}')}",
        "the same command with --debug shows where; please report it",
    )
    return 1
