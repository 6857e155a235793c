"""Sync jobs with the schedules of API_URL, and show the last sync."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from msgspec import convert
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.job import When
from floodmark.sync.difference import JobChange, RowError
from floodmark.sync.report import LastSync, Report, SyncStatus
from floodmark.triggers.parsing import words_of

from .output import counted, facts, json_line, plain, print_json, safe, short, table
from .root import AsJson, CliContext, DryRun
from .times import relative

_STYLES = {"created": "green", "updated": "yellow", "disabled": "red", "error": "bold red"}
# Number of changes that are listed; a dry run lists all.
_LISTED = 20
_WIDTH = 60


def sync(
    context: typer.Context,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Apply it even if it disables more jobs than SYNC_DISABLE_MAX_SHARE allows.")
    ] = False,
    show_status: Annotated[bool, typer.Option("--status", help="Show the result of the last sync.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sync jobs with the schedules of API_URL.

    floodmark sync --dry-run
    """
    cli = CliContext.of(context)
    if show_status:
        if force or dry_run:
            raise InvalidInput("--status changes nothing", hint="leave out --force and --dry-run, or --status")
        status = cli.work(lambda operations: operations.sync_status())
        return print_json(status) if as_json else _show_status(cli, status)
    with cli.busy("Reading schedules"):
        report = cli.work(lambda operations: operations.sync(dry_run=dry_run, force=force))
    return print_json(report) if as_json else _show(cli, report, force)


def _show(cli: CliContext, report: Report, is_forced: bool) -> None:
    changes = report.changes if report.dry_run else report.changes[:_LISTED]
    rows = [_row(change) for change in changes]
    rows += [[_word("error"), error.domain, error.domain_config_id, _describe_error(error)] for error in report.errors]
    if rows:
        cli.out.print(table("", "job", "config id", "change", rows=rows))
    if len(changes) < len(report.changes):
        cli.out.print(f"... and {counted(len(report.changes) - len(changes), 'more change')}")
    would = "This would be: " if report.dry_run else ""
    parts = [f"{getattr(report, word)} {word}" for word in ("created", "updated", "skipped", "disabled")]
    if report.errors:
        parts.append(counted(len(report.errors), "error"))
    cli.out.print(f"{would}{', '.join(parts)}.")
    if report.refused is not None:
        cli.out.print(f"[yellow]It would be refused:[/] {plain(report.refused)}.")
        cli.note("[dim]Apply it anyway: floodmark sync --force[/]")
    elif report.dry_run:
        cli.note(f"[dim]Nothing was changed. Apply it: floodmark sync{' --force' if is_forced else ''}[/]")


def _row(change: JobChange) -> list[object]:
    return [_word(change.action), change.name, change.domain_config_id, _describe(change)]


def _describe(change: JobChange) -> str:
    if change.before is None:
        return f"{change.after['domain']}, {words_of(_when(change.after))}"
    was, now = _flat(change.before), _flat(change.after)
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    differing = [f"{name}: {_value(was.get(name))} -> {_value(now.get(name))}" for name in names]
    return "; ".join(differing) or "unchanged"


def _flat(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with each param as a column of its own."""
    params = columns.get("params") or {}
    others = {name: value for name, value in columns.items() if name != "params"}
    return {**others, **{f"params.{name}": value for name, value in params.items()}}


def _describe_error(error: RowError) -> str:
    return f"{error.error} ({error.hint})" if error.hint else error.error


def _when(columns: Mapping[str, Any]) -> When:
    return convert({name: columns[name] for name in ("schedule_type", "frequency", "time_config")}, When)


def _value(value: Any) -> str:
    return "-" if value is None else short(value if isinstance(value, str) else json_line(value), _WIDTH)


def _word(action: str) -> Text:
    return Text(action, style=_STYLES[action])


def _show_status(cli: CliContext, status: SyncStatus) -> None:
    now = datetime.now(UTC)
    missing = "their jobs are disabled" if status.disable_missing else "their jobs stay as they are"
    rows: list[tuple[str, object]] = [
        ("from", status.url or "none: API_URL is not set"),
        ("every", f"{status.interval_seconds:g} s" if status.url else None),
        ("missing schedules", missing),
        ("jobs", status.jobs),
        *_last(status.last, now),
    ]
    cli.out.print(facts((name, safe(value) if value is not None else None) for name, value in rows))


def _last(last: LastSync | None, now: datetime) -> list[tuple[str, object]]:
    if last is None:
        return [("last", "never")]
    result = "succeeded" if last.ok else "failed"
    counts = f"{last.created} created, {last.updated} updated, {last.skipped} skipped, {last.disabled} disabled"
    return [
        ("last", f"{relative(last.at, now)}, by {last.who}: {result}"),
        ("last success", None if last.ok or last.last_good_at is None else relative(last.last_good_at, now)),
        ("changes", counts if last.ok else None),
        ("error", last.error),
        ("next", last.hint),
        ("errors", "; ".join(f"{error.domain_config_id}: {error.error}" for error in last.errors)),
    ]
