"""Checks a watch before it is stored, in whatever way it came in."""

import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from msgspec.structs import asdict, replace

from floodmark.errors import InvalidInput
from floodmark.model.clean_text import clean
from floodmark.model.field import TEN_YEARS
from floodmark.model.watches import KINDS, MOST_NAMES, SOURCE_KINDS, WatchFields
from floodmark.rules.notification_times import DIGESTS, parse_quiet

from .compiled import CompiledWatch

# Patterns without a literal are searched in every text, at some microseconds each.
MOST_SLOW_PATTERNS = 100
_NAME = re.compile(r"\w[\w.-]{0,199}")
_NOT_IN_NAME = re.compile(r"[^\w.]+")
_LONGEST_MADE = 40
_OTHER_NAMES = {"mail": "email", "e-mail": "email"}
_LISTS = ("where", "streams", "sources", "tags", "notify")


def make_name(fields: WatchFields, taken: Collection[str]) -> str:
    """Return a name for a watch without one: its words, or else its kind and first stream."""
    words = fields.query or fields.pattern or " ".join([fields.kind, *fields.streams[:1], *fields.tags[:1]])
    made = _NOT_IN_NAME.sub("-", words.lower()).strip("-.")[:_LONGEST_MADE].strip("-.") or fields.kind
    number = 1
    while (name := made if number == 1 else f"{made}-{number}") in taken:
        number += 1
    return name


def first_name(fields: WatchFields) -> str:
    """Return the beginning of the name that `make_name` makes."""
    return make_name(fields, ())


def check_definition(
    fields: WatchFields, *, channels: Mapping[str, Any] | Collection[str], default_max_age: timedelta
) -> CompiledWatch:
    """Return the watch in its normal form, or raise `InvalidInput`. `channels` are the configured ones."""
    lists: dict[str, Any] = {name: tuple(dict.fromkeys(getattr(fields, name))) for name in _LISTS}
    lists["notify"] = tuple(dict.fromkeys(_OTHER_NAMES.get(name, name) for name in lists["notify"]))
    fields = replace(fields, **lists)
    _check_texts(fields)
    _check_words(fields)
    _check_channels(fields.notify, channels)
    if fields.quiet is not None:
        fields = replace(fields, quiet=str(parse_quiet(fields.quiet)))
    return CompiledWatch(fields, default_max_age=default_max_age)


def _check_texts(fields: WatchFields) -> None:
    if not _NAME.fullmatch(fields.name):
        hint = "use letters, digits and any of - _ . (a letter or digit first, at most 200 characters)"
        raise InvalidInput(f"{fields.name[:80]!r} is not a name of a watch", hint=hint)
    values = asdict(fields)
    for name, value in values.items():
        for text in value if name in _LISTS else [value]:
            if isinstance(text, str) and (text != clean(text) or not text.strip()):
                raise InvalidInput(f"{name} is empty or has characters that cannot be stored", hint="leave them out")
    for name in _LISTS:
        if len(values[name]) > MOST_NAMES:
            raise InvalidInput(f"{name} has more than {MOST_NAMES} entries", hint="use a pattern, or several watches")


def _check_words(fields: WatchFields) -> None:
    if fields.kind not in KINDS:
        raise InvalidInput(f"{fields.kind[:60]!r} is not a kind of watch", hint=f"use one of: {', '.join(KINDS)}")
    if fields.digest is not None and fields.digest not in DIGESTS:
        raise InvalidInput(f"{fields.digest[:60]!r} is not a digest", hint=f"use one of: {', '.join(DIGESTS)}")
    if fields.whole_word and fields.pattern is None:
        raise InvalidInput("whole words need a pattern", hint="words of a query are whole words anyway")
    if fields.kind in SOURCE_KINDS and fields.where:
        raise InvalidInput(f"a watch of the kind {fields.kind} has no fields", hint="leave out the conditions")
    selects = (fields.query, fields.pattern, fields.where, fields.streams, fields.sources, fields.tags)
    if fields.kind == "items" and not any(selects):
        raise InvalidInput(
            "this watch would match every item",
            hint="give it words, a pattern or a condition, or at least a stream: --stream '*'",
        )
    for name, seconds, least in (("cooldown", fields.cooldown_seconds, 0.001), ("max age", fields.max_age_seconds, 0)):
        if seconds is not None and not least <= seconds <= TEN_YEARS:
            raise InvalidInput(f"the {name} is out of range", hint="use at most ten years")


def _check_channels(notify: Collection[str], channels: Collection[str]) -> None:
    configured = f"configured are: {', '.join(sorted(channels))}" if channels else _CONFIGURE
    if not notify:
        raise InvalidInput("a watch needs a channel to notify", hint=f"name one with --notify; {configured}")
    for name in notify:
        if name not in channels:
            close = get_close_matches(name, channels, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InvalidInput(f"the channel {name[:60]!r} is not configured", hint=f"{meant}{configured}")


_CONFIGURE = (
    "none is configured yet: set NOTIFY_SLACK_URL, NOTIFY_DISCORD_URL, NOTIFY_WEBHOOK_URL, NOTIFY_TELEGRAM_BOT_TOKEN "
    "or NOTIFY_EMAIL_TO, see docs/how-to/notifications.md"
)
