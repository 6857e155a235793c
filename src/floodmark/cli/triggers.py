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
from floodmark.model.page import take

from .confirmation import confirm
from .option_groups import expand_options
from .output import counted, facts, plain, print_json, safe, short, table
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import relative


@dataclass(frozen=True, kw_only=True)
class TriggerOptions:
    """The options of any trigger."""

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
# Minimum length of an id prefix.
_ID = 8

triggers = command_group("Manage external triggers: webhooks, Redis channels and Redis streams.", default="ls")
adding = typer.Typer(help="Add an external trigger.", no_args_is_help=True)
triggers.add_typer(adding, name="add")


@triggers.command()
def ls(context: typer.Context, as_json: AsJson = False) -> None:
    """List triggers with their patterns, jobs and last firing."""
    cli = CliContext.of(context)
    status = cli.work(lambda operations: operations.triggers_status())
    if as_json:
        return print_json(status.triggers)
    return _print_list(cli, status)


@triggers.command("status")
def show_status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show trigger status: listeners, rejected deliveries with reasons, deliveries that matched no job."""
    cli = CliContext.of(context)
    status = cli.work(lambda operations: operations.triggers_status())
    if as_json:
        return print_json(status)
    now = datetime.now(UTC)
    cli.out.print(
        facts(
            [
                ("Redis listener", status.listener or "none"),
                ("matched no job", _describe_deliveries(status.unmatched)),
                ("unreadable", _describe_deliveries(status.unreadable)),
            ]
        )
    )
    cli.out.print()
    _print_list(cli, status)
    for row in status.triggers:
        if row.refused:
            _print_refused(cli, row, now)
    return None


@triggers.command()
def hubs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the WebSub hubs of feeds, with the state of the subscription there."""
    cli = CliContext.of(context)
    found, now = cli.work(lambda operations: take(operations.each_hub(), limit)), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No feed has named a hub.")
        return cli.note("Hubs are used for adaptive jobs, if API_PUBLIC_URL is set: floodmark edit JOB --adaptive")
    rows = [
        [
            Text(safe(row.target), style="bold"),
            safe(row.hub),
            row.state,
            "-" if row.expires_at is None else relative(row.expires_at, now),
            f"{row.pushes:,}",
            "never" if row.last_push_at is None else relative(row.last_push_at, now),
            short(row.last_error or "", 60),
        ]
        for row in found
    ]
    columns = ("feed", "hub", "state", "expires", "pushes", "last push", "last error")
    return cli.out.print(table(*columns, rows=rows, right=("pushes",)))


def _print_list(cli: CliContext, status: TriggersStatus) -> None:
    now = datetime.now(UTC)
    if not status.triggers and not status.of_jobs:
        cli.out.print("No triggers yet.")
        return cli.note("Add one: floodmark triggers add webhook '/sources/*/crawl' --job NAME")
    rows = [_row(row, now) for row in status.triggers]
    rows += [
        [
            of.kind,
            Text(safe(of.pattern), style="bold"),
            f"{counted(of.jobs, 'job')} with this pattern",
            *[""] * 6,
            "yes" if of.listening else "no",
        ]
        for of in status.of_jobs
    ]
    columns = (
        "kind",
        "pattern",
        "jobs",
        "signed",
        "fired",
        "executions",
        "hints",
        "refused",
        "last fired",
        "listening",
    )
    return cli.out.print(table(*columns, rows=rows, right=("fired", "executions", "hints", "refused")))


def _row(row: TriggerStatus, now: datetime) -> list[object]:
    last = "never" if row.last_fired_at is None else relative(row.last_fired_at, now)
    return [
        row.kind,
        Text(safe(row.pattern), style="bold"),
        short(", ".join(row.jobs) or ("none" if row.kind == "stream" else "jobs with this pattern"), 60),
        "yes" if row.signed else "no" if row.kind == "webhook" else "-",
        f"{row.fired:,}",
        f"{row.matched:,}",
        f"{row.hinted:,}",
        f"{row.refused:,}",
        last,
        "yes" if row.listening else Text(f"no: {safe(row.why_not)}", style="yellow"),
    ]


def _print_refused(cli: CliContext, row: TriggerStatus, now: datetime) -> None:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(row.refusals.items()))
    last = "" if row.last_refused_at is None else f", last {relative(row.last_refused_at, now)}"
    cli.out.print(f"[yellow]{plain(row.pattern)}[/] refused {plain(reasons)}{last}")


