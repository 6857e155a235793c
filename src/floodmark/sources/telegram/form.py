"""The form of `floodmark add telegram`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from floodmark.model.accounts import AccountRow, JoinedChannel
from floodmark.model.spec import JobSpec
from floodmark.sources.form import CheckTools, FoundTarget, JobForm, ParamOption, TargetListing

from .targets import complete_job, default_schedule, fit_of, parse_params

if TYPE_CHECKING:
    from floodmark.model.fleet import Finding
    from floodmark.settings import Settings


def _complete(spec: JobSpec, settings: "Settings") -> JobSpec:
    return complete_job(spec, default=default_schedule(settings))


def _find_missing(spec: JobSpec, settings: "Settings", accounts: Sequence[AccountRow]) -> str | None:
    if parse_params(spec.params).preview:
        return None
    name = spec.account
    if name is not None and all(account.name != name for account in accounts):
        return f"There is no account {name} yet. Add it: floodmark accounts add {name} --phone +..."
    if name is None and all(account.state != "active" for account in accounts):
        return "No Telegram account is set up yet. Add one: floodmark accounts add NAME --phone +..."
    if spec.params.get("media") is not None and settings.artifacts_dir is None:
        return "Files are downloaded once there is a folder for them. Set it: ARTIFACTS_DIR"
    return None


async def _find_joined(operations: Any, account: str) -> Sequence[FoundTarget]:
    """Return the channels that an account has joined. Their jobs use this account, which knows them."""
    joined: Sequence[JoinedChannel] = await operations.joined_channels(account)
    return [
        FoundTarget(
            target=f"@{channel.username}" if channel.username else str(channel.channel_id),
            title=channel.title,
            columns={"account": account},
            is_extra=channel.is_group,
        )
        for channel in joined
    ]


async def _check(tools: CheckTools) -> "Sequence[Finding]":
    from .checkup import check_accounts  # noqa: PLC0415 - imports SQLAlchemy, which a remote command does not need

    return await check_accounts(tools)


FORM = JobForm(
    help="""Collect the posts of a Telegram channel; every 5 minutes if no schedule is given (see JOB_SCHEDULE).

    floodmark add telegram @channel --every 10m
    """,
    metavar="CHANNEL",
    target_help="@channel, a t.me link, or its number (-- -100... with a minus).",
    uses_account=True,
    complete=_complete,
    check=_check,
    catches_up=lambda settings: timedelta(hours=settings.lpa_max_age_hours),
    find_missing=_find_missing,
    listing=TargetListing(
        flags="--dialogs",
        metavar="ACCOUNT",
        help="Add the channels that this account has joined.",
        extra="--groups",
        extra_help="With --dialogs: also groups.",
        find=_find_joined,
    ),
    fit=fit_of,
    collects="The newest 1000 posts at first, then every new post; edits and deletions with the option revisit.",
    options=(
        ParamOption("history", "Number of newest posts to read first, or all (1000).", metavar="N"),
        ParamOption("since", "Start with the posts of this day.", metavar="DATE"),
        ParamOption("revisit", "Read posts younger than this again, to find edits and deletions.", metavar="TIME"),
        ParamOption(
            "media",
            "Download files: photo, video, audio, document, animation or sticker, separated by commas; or all.",
            metavar="KINDS",
        ),
        ParamOption("max_size", "Download no larger files, as in 20MB.", metavar="SIZE"),
        ParamOption(
            "engagement",
            "Sample views, forwards and reactions at these ages, as in 1h,1d,7d; or default (TELEGRAM_ENGAGEMENT).",
            metavar="TIMES",
        ),
        ParamOption("comments", "Also collect the comments in its discussion group.", kind=bool),
        ParamOption("preview", "Read the public web preview of the channel, without an account.", kind=bool),
        ParamOption("takeout", "Read the first, long history in a takeout session of the account.", kind=bool),
        ParamOption("raw", "Also store each message as Telegram sent it.", kind=bool),
    ),
)
