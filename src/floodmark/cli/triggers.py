"""Manage external triggers: webhooks, Redis channels and Redis streams."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration, parse_every
from floodmark.model.external_triggers import Kind, NewTrigger, TriggersStatus, TriggerStatus, Unmatched, the_only

from .asking import go_ahead
from .grouping import grouped
from .root import AsJson, Desk, DryRun, Yes
from .showing import counted, facts, plain, print_json, safe, short, table
from .times import relative


@dataclass(frozen=True, kw_only=True)
class TriggerOptions:
    """What can be said of any trigger."""

    job: Annotated[
        list[str] | None, typer.Option(metavar="JOB", help="Job to fire, by name or id; can be repeated.")
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PLACE",
            help="Parameter for executions: title=body.article.title, id=path.1; can be repeated.",
        ),
    ] = None
    debounce: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="After firing, combine all deliveries within this time into one execution at its end.",
        ),
    ] = None
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it disabled.")] = False
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the trigger with this pattern; its secret and counts stay.")
    ] = False
    as_json: AsJson = False


_STANDARD_INPUT = "-"
# As many characters of an id as are enough.
_ID = 8

triggers = typer.Typer(help="Manage external triggers: webhooks, Redis channels and Redis streams.")
adding = typer.Typer(help="Add an external trigger.", no_args_is_help=True)
triggers.add_typer(adding, name="add")


@triggers.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """Manage external triggers: webhooks, Redis channels and Redis streams."""
    if context.invoked_subcommand is None:
        ls(context)


# Looking


@triggers.command()
def ls(context: typer.Context, as_json: AsJson = False) -> None:
    """List triggers with their patterns, jobs and last firing."""
    desk = Desk.of(context)
    status = desk.work(lambda operations: operations.triggers_status())
    if as_json:
        return print_json(status.triggers)
    return _list(desk, status)


@triggers.command("status")
def show_status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show trigger status: listeners, rejected deliveries with reasons, deliveries that matched no job."""
    desk = Desk.of(context)
    status = desk.work(lambda operations: operations.triggers_status())
    if as_json:
        return print_json(status)
    now = datetime.now(UTC)
    desk.out.print(
        facts(
            [
                ("listens to Redis", status.listener or "nobody"),
                ("matched no job", _counted(status.unmatched)),
                ("could not be read", _counted(status.unreadable)),
            ]
        )
    )
    desk.out.print()
    _list(desk, status)
    for row in status.triggers:
        if row.refused:
            _tell_refused(desk, row, now)
    return None


def _list(desk: Desk, status: "TriggersStatus") -> None:
    now = datetime.now(UTC)
    if not status.triggers and not status.of_jobs:
        desk.out.print("No triggers yet.", highlight=False)
        return desk.note("Add one: floodmark triggers add webhook '/sources/*/crawl' --job NAME")
    rows = [_row(row, now) for row in status.triggers]
    rows += [
        [
            of.kind,
            Text(safe(of.pattern), style="bold"),
            f"{counted(of.jobs, 'job')} that {'names' if of.jobs == 1 else 'name'} it",
            *[""] * 5,
            "yes" if of.listening else "no",
        ]
        for of in status.of_jobs
    ]
    columns = ("kind", "pattern", "jobs", "signed", "fired", "executions", "refused", "last fired", "heard")
    return desk.out.print(table(*columns, rows=rows, right=("fired", "executions", "refused")))


def _row(row: "TriggerStatus", now: datetime) -> list[object]:
    last = "never" if row.last_fired_at is None else relative(row.last_fired_at, now)
    return [
        row.kind,
        Text(safe(row.pattern), style="bold"),
        short(", ".join(row.jobs) or ("none" if row.kind == "stream" else "those that name it"), 60),
        "yes" if row.signed else "no" if row.kind == "webhook" else "-",
        f"{row.fired:,}",
        f"{row.matched:,}",
        f"{row.refused:,}",
        last,
        "yes" if row.listening else Text(f"no: {safe(row.why_not)}", style="yellow"),
    ]


def _tell_refused(desk: Desk, row: "TriggerStatus", now: datetime) -> None:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(row.refusals.items()))
    last = "" if row.last_refused_at is None else f", last {relative(row.last_refused_at, now)}"
    desk.out.print(f"[yellow]{plain(row.pattern)}[/] refused {plain(reasons)}{last}", highlight=False)


def _counted(deliveries: "Unmatched") -> str:
    count, last = deliveries.count, safe(deliveries.last)
    return "nothing" if not count else f"{counted(count, 'delivery').replace('deliverys', 'deliveries')}, last {last}"


# Adding


@adding.command()
@grouped
def webhook(
    context: typer.Context,
    *,
    pattern: Annotated[
        str, typer.Argument(metavar="PATH", help="* is one segment, {name} one that becomes a param, ** the rest.")
    ],
    signed: Annotated[bool, typer.Option("--signed", help="Create a secret to sign with; it is shown once.")] = False,
    secret: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Secret to sign with; - reads it from standard input.")
    ] = None,
    options: TriggerOptions,
) -> None:
    """Fire jobs by requests to a path of the API: the named jobs, and jobs with a matching trigger_webhook.

    floodmark triggers add webhook '/sources/{source_id}/crawl' --job news --signed
    """
    from floodmark.inbound.triggers import new_secret  # noqa: PLC0415 - loads the database

    desk = Desk.of(context)
    given = sys.stdin.readline().strip() if secret == _STANDARD_INPUT else secret
    if signed and given is not None:
        raise InvalidInput("--signed and --secret contradict each other", hint="say only one of them")
    made = new_secret() if signed else None
    new = _new("webhook", pattern, options, secret=made or given)
    row = desk.work(lambda operations: operations.add_trigger(new, replace=options.replace))
    if options.as_json:
        return print_json({**msgspec.structs.asdict(row), "secret": made})
    _tell_added(desk, row)
    if made is not None:
        desk.note("Sign with this secret; it is shown this once:")
        # On a line of its own and nothing else, also with --quiet.
        desk.out.print(made, highlight=False, soft_wrap=True)
    elif not row.signed:
        desk.note(
            "[dim]Not signed: a token of the role operate is needed to fire it, except here while there are none.[/]"
        )
    return desk.note(
        f"[dim]Fire it: POST {plain(_where(desk))}/api/v2/triggers/webhook{plain(_example(row.pattern))}[/]"
    )


