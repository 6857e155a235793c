"""Decides which problems are worth a message, and when. Pure: a function of the problems and of earlier messages.

Every job or account with a current or earlier problem has a `TroubleRecord`. A dead letter is counted once, in the
record of its job. For accounts and stale jobs the current state is compared with the last reported one. A message is
due when there is something to report, the last report about the job or account is NOTIFY_DEBOUNCE ago, and the oldest
of the reports in the message has waited NOTIFY_GROUP_WAIT for the others.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from floodmark.model.notification_kinds import KINDS, Kind

from .messages import build_message, to_line
from .port import Notification, Status, Subject

# Read again, because a dead letter may be committed a little after its time.
OVERLAP = timedelta(seconds=60)
# After a longer outage only the last day is reported.
LONGEST_LOOK_BACK = timedelta(days=1)
MOST_RECORDS = 1000
_REST = "others"
# A job that was just resumed, or an installation that has just started, is stale until it has run.
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
    """A problem that lasts: a lost account, a stale job."""

    subject: str
    name: str
    text: str


class TroubleSeen(Struct, frozen=True, kw_only=True):
    """The problems in the database. `gone`: known problems that ended without recovery, such as a deleted job.

    `letters` are the new dead letters, the oldest first; `are_all`: there are no more than these.
    """

    at: datetime
    letters: Sequence[Letter] = ()
    are_all: bool = True
    standing: Mapping[Kind, Sequence[Standing]] = {}
    gone: Mapping[Kind, Collection[str]] = {}


class TroubleRecord(Struct, kw_only=True, omit_defaults=True):
    """The reports about one job or account.

    `is_on`: whether the last report was a problem. `since`: since when there is something to report. `count` and
    `until`: the number of dead letters to report, and the time of the newest counted one.
    """

    name: str
    text: str = ""
    is_on: bool = False
    since: datetime | None = None
    told_at: datetime | None = None
    count: int = 0
    until: datetime | None = None


class PendingNotification(Struct, kw_only=True):
    """A message, with the number of attempts for each channel that does not have it yet."""

    message: Notification
    left: dict[str, int]


class NotifierState(Struct, kw_only=True):
    """The stored state, one JSON value. `turn` grows with every change, so that only one of two leaders can write."""

    turn: int = 0
    letters_until: datetime | None = None
    records: dict[Kind, dict[str, TroubleRecord]] = {}
    pending: list[PendingNotification] = []
    resting: dict[str, datetime] = {}


class NotificationPace(Struct, frozen=True, kw_only=True):
    """The minimum times between messages."""

    debounce: timedelta
    group_wait: timedelta


def initial_state(at: datetime) -> NotifierState:
    """Return the state before the first message. Earlier dead letters are not reported; lasting problems are."""
    return NotifierState(letters_until=at)


def find_look_back(state: NotifierState, at: datetime) -> datetime:
    """Return the time after which dead letters are read."""
    since = state.letters_until or at
    return max(since - OVERLAP, at - LONGEST_LOOK_BACK)


def decide(
    state: NotifierState, seen: TroubleSeen, kinds: Sequence[Kind], pace: NotificationPace, *, instance: str
) -> list[Notification]:
    """Return the messages that are due, and record them in `state` as reported."""
    state.records = {kind: state.records.get(kind, {}) for kind in KINDS if kind in kinds}
    if "dead_letter" in kinds:
        _count(state.records["dead_letter"], seen.letters)
    last = seen.letters[-1].at if seen.letters and not seen.are_all else seen.at
    state.letters_until = max(state.letters_until or last, last)
    for kind, records in state.records.items():
        if kind != "dead_letter":
            _compare(records, seen.standing.get(kind, ()), seen.gone.get(kind, ()), seen.at)
    messages = [
        message
        for kind, records in state.records.items()
        for status in _STATUSES
        for message in _report(kind, status, records, pace, at=seen.at, instance=instance)
    ]
    for records in state.records.values():
        _forget(records, pace, seen.at, state.letters_until - OVERLAP)
    return messages


def _count(records: dict[str, TroubleRecord], letters: Sequence[Letter]) -> None:
    for letter in letters:
        key = letter.subject if letter.subject in records or len(records) < MOST_RECORDS else _REST
        record = records.setdefault(key, TroubleRecord(name="other jobs" if key == _REST else letter.name))
        if record.until is not None and letter.at <= record.until:
            continue
        record.until, record.text = letter.at, to_line(letter.error, _LONGEST_TEXT)
        record.count += 1
        record.since = record.since or letter.at


def _compare(
    records: dict[str, TroubleRecord], standing: Sequence[Standing], gone: Collection[str], at: datetime
) -> None:
    for subject in gone:
        records.pop(subject, None)
    now = {each.subject: each for each in standing[:MOST_RECORDS]}
    for subject, each in now.items():
        record = records.setdefault(subject, TroubleRecord(name=each.name))
        record.name, record.text = each.name, to_line(each.text, _LONGEST_TEXT)
    for subject, record in records.items():
        is_news = (subject in now) != record.is_on
        record.since = (record.since or at) if is_news else None


def _report(
    kind: Kind,
    status: Status,
    records: Mapping[str, TroubleRecord],
    pace: NotificationPace,
    *,
    at: datetime,
    instance: str,
) -> list[Notification]:
    """Return the one message about all due reports of this kind, if there are any."""
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
        # A dead letter is an event, not a state: the next one of this job is reported again.
        record.is_on = kind != "dead_letter" and status == "trouble"
    return [build_message(kind, status, subjects, at=at, instance=instance)]


def _forget(records: dict[str, TroubleRecord], pace: NotificationPace, at: datetime, read_until: datetime) -> None:
    """Delete records with nothing to report and no debounce, whose dead letters will not be read again."""
    for subject, record in list(records.items()):
        has_rested = record.told_at is None or at - record.told_at >= pace.debounce
        is_read = record.until is None or record.until < read_until
        if record.since is None and not record.is_on and has_rested and is_read:
            del records[subject]


def add_pending(state: NotifierState, messages: Sequence[Notification], channels: Sequence[str]) -> None:
    """Add messages to send over these channels."""
    state.pending += [PendingNotification(message=message, left=dict.fromkeys(channels, 0)) for message in messages]


def copy_state(state: NotifierState) -> NotifierState:
    """Return a deep copy."""
    return replace(
        state,
        records={kind: {key: replace(one) for key, one in records.items()} for kind, records in state.records.items()},
        pending=[PendingNotification(message=one.message, left=dict(one.left)) for one in state.pending],
        resting=dict(state.resting),
    )
