"""Builds messages from problems: one message for many problems, with limits on lines and lengths. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime

from floodmark.model.dead_letters import fingerprint
from floodmark.model.ids import new_id
from floodmark.model.notification_kinds import Kind
from floodmark.security.masking import mask_text

from .port import Notification, Status, Subject

MOST_LINES = 10
MOST_SUBJECTS = 50
LONGEST_LINE = 300
_NAMES_SHOWN = 3
_UNSEEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")

# The title for one subject, the title for several, and the next step.
_WORDS: dict[tuple[Kind, Status], tuple[str, str, str]] = {
    ("dead_letter", "trouble"): ("{} failed permanently", "{} jobs failed permanently", "Look: floodmark dlq"),
    ("account_lost", "trouble"): (
        "account {} was lost",
        "{} accounts were lost",
        "Look: floodmark accounts. What they collect waits until they are added again.",
    ),
    ("account_lost", "recovered"): ("account {} works again", "{} accounts work again", ""),
    ("stale_source", "trouble"): (
        "{} is stale: not read to its end for much longer than usual",
        "{} jobs are stale: not read to their end for much longer than usual",
        "Ask why: floodmark explain JOB",
    ),
    ("stale_source", "recovered"): ("{} is up to date again", "{} jobs are up to date again", ""),
}


def build_message(
    kind: Kind, status: Status, subjects: Sequence[Subject], *, at: datetime, instance: str
) -> Notification:
    """Return one message about all subjects."""
    one, several, advice = _WORDS[kind, status]
    clean = [
        Subject(name=to_line(each.name, 120), text=to_line(each.text, LONGEST_LINE), count=each.count)
        for each in subjects
    ]
    groups, first, is_single = _groups(clean), clean[0], len(clean) == 1
    title = one.format(first.name) if is_single else several.format(f"{len(clean):,}")
    if len(groups) == 1 and first.text:
        title = f"{title}: {first.text}"
        lines = [_names(groups[0])] if not is_single else [f"{first.count:,} times"] if first.count > 1 else []
    else:
        lines = [] if is_single else _limit([_line(group) for group in groups])
    return Notification(
        id=new_id(),
        kind=kind,
        status=status,
        title=to_line(title, LONGEST_LINE),
        lines=tuple(to_line(line, LONGEST_LINE) for line in [*lines, *([advice] if advice else [])]),
        count=len(clean),
        subjects=tuple(clean[:MOST_SUBJECTS]),
        at=at,
        instance=to_line(instance, 120),
    )


def build_test_message(*, at: datetime, instance: str) -> Notification:
    """Return the message of `floodmark notify test`."""
    line = "Nothing is wrong. Somebody typed: floodmark notify test"
    return Notification(
        id=new_id(), kind="test", status="test", title="A test from Floodmark", lines=(line,), at=at, instance=instance
    )


def to_line(text: str, longest: int) -> str:
    """Return foreign text as one line, without secrets and control characters."""
    line = _UNSEEN.sub(" ", mask_text(text[: 4 * longest])).strip()
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _groups(subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Group subjects with the same problem, the largest group first."""
    by_text: dict[str, list[Subject]] = {}
    for subject in subjects:
        by_text.setdefault(fingerprint(subject.text) if subject.text else "", []).append(subject)
    return sorted(by_text.values(), key=lambda group: -len(group))


def _line(group: Sequence[Subject]) -> str:
    names = _names(group)
    if not group[0].text:
        return names
    return f"{names}: {group[0].text}" if len(group) == 1 else f"{len(group):,} × {group[0].text} ({names})"


def _names(group: Sequence[Subject]) -> str:
    shown = [f"{each.name} ({each.count:,} times)" if each.count > 1 else each.name for each in group[:_NAMES_SHOWN]]
    more = len(group) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _limit(lines: list[str]) -> list[str]:
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"… and {more:,} more kinds of trouble"]
