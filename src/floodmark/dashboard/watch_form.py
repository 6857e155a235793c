"""The form of a watch: its fields as texts, and back. Pure."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.watches import WatchFields
from floodmark.rules.notification_times import parse_threshold

from .field_texts import duration_text
from .refusals import PageRefusals

_TEXTS = ("name", "kind", "query", "pattern", "digest", "quiet", "timezone")
_LINES = ("where", "streams")
_WORDS = ("sources", "tags")
# Fields of the form with another form than in a watch.
_TIMES = {"cooldown": "cooldown_seconds", "max_age": "max_age_seconds"}
FIELDS = (*_TEXTS, *_LINES, *_WORDS, "threshold", *_TIMES, "whole_word")


class WatchForm:
    """What was typed, and what of it was refused. `notify` are the chosen channels."""

    def __init__(self, texts: Mapping[str, str], notify: tuple[str, ...]) -> None:
        self.texts = {**dict.fromkeys(FIELDS, ""), **texts}
        self.notify, self.refusals = notify, PageRefusals()

    @classmethod
    def of(cls, fields: WatchFields) -> "WatchForm":
        """Return the form that shows a watch."""
        texts = {name: str(getattr(fields, name) or "") for name in _TEXTS}
        texts |= {name: "\n".join(getattr(fields, name)) for name in _LINES}
        texts |= {name: ", ".join(getattr(fields, name)) for name in _WORDS}
        texts |= {name: _time_text(getattr(fields, column)) for name, column in _TIMES.items()}
        if fields.threshold_count is not None and fields.threshold_seconds is not None:
            texts["threshold"] = f"{fields.threshold_count} in {_time_text(fields.threshold_seconds)}"
        return cls({**texts, "whole_word": "true" if fields.whole_word else ""}, fields.notify)

    @classmethod
    def typed(cls, given: Mapping[str, list[str]]) -> "WatchForm":
        """Return the form with what was typed."""
        texts = {name: given.get(name, [""])[0] for name in FIELDS}
        return cls(texts, tuple(dict.fromkeys(filter(None, given.get("notify", ())))))

    def read(self) -> WatchFields | None:
        """Return the watch; None if something cannot be read, which is noted in `refusals`."""
        texts = {name: text.strip() for name, text in self.texts.items()}
        values: dict[str, Any] = {name: texts[name] or None for name in _TEXTS}
        values |= {"name": texts["name"], "kind": texts["kind"] or "items", "timezone": texts["timezone"] or "UTC"}
        values |= {name: _split(texts[name]) for name in _LINES}
        values |= {name: _split(texts[name].replace(",", "\n")) for name in _WORDS}
        values |= {"notify": self.notify, "whole_word": bool(texts["whole_word"])}
        values |= {column: self._read(name, texts[name], _seconds) for name, column in _TIMES.items()}
        threshold = self._read("threshold", texts["threshold"], parse_threshold)
        if threshold is not None:
            values |= {"threshold_count": threshold.count, "threshold_seconds": threshold.within.total_seconds()}
        return None if self.refusals else self._check(WatchFields(**values))

    def _check(self, fields: WatchFields) -> WatchFields | None:
        """Return the watch if its values are within the bounds of the API."""
        try:
            return msgspec.convert(msgspec.to_builtins(fields), WatchFields)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$.")
            column = place.partition("`")[0].partition("[")[0]
            name = next((name for name, known in _TIMES.items() if known == column), column)
            problem = InvalidInput(f"{name}: {message[:1].lower()}{message[1:]}", hint="correct it, and send it again")
            self.refusals.add(name if name in FIELDS else "", problem)
            return None

    def _read(self, name: str, text: str, parse: Callable[[str], Any]) -> Any:
        if not text:
            return None
        try:
            return parse(text)
        except InvalidInput as error:
            self.refusals.add(name, error)
            return None


def _split(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return parse_every(text).total_seconds()


def _time_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return duration_text(timedelta(seconds=seconds)) if seconds else "0"