def _describe_deliveries(deliveries: Unmatched) -> str:
    count, last = deliveries.count, safe(deliveries.last)
    return "nothing" if not count else f"{counted(count, 'delivery', 'deliveries')}, last {last}"


@adding.command()
@expand_options
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
    from floodmark.inbound.triggers import new_secret  # noqa: PLC0415 - loads the database library

    cli = CliContext.of(context)
    given = sys.stdin.readline().strip() if secret == _STANDARD_INPUT else secret
    if signed and given is not None:
        raise InvalidInput("--signed and --secret contradict each other", hint="use only one of them")
    made = new_secret() if signed else None
    new = _new("webhook", pattern, options, secret=made or given)
    row = cli.work(lambda operations: operations.add_trigger(new, replace=options.replace))
    if options.as_json:
        return print_json({**msgspec.structs.asdict(row), "secret": made})
    _print_added(cli, row)
    if made is not None:
        cli.note("Sign with this secret. It is shown only once:")
        # Alone on its line, also with --quiet.
        cli.out.print(made, soft_wrap=True)
    elif not row.signed:
        cli.note("[dim]Not signed: firing it needs a token with the role operate, unless there are no tokens yet.[/]")
    return cli.note(
        f"[dim]Fire it: POST {plain(_server_url(cli))}/api/v2/triggers/webhook{plain(_example(row.pattern))}[/]"
    )


@adding.command()
@expand_options
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
@expand_options
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


def _add(context: typer.Context, new: NewTrigger, options: TriggerOptions) -> None:
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.add_trigger(new, replace=options.replace))
    if options.as_json:
        return print_json(row)
    return _print_added(cli, row)


def _new(kind: Kind, pattern: str, options: TriggerOptions, *, secret: str | None = None) -> NewTrigger:
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


def _print_added(cli: CliContext, row: TriggerStatus) -> None:
    fires = f"fires {', '.join(row.jobs)}" if row.jobs else f"fires the jobs whose trigger_{row.kind} matches"
    if row.kind == "stream" and not row.jobs:
        fires = "fires nothing yet: name jobs with --job and --replace"
    rest = f", at most every {format_duration(timedelta(seconds=row.debounce_seconds))}" if row.debounce_seconds else ""
    cli.out.print(f"[green]Added[/] the {row.kind} [bold]{plain(row.pattern)}[/]: it {plain(fires)}{rest}.")
    if row.why_not is not None and "yet" not in row.why_not:
        cli.note(f"[yellow]It is not listened to: {plain(row.why_not)}.[/]")


def _example(pattern: str) -> str:
    """Return a path that matches."""
    return "/".join("42" if part.startswith(("*", "{")) else part for part in pattern.split("/"))


def _server_url(cli: CliContext) -> str:
    if (url := cli.url()) is not None:
        return url
    settings = cli.settings()
    return f"http://{settings.host}:{settings.port}"


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
    cli, chosen = CliContext.of(context), _kind(kind)
    row = _find(cli.work(lambda operations: operations.triggers_status()).triggers, pattern.strip(), chosen)
    fires = f", which fires {', '.join(row.jobs)}" if row.jobs else ""
    if not confirm(cli, f"remove the {row.kind} {row.pattern}{fires}", dry_run=dry_run, yes=yes):
        return None
    cli.work(lambda operations: operations.remove_trigger(row.kind, row.trigger_id))
    if as_json:
        return print_json(row)
    return cli.out.print(f"Removed the {row.kind} {plain(row.pattern)}.")


def _kind(text: str | None) -> Kind | None:
    match text:
        case None | "webhook" | "channel" | "stream":
            return text
    raise InvalidInput(f"{text[:60]!r} is not a kind of trigger", hint="choose one of: webhook, channel, stream")


def _find(triggers: Sequence[TriggerStatus], typed: str, kind: Kind | None) -> TriggerStatus:
    """Return the trigger with this pattern or id prefix."""
    rows = [row for row in triggers if kind in (None, row.kind)]
    found = [row for row in rows if row.pattern == typed or (len(typed) >= _ID and row.trigger_id.startswith(typed))]
    return the_only(found, typed)
