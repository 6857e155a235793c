"""Typed values of fields, from texts as people write them. Pure; each takes time in proportion to its text."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from floodmark.sources.web.extract import parse_time
from floodmark.sources.web.urls import join_address

LONGEST_TEXT, LONGEST_HTML = 10_000, 50_000
# Longer texts are no numbers and no times.
_SHORT = 200
_MOST_TEXTS = 1000
_NUMBER = re.compile(r"[-−–]?\s?[.,]?\d[\d.,\s'’]*")
_GROUPED = re.compile(r"[\s'’](?=\d{3}(?!\d))")
_THOUSANDS = re.compile(r"\d{1,3}(?:[.,]\d{3}){2,}")
_DAY = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})(?:,?\s+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")


def convert(text: str, kind: str, base: str) -> Any:
    """Return the value of a field; None if the text is no such value. `base` is the URL of the page."""
    text = text.strip()
    if kind == "html":
        return text[:LONGEST_HTML] or None
    if kind == "url":
        return join_address(base, text)[:LONGEST_TEXT] if text else None
    line = " ".join(text[: 2 * LONGEST_TEXT].split())
    if kind == "number":
        return parse_number(line)
    if kind == "int":
        number = parse_number(line)
        return int(number) if number is not None and number == int(number) else None
    if kind == "time":
        found = parse_moment(line)
        return None if found is None else found.isoformat()
    return line[:LONGEST_TEXT] or None


def convert_all(texts: list[str]) -> list[str] | None:
    """Return the value of a field that is a list of texts."""
    found = [line for text in texts[:_MOST_TEXTS] if (line := " ".join(text[:LONGEST_TEXT].split()))]
    return found or None


def parse_number(text: str) -> float | None:
    """Return the first number of a text: `1,299.50 $`, `1.299,50 €`, `1 299,5`, `-3 %`.

    A single comma before three digits separates thousands, a single point does not.
    """
    found = _NUMBER.search(text[:_SHORT])
    if found is None:
        return None
    is_negative = found[0][0] in "-−–"
    digits = _GROUPED.sub("", found[0].lstrip("-−– ")).split()[0].rstrip(".,'’")
    try:
        number = float(_with_point(digits))
    except ValueError:
        # More than one number, such as a version: 1.2.3.
        return None
    return -number if is_negative and number else number


def _with_point(digits: str) -> str:
    """Return digits with a decimal point and without marks between thousands."""
    comma, point = digits.rfind(","), digits.rfind(".")
    if comma >= 0 and point >= 0:
        mark, other = (",", ".") if comma > point else (".", ",")
        digits = digits.replace(other, "")
        return digits.replace(mark, ".")
    mark = "," if comma >= 0 else "."
    if _THOUSANDS.fullmatch(digits):
        return digits.replace(mark, "")
    if mark == "," and 1 <= comma <= 3 and len(digits) - comma == 4:
        return digits.replace(",", "")
    return digits.replace(",", ".")


def parse_moment(text: str) -> datetime | None:
    """Return a time in UTC: ISO 8601, as in mails, or `31.12.2026 18:00`; without a zone it is UTC."""
    text = text.strip()[:_SHORT]
    if (found := parse_time(text)) is not None:
        return found
    try:
        if day := _DAY.fullmatch(text):
            number, month, year, hour, minute, second = (int(part or 0) for part in day.groups())
            return datetime(year, month, number, hour, minute, second, tzinfo=UTC)
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).astimezone(UTC)