@adding.command()
@grouped
def channel(
    context: typer.Context,
    *,
    pattern: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel, or a pattern such as content:*")],
    options: TriggerOptions,
) -> None:
    """Fire jobs by messages of a Redis Pub/Sub channel. Messages are lost while no scheduler listens.

    floodmark triggers add channel content:new --job news --param id=body.id
    """
    _add(context, _new("channel", pattern, options), options)


@adding.command()
@grouped
def stream(
    context: typer.Context,
    *,
    pattern: Annotated[str, typer.Argument(metavar="STREAM", help="Key of a Redis stream.")],
    options: TriggerOptions,
) -> None:
    """Fire jobs by new entries of a Redis stream. No entry is lost, and none fires twice.

    floodmark triggers add stream orders --job invoices
    """
    _add(context, _new("stream", pattern, options), options)


def _add(context: typer.Context, new: "NewTrigger", options: TriggerOptions) -> None:
    desk = Desk.of(context)
    row = desk.work(lambda operations: operations.add_trigger(new, replace=options.replace))
    if options.as_json:
        return print_json(row)
    return _tell_added(desk, row)


def _new(kind: "Kind", pattern: str, options: TriggerOptions, *, secret: str | None = None) -> "NewTrigger":
    return NewTrigger(
        kind=kind,
        pattern=pattern,
        jobs=tuple(options.job or ()),
        params=dict(_place(text) for text in options.param or ()),
        secret=secret,
        debounce=timedelta() if options.debounce is None else parse_every(options.debounce),
        enabled=not options.disabled,
    )


def _place(text: str) -> tuple[str, str]:
    name, equals, place = text.partition("=")
    if not equals or not name.strip() or not place.strip():
        raise InvalidInput(f"--param {text[:60]!r} is not NAME=PLACE", hint="for example --param title=body.title")
    return name.strip(), place.strip()


def _tell_added(desk: Desk, row: "TriggerStatus") -> None:
    fires = f"fires {', '.join(row.jobs)}" if row.jobs else f"fires the jobs whose trigger_{row.kind} fits"
    if row.kind == "stream" and not row.jobs:
        fires = "fires nothing yet: name jobs with --job and --replace"
    rest = f", at most every {format_duration(timedelta(seconds=row.debounce_seconds))}" if row.debounce_seconds else ""
    desk.out.print(
        f"[green]Added[/] the {row.kind} [bold]{plain(row.pattern)}[/]: it {plain(fires)}{rest}.", highlight=False
    )
    if row.why_not is not None and "yet" not in row.why_not:
        desk.note(f"[yellow]Nobody hears it: {plain(row.why_not)}.[/]")


def _example(pattern: str) -> str:
    """A path that fits."""
    return "/".join("42" if part.startswith(("*", "{")) else part for part in pattern.split("/"))


def _where(desk: Desk) -> str:
    if (url := desk.url()) is not None:
        return url
    settings = desk.settings()
    return f"http://{settings.host}:{settings.port}"


# Removing


@triggers.command()
def rm(
    context: typer.Context,
    *,
    pattern: Annotated[
        str, typer.Argument(metavar="TRIGGER", help="Pattern or id of a trigger, or a unique prefix of the id.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(metavar="webhook|channel|stream", help="Kind, if several kinds have this pattern."),
    ] = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove a trigger. Its jobs and executions stay."""
    desk, chosen = Desk.of(context), _kind(kind)
    row = _find(desk.work(lambda operations: operations.triggers_status()).triggers, pattern.strip(), chosen)
    fires = f", which fires {', '.join(row.jobs)}" if row.jobs else ""
    if not go_ahead(desk, f"forget the {row.kind} {row.pattern}{fires}", dry_run=dry_run, yes=yes):
        return None
    desk.work(lambda operations: operations.remove_trigger(row.kind, row.trigger_id))
    if as_json:
        return print_json(row)
    return desk.out.print(f"Forgot the {row.kind} {plain(row.pattern)}.", highlight=False)


def _kind(text: str | None) -> "Kind | None":
    match text:
        case None | "webhook" | "channel" | "stream":
            return text
    raise InvalidInput(f"{text[:60]!r} is not a kind of trigger", hint="choose one of: webhook, channel, stream")


def _find(triggers: "Sequence[TriggerStatus]", typed: str, kind: "Kind | None") -> "TriggerStatus":
    """Return the trigger with this pattern, or whose id begins so."""
    rows = [row for row in triggers if kind in (None, row.kind)]
    found = [row for row in rows if row.pattern == typed or (len(typed) >= _ID and row.trigger_id.startswith(typed))]
    return the_only(found, typed)
