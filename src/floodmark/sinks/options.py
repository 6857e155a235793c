"""The options of one sink that SINKS names: `SINK_ARCHIVE_URL` is `url` of the sink `archive`."""

from collections.abc import Mapping

from floodmark.errors import InvalidInput

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def option_key(sink: str, option: str) -> str:
    """Return the key of an option: `SINK_ARCHIVE_URL`."""
    return f"SINK_{sink}_{option}".replace("-", "_").upper()


def missing_option(sink: str, option: str, example: str) -> InvalidInput:
    """Return the error for an option that is not set."""
    key = option_key(sink, option)
    return InvalidInput(f"{key} is not set: the sink {sink} needs it", hint=f"set {key}={example}")


class SinkOptions:
    """Reads options and checks them. Values are never shown: any of them may be a secret."""

    def __init__(self, sink: str, section: Mapping[str, str]) -> None:
        self._sink, self._known = sink, list[str]()
        self._left = {name: text for name, text in section.items() if text}

    def text(self, option: str) -> str | None:
        """Return an option, None if it is not set."""
        self._known.append(option)
        return self._left.pop(option, None)

    def require(self, option: str, example: str) -> str:
        """Return an option that has to be set."""
        found = self.text(option)
        if found is None:
            raise missing_option(self._sink, option, example)
        return found

    def count(self, option: str, default: int, most: int = 1_000_000_000) -> int:
        """Return a whole number from 1 to `most`."""
        found = self.text(option)
        if found is None:
            return default
        if not (found.isascii() and found.isdigit() and 1 <= int(found[:12]) <= most):
            raise self.wrong(option, f"a whole number from 1 to {most:,}")
        return int(found)

    def flag(self, option: str, *, default: bool = False) -> bool:
        """Return true or false."""
        found = (self.text(option) or str(default)).lower()
        if found not in (*_TRUE, *_FALSE):
            raise self.wrong(option, "true or false")
        return found in _TRUE

    def choice(self, option: str, default: str, *others: str) -> str:
        """Return one of several words."""
        found = (self.text(option) or default).lower()
        if found not in (default, *others):
            raise self.wrong(option, f"one of {', '.join((default, *others))}")
        return found

    def finish(self) -> None:
        """Refuse options that this kind of sink does not have."""
        for option in self._left:
            known = ", ".join(option_key(self._sink, name) for name in sorted(self._known))
            raise InvalidInput(
                f"{option_key(self._sink, option)} is set, but the sink {self._sink} has no such option",
                hint=f"use {known}",
            )

    def wrong(self, option: str, what: str) -> InvalidInput:
        """Return the error for a value that is not `what`."""
        return InvalidInput(f"{option_key(self._sink, option)} is not {what}", hint="correct it")
