"""List the audit log."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from floodmark.model.audit import AuditRow
from floodmark.model.page import cursor_of, take

from .output import json_line, plain, print_json, safe, short, table
from .root import AsJson, CliContext
from .times import relative


def audit(
    context: typer.Context,
    *,
    what: Annotated[
        str | None, typer.Option("--object", metavar="KIND:NAME", help="Only changes of this object, as in job:news.")
    ] = None,
    before: Annotated[int | None, typer.Option(metavar="NUMBER", help="Start after this entry.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the changes in the audit log, newest first: by command, API or sync."""
    cli = CliContext.of(context)
    found = cli.work(
        lambda operations: take(operations.each_audit_row(what=what, cursor=cursor_of("audit", before)), limit)
    )
    now = datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        where = "" if what is None else f" of {plain(what)}"
        cli.out.print(f"No changes{where}{'' if before is None else f' before {before}'}.")
        return None if what is None else cli.note("[dim]Objects are named as in: job:news, token:ci, workers[/]")
    rows = [_row(row, now) for row in found]
    cli.out.print(table("nr", "when", "who", "via", "what", "of", "before -> after", rows=rows, right=("nr",)))
    if len(found) == limit:
        of = "" if what is None else f" --object {plain(what)}"
        cli.note(f"[dim]More: floodmark audit{of} --before {found[-1].seq}[/]")
    return None


def _row(row: AuditRow, now: datetime) -> list[object]:
    return [
        row.seq,
        relative(row.at, now),
        Text(safe(row.who), style="bold"),
        row.via,
        row.action,
        row.object,
        short(_describe_change(row.before, row.after), 100),
    ]


def _describe_change(before: Any, after: Any) -> str:
    if before is None or after is None:
        shown = before if after is None else after
        return "" if shown is None else f"{'' if before is None else 'was '}{json_line(shown)}"
    return f"{json_line(before)} -> {json_line(after)}"
