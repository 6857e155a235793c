"""What is worth a message, and when: decided without a clock or a database."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from floodmark.model.notification_kinds import KINDS, Kind, addresses_of, kinds_of, smtp_server
from floodmark.notifications.decisions import (
    MOST_RECORDS,
    OVERLAP,
    Letter,
    NotificationPace,
    NotifierState,
    Standing,
    TroubleSeen,
    decide,
    find_look_back,
    initial_state,
)
from floodmark.notifications.email import build_email
from floodmark.notifications.messages import LONGEST_LINE, MOST_LINES, MOST_SUBJECTS, build_message
from floodmark.notifications.port import Notification, Subject
from floodmark.notifications.slack import format_text

pytestmark = pytest.mark.spec("T16")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
PACE = NotificationPace(debounce=5 * MINUTE, group_wait=10 * SECOND)


class Desk:
    """Someone who is told. What is remembered goes through JSON each time, as it does in the database."""

    def __init__(self, pace: NotificationPace = PACE, kinds: Sequence[Kind] = KINDS) -> None:
        self.pace, self.kinds = pace, kinds
        self.told = initial_state(NOON)

    def look(
        self,
        at: datetime,
        *letters: Letter,
        stale: Sequence[str] = (),
        lost: Sequence[str] = (),
        gone: Sequence[str] = (),
    ) -> list[str]:
        """The titles of what is told at this moment."""
        seen = TroubleSeen(
            at=at,
            letters=letters,
            standing={
                "stale_source": [Standing(subject=name, name=name, text="") for name in stale],
                "account_lost": [Standing(subject=name, name=name, text="revoked") for name in lost],
            },
            gone={"stale_source": gone},
        )
        messages = decide(self.told, seen, self.kinds, self.pace, instance="box")
        self.told = msgspec.json.decode(msgspec.json.encode(self.told), type=NotifierState)
        return [f"{message.title} | {'; '.join(message.lines)}" for message in messages]

    @property
    def records(self) -> int:
        return sum(len(records) for records in self.told.records.values())


def a_letter(name: str, at: datetime, error: str = "TimeoutError: took 3 s") -> Letter:
    return Letter(subject=f"id of {name}", name=name, at=at, error=error)


def test_letters_wait_for_each_other_and_are_told_together() -> None:
    desk = Desk()
    letters = [a_letter(f"job{n}", NOON + n * SECOND, f"TimeoutError: took {n} s") for n in range(1, 8)]
    assert desk.look(NOON + 8 * SECOND, *letters) == []
    assert desk.look(NOON + 11 * SECOND, *letters) == [
        "7 jobs failed permanently: TimeoutError: took 1 s | job1, job2, job3 and 4 more; Look: floodmark dlq"
    ]
    assert desk.look(NOON + 12 * SECOND, *letters) == []


def test_a_job_that_keeps_failing_rests_and_is_then_counted() -> None:
    desk = Desk()
    first = a_letter("news", NOON + SECOND)
    assert len(desk.look(NOON + 11 * SECOND, first)) == 1
    again = [a_letter("news", NOON + n * MINUTE) for n in (1, 2, 3)]
    for n, letter in enumerate(again, 1):
        assert desk.look(NOON + n * MINUTE, *again[: n - 1], letter) == []
    [told] = desk.look(NOON + 6 * MINUTE, *again)
    assert told == "news failed permanently: TimeoutError: took 3 s | 3 times; Look: floodmark dlq"
    # And when it is quiet, nothing is remembered of it.
    assert desk.look(NOON + 20 * MINUTE) == []
    assert desk.records == 0


def test_different_errors_are_told_apart_in_one_message() -> None:
    desk = Desk(NotificationPace(debounce=timedelta(), group_wait=timedelta()))
    letters = [a_letter("a", NOON + SECOND, "refused"), a_letter("b", NOON + SECOND), a_letter("c", NOON + SECOND)]
    assert desk.look(NOON + SECOND, *letters) == [
        "3 jobs failed permanently | 2 × TimeoutError: took 3 s (b, c); a: refused; Look: floodmark dlq"
    ]


def test_a_letter_that_is_committed_late_is_still_found() -> None:
    """Its time is that of its transaction, which another one may have overtaken."""
    told = NotifierState(letters_until=NOON)
    assert find_look_back(told, NOON + SECOND) == NOON - OVERLAP
    assert find_look_back(told, NOON + timedelta(days=30)) == NOON + timedelta(days=29), "a month later, the last day"


def test_a_storm_of_letters_is_remembered_within_bounds() -> None:
    desk = Desk()
    letters = [a_letter(f"job{n}", NOON + SECOND) for n in range(MOST_RECORDS + 500)]
    [told] = desk.look(NOON + MINUTE, *letters)
    assert told.startswith("1,001 jobs failed permanently: TimeoutError")
    assert desk.records == MOST_RECORDS + 1


def test_a_stale_job_is_told_once_and_again_when_it_has_recovered() -> None:
    desk = Desk()
    assert desk.look(NOON, stale=["news"]) == []
    assert desk.look(NOON + 30 * SECOND, stale=["news"]) == [], "it may just have been resumed"
    [told] = desk.look(NOON + MINUTE, stale=["news"])
    assert told.startswith("news is stale")
    assert desk.look(NOON + 60 * MINUTE, stale=["news"]) == []
    assert desk.look(NOON + 61 * MINUTE) == []
    assert desk.look(NOON + 62 * MINUTE) == ["news is up to date again | "]
    assert desk.look(NOON + 70 * MINUTE) == []
    assert desk.records == 0


def test_a_job_that_flaps_is_not_told_each_time() -> None:
    desk = Desk()
    desk.look(NOON, stale=["news"])
    assert len(desk.look(NOON + MINUTE, stale=["news"])) == 1
    for n in range(8):
        assert desk.look(NOON + (61 + 10 * n) * SECOND, stale=["news"] if n % 2 else []) == []
    assert desk.look(NOON + 10 * MINUTE, stale=["news"]) == [], "it is as they were told"


def test_a_job_that_was_paused_has_not_recovered() -> None:
    desk = Desk()
    desk.look(NOON, stale=["news", "tides"])
    assert len(desk.look(NOON + MINUTE, stale=["news", "tides"])) == 1
    assert desk.look(NOON + 7 * MINUTE, stale=["tides"], gone=["news"]) == []
    assert desk.records == 1


def test_a_lost_account_is_told_with_its_reason_and_only_if_wanted() -> None:
    desk = Desk()
    desk.look(NOON, lost=["reader1"])
    [told] = desk.look(NOON + 10 * SECOND, lost=["reader1"])
    assert told.startswith("account reader1 was lost: revoked | Look: floodmark accounts.")
    desk.look(NOON + 6 * MINUTE)
    assert desk.look(NOON + 7 * MINUTE) == ["account reader1 works again | "]
    quiet = Desk(kinds=["dead_letter"])
    quiet.look(NOON, lost=["reader1"])
    assert quiet.look(NOON + 10 * SECOND, lost=["reader1"]) == []


def a_message(subjects: Sequence[Subject]) -> Notification:
    return build_message("dead_letter", "trouble", subjects, at=NOON, instance="box")


def test_a_message_is_bounded_and_holds_no_secret_and_no_orders() -> None:
    nasty = "boom\r\nBcc: all@example.com \x1b[31m <!channel> @here password=hunter2 postgresql://u:hunter2@db/x "
    message = a_message([Subject(name=f"job{n}\r\n*x*", text=f"{'x' * n} {nasty * 20}") for n in range(200)])
    assert (message.count, len(message.subjects), len(message.lines)) == (200, MOST_SUBJECTS, MOST_LINES + 2)
    assert all(len(line) <= LONGEST_LINE for line in (message.title, *message.lines))
    slack, letter = format_text(message), build_email(message, to=["ada@example.com"], sender="floodmark@box")
    assert len(slack) <= 3500
    assert slack.endswith(f"_floodmark on box, message {message.id[-8:]}_")
    everything = slack + letter.as_string() + msgspec.json.encode(message).decode()
    assert "hunter2" not in everything
    assert "<!channel>" not in slack
    assert "@here" not in slack
    assert "\x1b" not in everything
    assert letter["Bcc"] is None
    one = build_email(a_message([Subject(name="x\nBcc: y@z", text=nasty)]), to=["ada@example.com"], sender="f@box")
    assert one["Bcc"] is None
    assert one["Message-ID"].endswith("@floodmark>")


def test_settings_of_notifications_are_read_or_refused() -> None:
    assert kinds_of("stale_source, Dead_Letter") == ("dead_letter", "stale_source")
    assert kinds_of(" None ") == ()
    assert addresses_of("ada@example.com,  ops@x") == ("ada@example.com", "ops@x")
    assert smtp_server("smtp://u:p%40ss@mail.example.com:25") == ("mail.example.com", 25)
    for read, text in (
        (kinds_of, "dead"),
        (addresses_of, "ada"),
        (addresses_of, "a@b\nBcc: c@d"),
        (addresses_of, ","),
        (smtp_server, "smtp://"),
        (smtp_server, "smtp://mail:port"),
        (smtp_server, "smtp://mail/path"),
    ):
        with pytest.raises(ValueError, match=r"."):
            read(text)
