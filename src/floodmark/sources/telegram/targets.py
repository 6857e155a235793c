"""The canonical form of a channel, `@name` in lower case or its plain id, and the params of its job.

A basic group has its id with a minus: the ids of groups and channels are different sequences.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every, parse_times
from floodmark.model.job import ScheduleType, When
from floodmark.model.sizes import parse_size
from floodmark.model.spec import JobSpec
from floodmark.rules.streams import default_stream
from floodmark.triggers.parsing import when_of

if TYPE_CHECKING:
    from floodmark.settings import Settings

# Telegram's rule: 4 to 32 letters, digits and single underscores, a letter first, no underscore last.
_NAME = re.compile(r"(?=[a-z0-9_]{4,32}$)[a-z][a-z0-9]*(?:_[a-z0-9]+)*", re.IGNORECASE | re.ASCII)
_LINK = re.compile(
    r"(?:https?://)?(?:www\.)?(?:t|telegram)\.(?:me|dog)/(?P<path>[^?#]*)(?:[?#].*)?", re.IGNORECASE | re.ASCII
)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
# Other tools write the id of a channel with -100 in front.
_MARKED = re.compile(r"-100([0-9]{1,18})", re.ASCII)
# Basic groups have a minus alone.
_GROUP = re.compile(r"-([1-9][0-9]{4,17})", re.ASCII)
# Paths of t.me that are no names.
_RESERVED = {"joinchat", "addstickers", "addemoji", "addtheme", "addlist", "setlanguage", "share", "proxy", "socks"}
_RESERVED |= {"login", "confirmphone", "invoice", "boost", "giftcode", "contact", "bg", "iv", "m"}
_FORMS = "name it as @name, https://t.me/name, or by its number: 1234567890"

DEFAULT_HISTORY = 1000
MOST_POINTS, SHORTEST_POINT, LONGEST_POINT = 20, timedelta(minutes=1), timedelta(days=366)


MEDIA_KINDS = ("photo", "video", "audio", "document", "animation", "sticker")


class MediaRules(Struct, frozen=True, kw_only=True):
    """Which files of posts are downloaded: their kinds, and their largest size in bytes."""

    kinds: frozenset[str]
    max_size: int | None = None


class TelegramParams(Struct, frozen=True, kw_only=True):
    """The params of a job that collects a channel."""

    history: int | None = DEFAULT_HISTORY
    """Number of newest posts that the first run reads; None: all."""
    since: datetime | None = None
    """The first run starts at this time instead."""
    revisit: timedelta | None = None
    """Posts of this last period are read again, to find edits and deletions."""
    revisit_every: timedelta | None = None
    day: date | None = None
    """Only the posts of this UTC day are read."""
    raw: bool = False
    """Posts contain the whole message as Telegram sent it."""
    media: frozenset[str] | None = None
    """The kinds of files that are downloaded."""
    max_size: int | None = None
    """The largest file that is downloaded, in bytes."""
    engagement: tuple[timedelta, ...] | None = None
    """The ages at which views, forwards and reactions are sampled; empty: those of the settings."""
    comments: bool = False
    """The comments in the discussion group are collected too."""
    takeout: bool = False
    """The first run reads the history in a takeout session."""
    preview: bool = False
    """The channel is read through its web preview, without an account."""

    @property
    def media_rules(self) -> MediaRules | None:
        """Return which files are downloaded; None for no files."""
        return None if self.media is None else MediaRules(kinds=self.media, max_size=self.max_size)


NAMES = frozenset(TelegramParams.__struct_fields__)


def normalise_target(text: str) -> str:
    """Return the canonical form of a channel; `InvalidInput` if the text does not name one."""
    given = text.strip()
    link = _LINK.fullmatch(given)
    if link is not None:
        return _parse_path(link["path"], given)
    if marked := _MARKED.fullmatch(given):
        return _parse_number(marked[1], given)
    if _NUMBER.fullmatch(given):
        return _parse_number(given, given)
    if _GROUP.fullmatch(given):
        return given
    if given.startswith(("+", "tg:")):
        raise _invalid(given, "is not a channel, but a person, an invitation or an action")
    return _parse_name(given.removeprefix("@"), given)


def fit_of(text: str) -> float:
    """Return how well a text fits as a channel: nothing else is written as `@name` or as a link to Telegram."""
    given = text.strip()
    if given.startswith(("@", "tg:")) or _LINK.fullmatch(given):
        return 1.0
    return 0.9 if _MARKED.fullmatch(given) or _GROUP.fullmatch(given) else 0.2 if _NUMBER.fullmatch(given) else 0.0


def default_schedule(settings: "Settings") -> When:
    """Return the schedule of a channel that is added without one."""
    every = settings.parser_scheduler_interval_sec
    return when_of(adaptive=True) if settings.job_schedule == "adaptive" else when_of(every=timedelta(seconds=every))


def complete_job(spec: JobSpec, *, default: When) -> JobSpec:
    """Return a new job with its channel in canonical form, and with the schedule `default` if it has none.

    Tenants do not share a watermark: each one collects the channel for itself.
    """
    target = normalise_target(spec.target)
    params, when = parse_params(spec.params), spec.when
    if params.preview:
        require_name(target)
    require_account(target, spec.account)
    # A single day is read once, on request.
    if when.schedule_type is ScheduleType.EVENT and params.day is None:
        when = replace(default, timezone=when.timezone)
    stream = spec.stream
    if stream is None and spec.tenant_id is not None:
        stream = default_stream(spec.source, target, spec.tenant_id)
    return replace(spec, target=target, when=when, stream=stream)


def require_account(target: str, account: str | None) -> None:
    """Refuse a basic group without an account: each account numbers the messages of basic groups by itself."""
    if is_basic_group(target) and account is None:
        raise InvalidInput(
            f"the basic group {target} needs an account: its messages have other numbers for each account",
            hint="name a member: --account NAME",
        )


def require_name(target: str) -> None:
    """Refuse to read a channel by its number through the web preview, whose address contains the name."""
    if not target.startswith("@"):
        raise InvalidInput(
            f"channel {target} has no preview without its name", hint="name it as @name, or leave out --preview"
        )


def is_basic_group(target: str) -> bool:
    """Return whether a target in canonical form is a basic group."""
    return target.startswith("-")


def parse_params(params: Mapping[str, Any]) -> TelegramParams:
    """Return the validated params of a job; unknown names are ignored."""
    history = _parse_history(params.get("history", DEFAULT_HISTORY))
    since = params.get("since")
    if since is not None and "history" in params:
        raise InvalidInput("history and since contradict each other", hint="set only one of them")
    preview = _parse_flag(params, "preview")
    if preview:
        _require_no_account_params(params)
    return TelegramParams(
        history=history,
        preview=preview,
        since=None if since is None else _parse_moment(since),
        revisit=_parse_duration(params, "revisit"),
        revisit_every=_parse_duration(params, "revisit_every"),
        day=None if params.get("day") is None else _parse_day(params["day"]),
        raw=_parse_flag(params, "raw"),
        comments=_parse_flag(params, "comments"),
        takeout=_parse_flag(params, "takeout"),
        media=_parse_media(params.get("media")),
        max_size=_parse_max_size(params),
        engagement=_parse_engagement(params.get("engagement")),
    )


# Params that need an account.
_ACCOUNT_PARAMS = ("revisit", "revisit_every", "media", "max_size", "engagement", "comments", "raw", "takeout")


def _require_no_account_params(params: Mapping[str, Any]) -> None:
    wanted = [name for name in _ACCOUNT_PARAMS if params.get(name) not in (None, False)]
    if wanted:
        raise InvalidInput(
            f"{wanted[0]} needs an account: the web preview does not show it",
            hint=f"leave out preview, or {', '.join(wanted)}",
        )


def _parse_moment(value: Any) -> datetime:
    """Return a time from a date or a date and time; without a time zone it is UTC."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidInput(
            f"since {str(value)[:40]!r} is not a date", hint="write it like 2026-01-31 or 2026-01-31T08:00:00+01:00"
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _parse_path(path: str, given: str) -> str:
    parts = [part for part in path.split("/") if part]
    if parts and parts[0].lower() == "s":
        parts = parts[1:]
    if not parts:
        raise _invalid(given, "names no channel")
    first = parts[0]
    if first.startswith("+") or first.lower() == "joinchat":
        raise InvalidInput(
            f"{given[:80]!r} is an invitation: join with the account first, then add the channel by its number",
            hint="copy a link to one of its posts, as in https://t.me/c/1234567890/1, and add that",
        )
    if first.lower() == "c":
        if len(parts) > 1 and _NUMBER.fullmatch(parts[1]):
            return _parse_number(parts[1], given)
        raise _invalid(given, "names no channel")
    if first.lower() in _RESERVED:
        raise _invalid(given, "is not a channel")
    return _parse_name(first, given)


