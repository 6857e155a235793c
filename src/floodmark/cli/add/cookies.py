"""`add cookies`: the cookies of a domain."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.job_options import JobOptions
from floodmark.model.spec import JobSpec
from floodmark.operations.declared import AsyncOperations
from floodmark.sources.cookies.browser import BrowserMissing, require_browser
from floodmark.sources.cookies.params import complete_spec

from .add_job import add_job, refuse_second_job

if TYPE_CHECKING:
    from floodmark.settings import Settings


def cookies(
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(metavar="DOMAIN", help="example.com, or example.com:8443.")],
    deep: Annotated[bool, typer.Option("--deep", help="Follow links.")] = False,
    max_pages: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of pages per phase (20).")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Maximum number of links from the start page, with --deep (2)."),
    ] = None,
    custom_page: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Always visit this page; can be repeated.")
    ] = None,
    accept_selector: Annotated[
        str | None, typer.Option(metavar="CSS", help="Button that gives consent (default: known banners).")
    ] = None,
    reject_selector: Annotated[
        str | None, typer.Option(metavar="CSS", help="Button that refuses consent (default: known banners).")
    ] = None,
    page_retries: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Number of retries of a failed page (2).")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Scan even if the certificate is invalid.")] = False,
    job: JobOptions,
) -> None:
    """Scan a domain for cookies in a real browser: before consent, after accepting and after rejecting.

    floodmark add cookies example.com --daily 02:00 --tz Europe/Berlin
    """
    params: dict[str, Any] = {
        "allow_deep_scan": deep or None,
        "maxPages": max_pages,
        "scanDepth": depth,
        "maxRetries": page_retries,
        "customPages": custom_page,
        "accept_selector": accept_selector,
        "reject_selector": reject_selector,
        "insecure": insecure or None,
    }
    add_job(context, "cookies", target, job, params=params, complete=_complete)


async def _complete(operations: AsyncOperations, settings: "Settings", spec: JobSpec) -> tuple[JobSpec, str | None]:
    """Normalise the domain of a job, and return what is missing to scan it."""

    spec = complete_spec(spec)
    await refuse_second_job(operations, spec)
    return spec, None if settings.floodmark_url is not None else _missing_browser(settings)


def _missing_browser(settings: "Settings") -> str | None:
    try:
        require_browser(settings.floodmark_chromium, os.environ)
    except BrowserMissing as missing:
        return f"It cannot run on this machine yet: {missing}. {missing.hint[:1].upper()}{missing.hint[1:]}"
    return None
