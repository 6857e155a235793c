"""`add telegram`: the posts of a channel."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from floodmark.cli.job_options import JobOptions
from floodmark.model.spec import JobSpec
from floodmark.operations.declared import AsyncOperations
from floodmark.sources.telegram.targets import complete_job

from .add_job import add_job, refuse_second_job

if TYPE_CHECKING:
    from floodmark.settings import Settings


def telegram(
    context: typer.Context,
    *,
    target: Annotated[
        str, typer.Argument(metavar="CHANNEL", help="@channel, a t.me link, or its number (-- -100... with a minus).")
    ],
    history: Annotated[
        str | None, typer.Option(metavar="N", help="Number of newest posts to read first, or all (1000).")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="DATE", help="Start with the posts of this day.")] = None,
    revisit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Read posts younger than this again, to find edits and deletions."),
    ] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Account to read with (default: any).")] = None,
    job: JobOptions,
) -> None:
    """Collect the posts of a Telegram channel; every 5 minutes if no schedule is given.

    floodmark add telegram @channel --every 10m
    """
    params = {"history": history, "since": since, "revisit": revisit}
    add_job(context, "telegram", target, job, params=params, account=account, complete=_complete)


async def _complete(operations: AsyncOperations, settings: "Settings", spec: JobSpec) -> tuple[JobSpec, str | None]:
    """Normalise the channel of a job, and return what is missing to read it."""

    rows = {row.name: row async for row in operations.each_account()}
    named = rows.get(spec.account or "")
    if named is not None and spec.tenant_id is None:
        spec = replace(spec, tenant_id=named.tenant_id)
    spec = complete_job(spec, every=timedelta(seconds=settings.parser_scheduler_interval_sec))
    await refuse_second_job(operations, spec)
    return spec, _missing_account(spec.account, named is not None, any(row.state == "active" for row in rows.values()))


def _missing_account(name: str | None, is_known: bool, is_any: bool) -> str | None:
    if name is not None and not is_known:
        return f"There is no account {name} yet. Add it: floodmark accounts add {name} --phone +..."
    if name is None and not is_any:
        return "No Telegram account is set up yet. Add one: floodmark accounts add NAME --phone +..."
    return None
