"""The form of `floodmark add cookies`."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.model.accounts import AccountRow
from floodmark.model.spec import JobSpec
from floodmark.sources.form import CheckTools, JobForm, ParamOption

from .browser import BrowserMissing, require_browser
from .params import complete_spec, fit_of

if TYPE_CHECKING:
    from floodmark.model.fleet import Finding
    from floodmark.settings import Settings


def _complete(spec: JobSpec, settings: "Settings") -> JobSpec:
    return complete_spec(spec)


def _find_missing(spec: JobSpec, settings: "Settings", accounts: Sequence[AccountRow]) -> str | None:
    if settings.floodmark_url is not None:
        # The workers of a server run on other machines.
        return None
    try:
        require_browser(settings.floodmark_chromium, os.environ)
    except BrowserMissing as missing:
        return f"It cannot run on this machine yet: {missing.in_full()}"
    return None


async def _check(tools: CheckTools) -> "Sequence[Finding]":
    from .checkup import check_browser  # noqa: PLC0415 - imports SQLAlchemy, which a remote command does not need

    return await check_browser(tools)


FORM = JobForm(
    help="""Scan a domain for cookies in a real browser: before consent, after accepting and after rejecting.

    floodmark add cookies example.com --daily 02:00 --tz Europe/Berlin
    """,
    metavar="DOMAIN",
    target_help="example.com, or example.com:8443.",
    complete=_complete,
    check=_check,
    find_missing=_find_missing,
    fit=fit_of,
    collects="A report of the cookies before consent, after accepting and after rejecting, with evidence.",
    options=(
        ParamOption("allow_deep_scan", "Follow links.", kind=bool, flags="--deep"),
        ParamOption(
            "maxPages", "Maximum number of pages per phase (20).", kind=int, flags="--max-pages", metavar="N", min=1
        ),
        ParamOption(
            "scanDepth",
            "Maximum number of links from the start page, with --deep (2).",
            kind=int,
            flags="--depth",
            metavar="N",
            min=0,
        ),
        ParamOption(
            "customPages",
            "Always visit this page; can be repeated.",
            kind=list[str],
            flags="--custom-page",
            metavar="PATH",
        ),
        ParamOption("accept_selector", "Button that gives consent (default: known banners).", metavar="CSS"),
        ParamOption("reject_selector", "Button that refuses consent (default: known banners).", metavar="CSS"),
        ParamOption(
            "maxRetries",
            "Number of retries of a failed page (2).",
            kind=int,
            flags="--page-retries",
            metavar="N",
            min=0,
        ),
        ParamOption("locale", "Language and region of the visitor (en-US).", metavar="TAG"),
        ParamOption("browser_timezone", "Time zone of the visitor.", flags="--timezone", metavar="ZONE"),
        ParamOption("gpc", "Send Global Privacy Control (Sec-GPC).", kind=bool),
        ParamOption("policy", "Maximum lifetimes of cookies, as TOML; see the docs.", metavar="FILE", is_file=True),
        ParamOption("insecure", "Scan even if the certificate is invalid.", kind=bool),
    ),
)
