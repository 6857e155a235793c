"""The frame of every command: global options, settings, the operations, and error messages."""

import asyncio
import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from rich.status import Status
from typer.core import TyperGroup
from typer.exceptions import TyperException

from floodmark.errors import Conflict, FloodmarkError, InvalidInput, NotFound
from floodmark.operations.declared import AsyncOperations
from floodmark.security.masking import mask_text
from floodmark.version import __version__

from .output import console, plain
from .root_help import printed_root_help
from .session import is_database_missing, load_application, load_settings, open_operations

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.settings import Settings

T = TypeVar("T")

# These end with exit code 2, all other errors with 1.
_BAD_INPUT = (InvalidInput, NotFound, Conflict)
_WITH_VALUE, _FLAGS = ("--set", "--url"), ("--quiet", "-q", "--debug")
_URL = "FLOODMARK_URL"
_HOURS = re.compile(r"\d{1,2}:\d\d-")

# Commands that only read: they create no database.
READING = frozenset(
    {
        "accounts ls",
        "audit",
        "breakers ls",
        "budgets ls",
        "budgets show",
        "dlq ls",
        "doctor",
        "engagement",
        "events",
        "explain",
        "export engagement",
        "export items",
        "freshness",
        "history",
        "index show",
        "items",
        "jobs export",
        "latest",
        "limits ls",
        "ls",
        "media ls",
        "media show",
        "next",
        "preview",
        "proof export",
        "proof heads",
        "readers ls",
        "report cookies",
        "search",
        "secrets ls",
        "show",
        "sinks ls",
        "sinks show",
        "stats",
        "tokens ls",
        "top",
        "triggers ls",
        "triggers status",
        "verify",
        "watch history",
        "watch ls",
        "watch show",
        "watch try",
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


class RootGroup(TyperGroup):
    """Accepts global options anywhere, and prints an error as a message and the next step."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the global options first."""
        return super().parse_args(ctx, hoist_global_options(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of all commands, in the same way as without loading them."""
        formatter.write(printed_root_help())

    def main(self, *positional: Any, **options: Any) -> NoReturn:
        """Run a command line and end the process (in a test: raise SystemExit)."""
        given = options.get("args") or (positional[0] if positional else None) or sys.argv[1:]
        try:
            code = super().main(*positional, **{**options, "standalone_mode": False})
        except FloodmarkError as error:
            _print_error(str(error), error.hint)
            code = 2 if isinstance(error, _BAD_INPUT) else 1
        except TyperException as error:
            # Without a message, a subcommand was missing and the help was printed.
            if message := error.format_message():
                _print_error(message, _help_for(error))
            code = error.exit_code
        except typer.Abort:
            _print_error("nothing was changed", "")
            code = 1
        except Exception as error:  # noqa: BLE001 - users get a message, not a traceback
            _report_unexpected(error, is_debugging="--debug" in given)
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


class _DefaultGroup(TyperGroup):
    """Runs a default command if none is named."""

    default: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        # Shell completion parses resiliently, and completes the names of all commands.
        if self.default is not None and not is_named and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def command_group(text: str, default: str | None = None) -> typer.Typer:
    """Return an empty group of commands with this help text; `default` runs if no command is named."""
    group = typer.Typer(cls=type("DefaultGroup", (_DefaultGroup,), {"default": default}), help=text)

    @group.callback()
    def take_no_options() -> None:
        pass

    return group


def hoist_global_options(args: Sequence[str]) -> list[str]:
    """Return the command line with the global options first; words after `--` stay in place."""
    front: list[str] = []
    rest: list[str] = []
    ahead = list(args)
    while ahead:
        word = ahead.pop(0)
        if word == "--":
            return [*front, *rest, word, *ahead]
        if word == "--quiet" and ahead and _HOURS.match(ahead[0]):
            # The quiet hours of a watch.
            rest += [word, ahead.pop(0)]
        elif _is_flag(word):
            front.append(word)
        elif word in _WITH_VALUE:
            front += [word, *ahead[:1]]
            del ahead[:1]
        else:
            rest.append(word)
    return front + rest


def command_in(args: Sequence[str]) -> str | None:
    """Return the command of a command line; None if an option that is not global comes first."""
    ahead = iter(hoist_global_options(args))
    for word in ahead:
        if word in _WITH_VALUE:
            next(ahead, None)
        elif not _is_flag(word):
            return None if word.startswith("-") else word
    return None


def _is_flag(word: str) -> bool:
    return word in _FLAGS or word.startswith(tuple(f"{name}=" for name in _WITH_VALUE))


class CliContext:
    """The global options of one command line, its output, and access to the operations."""

    def __init__(self, overrides: dict[str, str], *, is_quiet: bool) -> None:
        self.overrides, self.is_quiet = overrides, is_quiet
        self.out = console()
        self.command = ""

    @staticmethod
    def of(context: typer.Context) -> "CliContext":
        """Return the one of this command line."""
        found = context.obj
        assert isinstance(found, CliContext)
        found.command = context.command_path.partition(" ")[2]
        return found

    def note(self, text: Any = "") -> None:
        """Print a hint, unless `--quiet` is given."""
        if not self.is_quiet:
            self.out.print(text)

    def busy(self, text: str) -> Status:
        """Return a spinner for a slow step, on the terminal of stderr."""
        return console(stderr=True).status(text)

    def set(self, key: str, value: object) -> None:
        """Override a setting with an option of a command; None changes nothing."""
        if value is not None:
            self.overrides[key] = str(value)

    def settings(self) -> "Settings":
        """Return the settings of the application."""
        return self.application().settings

    def application(self) -> "Floodmark":
        """Return the user's application, or one without collectors."""
        return load_application(self.overrides)

    def url(self) -> str | None:
        """Return the server to use; None: the database."""
        return load_settings(self.overrides).floodmark_url

    def local_settings(self) -> "Settings":
        """Return the settings of this machine. A server has its own application, so none is loaded for it."""
        return self.settings() if self.url() is None else load_settings(self.overrides)

    def work(self, what: Callable[[AsyncOperations], Awaitable[T]]) -> T:
        """Open the operations of the server or on the database, do this, and close them."""

        async def work() -> T:
            only_reads = self.command in READING
            async with open_operations(self.overrides, only_reads=only_reads) as operations:
                return await what(operations)

        return asyncio.run(work())

    def require_database(self) -> None:
        """Raise `NotFound` if there is no database to follow."""
        settings = load_settings(self.overrides)
        if settings.floodmark_url is None and is_database_missing(settings.database_url):
            raise NotFound(f"there is no database at {settings.database_url} yet", hint="start it with: floodmark up")

    def require_local(self, command: str) -> None:
        """Refuse a command that no server can do, so that it does not change the wrong installation."""
        self.refuse_url(command)
        if (url := self.url()) is not None:
            raise InvalidInput(
                f"`floodmark {command}` works on this machine only, and FLOODMARK_URL names {url}",
                hint=f"run it where the server runs, or for this machine: floodmark --url '' {command} ...",
            )

    def refuse_url(self, command: str) -> None:
        """Refuse `--url` for a command that ignores it; FLOODMARK_URL may be set for other commands."""
        if self.overrides.get(_URL):
            raise InvalidInput(
                f"`floodmark {command}` works on this machine only: it cannot use {self.overrides[_URL][:200]}",
                hint="leave out --url, or run it where the server runs",
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
        typer.echo(f"floodmark {__version__}")
        raise typer.Exit
    context.obj = cli = CliContext(dict(_assignment(text) for text in assignments or ()), is_quiet=quiet)
    cli.set(_URL, url)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(f"--set {text[:60]!r} is not KEY=VALUE", hint="for example --set LOG_LEVEL=debug")
    return key.strip(), value.strip()


def _print_error(message: str, hint: str) -> None:
    err = console(stderr=True)
    err.print(f"[bold red]Error:[/] {plain(message)}", soft_wrap=True)
    if hint:
        err.print(f"[bold]Next:[/] {plain(hint)}", soft_wrap=True)


def _help_for(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    option = str(getattr(error, "option_name", ""))
    if option and context.command_path.endswith(" search") and not option.startswith("--"):
        return f"put a query with a minus in quotation marks: {context.command_path} 'fire -drill'"
    if option.removeprefix("-").isdecimal():
        # The id of a channel in the notation of bots.
        return f"put -- before a value that starts with a minus: {context.command_path} -- -1001234567890"
    return f"{context.command_path} --help"


def _report_unexpected(error: Exception, *, is_debugging: bool) -> None:
    if is_debugging or os.environ.get("FLOODMARK_DEBUG", "") not in ("", "0"):
        sys.stderr.write(mask_text("".join(traceback.format_exception(error))))
        return
    _print_error(
        f"an unexpected error occurred: {mask_text(f'{type(error).__name__}: {error}')}",
        "repeat the command with --debug to see the traceback, and please report it",
    )