def _parse_name(name: str, given: str) -> str:
    if not _NAME.fullmatch(name):
        raise _invalid(given, "is not the name of a channel")
    return f"@{name.lower()}"


def _parse_number(digits: str, given: str) -> str:
    number = int(digits)
    if not number:
        raise _invalid(given, "is not the number of a channel")
    return str(number)


def _invalid(given: str, why: str) -> InvalidInput:
    return InvalidInput(f"{given[:80]!r} {why}", hint=_FORMS)


def _parse_history(value: Any) -> int | None:
    if value == "all":
        return None
    digits = str(value)
    if isinstance(value, bool) or not digits.isdecimal() or not 0 < int(digits) <= 100_000_000:
        raise InvalidInput(
            f"history {digits[:40]!r} is not a number of posts", hint="for example --history 1000, or --history all"
        )
    return int(digits)


def _parse_duration(params: Mapping[str, Any], name: str) -> timedelta | None:
    value = params.get(name)
    if value is None:
        return None
    try:
        return parse_every(str(value))
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}", hint=error.hint) from None


def _parse_media(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    given = value if isinstance(value, list) else str(value).split(",")
    kinds = {str(kind).strip().lower() for kind in given} - {""}
    if "all" in kinds:
        return frozenset(MEDIA_KINDS)
    unknown = sorted(kinds.difference(MEDIA_KINDS))
    if unknown or not kinds:
        raise InvalidInput(
            f"media: {unknown[0][:40]!r} is not a kind of file" if unknown else "media: no kind of file is named",
            hint=f"some of {', '.join(MEDIA_KINDS)}; or all",
        )
    return frozenset(kinds)


def _parse_max_size(params: Mapping[str, Any]) -> int | None:
    value = params.get("max_size")
    if value is None:
        return None
    if params.get("media") is None:
        raise InvalidInput("max_size is only for files, but no media are wanted", hint="add --media photo,document")
    try:
        return parse_size(str(value))
    except InvalidInput as error:
        raise InvalidInput(f"max_size: {error}", hint=error.hint) from None


def _parse_engagement(value: Any) -> tuple[timedelta, ...] | None:
    words = str(value).strip().lower()
    if value is None or words == "off":
        return None
    if words == "default":
        return ()
    hint = "for example --engagement 1h,1d,7d; or default, or off"
    try:
        points = parse_times(words)
    except InvalidInput as error:
        raise InvalidInput(f"engagement: {error}", hint=hint) from None
    if len(points) > MOST_POINTS or not SHORTEST_POINT <= points[0] <= points[-1] <= LONGEST_POINT:
        raise InvalidInput(f"engagement: at most {MOST_POINTS} times from 1 minute to 1 year", hint=hint)
    return points


def _parse_flag(params: Mapping[str, Any], name: str) -> bool:
    """Return a param that is yes or no; `floodmark edit --param` passes it as text."""
    value = params.get(name, False)
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = value if isinstance(value, bool) else known.get(str(value).lower())
    if found is None:
        raise InvalidInput(f"{name} {str(value)[:40]!r} is neither true nor false", hint=f"--param {name}=true")
    return found


def _parse_day(value: Any) -> date:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise InvalidInput(f"day {str(value)[:40]!r} is not a day", hint="write it like 2026-01-31") from None
