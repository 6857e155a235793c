"""What is worth a message, and when. Pure: what was seen and what was told before go in, messages come out.

Every job or account that has, or had, trouble has a `TroubleRecord`. A dead letter is counted once, in the record of
its job. Accounts and stale jobs are compared: what is so, and what people were last told. A message is due when
something is untold, its job or account has rested since it was last told of (NOTIFY_DEBOUNCE), and the first of those
that are told together has waited for the others (NOTIFY_GROUP_WAIT).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from floodmark.model.notification_kinds import KINDS, Kind

from .port import Notification, Status, Subject
from .wording import line_of, message_of

# A letter may be committed a little after the time it bears: so far back it is looked for again.
OVERLAP = timedelta(seconds=60)
# Whoever was away for longer is told of the last day only.
LONGEST_LOOK_BACK = timedelta(days=1)
MOST_RECORDS = 1000
_REST = "others"
# A job that was just resumed, or an installation that just came up, is stale until it has run.
_SETTLING: Mapping[Kind, timedelta] = {"stale_source": timedelta(minutes=1)}
_LONGEST_TEXT = 300
_STATUSES: tuple[Status, ...] = ("trouble", "recovered")


class Letter(Struct, frozen=True, kw_only=True):
    """A dead letter. `subject` is the id of its job."""

    subject: str
    name: str
    at: datetime
    error: str


class Standing(Struct, frozen=True, kw_only=True):
    """A trouble that lasts: a lost account, a stale job."""

    subject: str
    name: str
    text: str


class TroubleSeen(Struct, frozen=True, kw_only=True):
    """What the database says. `gone`: troubles that we know of and that are over without having been mended.

    `letters` are those behind `Told.letters_until`, the oldest first; `are_all`: there were no more than these.
    """

    at: datetime
    letters: Sequence[Letter] = ()
    are_all: bool = True
    standing: Mapping[Kind, Sequence[Standing]] = {}
    gone: Mapping[Kind, Sequence[str]] = {}


class TroubleRecord(Struct, kw_only=True, omit_defaults=True):
    """What is known of one job or account.

    `is_on`: whether people were last told that it is in trouble. `since`: since when there is something untold.
    `count` and `until`: dead letters that are untold, and the time of the newest that was counted.
    """

    name: str
    text: str = ""
    is_on: bool = False
    since: datetime | None = None
    told_at: datetime | None = None
    count: int = 0
    until: datetime | None = None


class PendingNotification(Struct, kw_only=True):
    """A message and how often each of the channels that do not have it yet was tried."""

    message: Notification
    left: dict[str, int]


class Told(Struct, kw_only=True):
    """Everything that is remembered, as one JSON value. `turn` grows with every change: of two leaders one writes."""

    turn: int = 0
    letters_until: datetime | None = None
    records: dict[Kind, dict[str, TroubleRecord]] = {}
    pending: list[PendingNotification] = []
    resting: dict[str, datetime] = {}


class NotificationPace(Struct, frozen=True, kw_only=True):
    """How often people are told."""

    debounce: timedelta
    group_wait: timedelta


def begin(at: datetime) -> Told:
    """Nothing was told yet. Letters from before are not news; what lasts is."""
    return Told(letters_until=at)


def looks_from(told: Told, at: datetime) -> datetime:
    """From when on letters are looked at."""
    since = told.letters_until or at
    return max(since - OVERLAP, at - LONGEST_LOOK_BACK)


def decide(
    told: Told, seen: TroubleSeen, kinds: Sequence[Kind], pace: NotificationPace, *, instance: str
) -> list[Notification]:
    """The messages that are due now. `told` is changed: they count as told."""
    told.records = {kind: told.records.get(kind, {}) for kind in KINDS if kind in kinds}
    if "dead_letter" in kinds:
        _count(told.records["dead_letter"], seen.letters)
    last = seen.letters[-1].at if seen.letters and not seen.are_all else seen.at
    told.letters_until = max(told.letters_until or last, last)
    for kind, records in told.records.items():
        if kind != "dead_letter":
            _compare(records, seen.standing.get(kind, ()), seen.gone.get(kind, ()), seen.at)
    messages = [
        message
        for kind, records in told.records.items()
        for status in _STATUSES
        for message in _due(kind, status, records, pace, at=seen.at, instance=instance)
    ]
    for records in told.records.values():
        _forget(records, pace, seen.at, told.letters_until - OVERLAP)
    return messages


def _count(records: dict[str, TroubleRecord], letters: Sequence[Letter]) -> None:
    for letter in letters:
        key = letter.subject if letter.subject in records or len(records) < MOST_RECORDS else _REST
        record = records.setdefault(key, TroubleRecord(name="other jobs" if key == _REST else letter.name))
        if record.until is not None and letter.at <= record.until:
            continue
        record.until, record.text = letter.at, line_of(letter.error, _LONGEST_TEXT)
        record.count += 1
        record.since = record.since or letter.at


def _compare(
    records: dict[str, TroubleRecord], standing: Sequence[Standing], gone: Sequence[str], at: datetime
) -> None:
    for subject in gone:
        records.pop(subject, None)
    now = {each.subject: each for each in standing[:MOST_RECORDS]}
    for subject, each in now.items():
        record = records.setdefault(subject, TroubleRecord(name=each.name))
        record.name, record.text = each.name, line_of(each.text, _LONGEST_TEXT)
    for subject, record in records.items():
        is_untold = (subject in now) != record.is_on
        record.since = (record.since or at) if is_untold else None


def _due(
    kind: Kind,
    status: Status,
    records: Mapping[str, TroubleRecord],
    pace: NotificationPace,
    *,
    at: datetime,
    instance: str,
) -> list[Notification]:
    """The one message about everything of this kind that is ready to be told, if there is any."""
    wait = max(pace.group_wait, _SETTLING.get(kind, timedelta()) if status == "trouble" else timedelta())
    ready = [
        record
        for record in records.values()
        if record.since is not None
        and record.is_on == (status == "recovered")
        and (record.told_at is None or at - record.told_at >= pace.debounce)
    ]
    if not ready or at - min(record.since for record in ready if record.since is not None) < wait:
        return []
    subjects = [Subject(name=r.name, text=r.text if status == "trouble" else "", count=max(1, r.count)) for r in ready]
    for record in ready:
        record.since, record.told_at, record.count = None, at, 0
        # A dead letter is an event and not a state: the next one of this job is trouble again.
        record.is_on = kind != "dead_letter" and status == "trouble"
    return [message_of(kind, status, subjects, at=at, instance=instance)]


def _forget(records: dict[str, TroubleRecord], pace: NotificationPace, at: datetime, behind_us: datetime) -> None:
    """Those of which nothing is untold, that have rested, and whose letters will not be read again."""
    for subject, record in list(records.items()):
        has_rested = record.told_at is None or at - record.told_at >= pace.debounce
        is_read = record.until is None or record.until < behind_us
        if record.since is None and not record.is_on and has_rested and is_read:
            del records[subject]


def written_down(told: Told, messages: Sequence[Notification], channels: Sequence[str]) -> None:
    """Let messages wait for these channels."""
    told.pending += [PendingNotification(message=message, left=dict.fromkeys(channels, 0)) for message in messages]


def copy_of(told: Told) -> Told:
    """One that can be changed while the other stays."""
    return replace(
        told,
        records={kind: {key: replace(one) for key, one in records.items()} for kind, records in told.records.items()},
        pending=[PendingNotification(message=one.message, left=dict(one.left)) for one in told.pending],
        resting=dict(told.resting),
    )
