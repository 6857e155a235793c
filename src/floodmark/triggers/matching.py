"""Match external triggers: patterns of paths and channels, and the params taken from them.

| in a path | matches |
|---|---|
| `*` | one segment |
| `{name}` | one segment, which becomes the variable `name` |
| `**` | the rest, which may be nothing; only at the end |

Channels have the patterns of Redis: `*`, `?`, `[ab]`, `[a-z]`, `[^a]`, and a backslash before a literal character.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput

# Longer than any path that web servers accept.
LONGEST = 2000

_NAMED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}", re.ASCII)
_PARAM = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_GLOB = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_EXAMPLE = "for example /sources/*/crawl, /sources/{source_id}/crawl or /sources/**"
_SELECTORS = (
    "a value comes from path.1 (the match of the first *), path.NAME (the segment {NAME}), body.FIELD, "
    "body.FIELD.FIELD, or from path, body or channel as a whole"
)
_ROOTS = ("path", "body", "channel")


class PathPattern(Struct, frozen=True):
    """A pattern of paths. Patterns with the same text are equal."""

    text: str
    parts: tuple[str, ...]

    def match(self, path: Sequence[str]) -> dict[str, str] | None:
        """Return the matched segments, numbered from 1 and by name; None if the path does not match."""
        is_open = self.parts[-1:] == ("**",)
        fixed = self.parts[:-1] if is_open else self.parts
        if len(path) < len(fixed) or (len(path) > len(fixed) and not is_open):
            return None
        found: dict[str, str] = {}
        number = 0
        for part, segment in zip(fixed, path, strict=False):
            named = _NAMED.fullmatch(part)
            if part == "*" or named:
                number += 1
                found[str(number)] = segment
                if named:
                    found[named[1]] = segment
            elif part != segment:
                return None
        if is_open:
            found[str(number + 1)] = "/".join(path[len(fixed) :])
        return found


@lru_cache(maxsize=10_000)
def path_pattern(text: str) -> PathPattern:
    """Parse a pattern of paths. `InvalidInput` for one that can never match as intended."""
    if not text.startswith("/") or len(text) > LONGEST or not text.isprintable():
        raise InvalidInput(f"{text[:60]!r} is not a path that begins with /", hint=_EXAMPLE)
    parts = segments(text)
    if not parts:
        raise InvalidInput("a pattern needs at least one segment", hint=_EXAMPLE)
    names = [found[1] for part in parts if (found := _NAMED.fullmatch(part))]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{{{name}}} stands twice in {text[:60]!r}", hint="give each segment its own name")
    for place, part in enumerate(parts):
        _check_part(part, is_last=place == len(parts) - 1)
    return PathPattern("/" + "/".join(parts), parts)


def _check_part(part: str, *, is_last: bool) -> None:
    if part == "**" and not is_last:
        raise InvalidInput("** stands for the rest, so nothing can follow it", hint=_EXAMPLE)
    if part in ("*", "**") or _NAMED.fullmatch(part):
        return
    if any(sign in part for sign in "*{}"):
        raise InvalidInput(f"{part[:60]!r} mixes text and a pattern: one segment is one or the other", hint=_EXAMPLE)


def segments(path: str) -> tuple[str, ...]:
    """Return the segments of a path; empty segments are left out."""
    return tuple(part for part in path.split("/") if part)


def is_glob(channel: str) -> bool:
    """Return whether a channel is a pattern, not the name of one channel."""
    return _GLOB.search(channel) is not None


def channel_matches(pattern: str, channel: str) -> bool:
    """Return whether Redis would deliver a message of `channel` to a subscription of `pattern`."""
    return _compile_glob(pattern).fullmatch(channel) is not None if is_glob(pattern) else pattern == channel


@lru_cache(maxsize=10_000)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    first, *rest = _split_at_stars(pattern)
    if not rest:
        return re.compile(first, re.DOTALL)
    # Between two stars the first match is as good as any other: without backtracking no pattern is slow.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def _split_at_stars(pattern: str) -> list[str]:
    """Return the parts before, between and after the stars, as regular expressions of fixed length."""
    pieces, place = [""], 0
    while place < len(pattern):
        sign = pattern[place]
        if sign == "*":
            pieces.append("")
        elif sign == "?":
            pieces[-1] += "."
        elif sign == "[":
            piece, place = _parse_class(pattern, place + 1)
            pieces[-1] += piece
        else:
            if sign == "\\" and place + 1 < len(pattern):
                place += 1
            pieces[-1] += re.escape(pattern[place])
        place += 1
    return pieces


def _parse_class(pattern: str, place: int) -> tuple[str, int]:
    """Return the character class that begins at `place`, and its end. An unclosed class extends to the end."""
    is_negated = pattern[place : place + 1] == "^"
    place += is_negated
    ranges: list[str] = []
    while place < len(pattern) and pattern[place] != "]":
        if pattern[place] == "\\" and place + 1 < len(pattern):
            place += 1
            ranges.append(re.escape(pattern[place]))
        elif pattern[place + 1 : place + 2] == "-" and place + 2 < len(pattern):
            low, high = sorted((pattern[place], pattern[place + 2]))
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
            place += 2
        else:
            ranges.append(re.escape(pattern[place]))
        place += 1
    if not ranges:
        return "." if is_negated else "(?!)", place
    return f"[{'^' if is_negated else ''}{''.join(ranges)}]", place


# Params


def check_params(params: Mapping[str, str]) -> None:
    """Refuse selectors of params that can never match."""
    for name, selector in params.items():
        if not _PARAM.fullmatch(name):
            raise InvalidInput(f"{name[:60]!r} is not a name for a param", hint="letters, digits and any of _ . -")
        root = selector.partition(".")[0]
        if root not in _ROOTS or not selector.isprintable() or len(selector) > LONGEST:
            raise InvalidInput(f"{selector[:60]!r} is not a valid selector for {name}", hint=_SELECTORS)


def choose_params(params: Mapping[str, str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that their selectors find in the variables `path`, `body` and `channel`."""
    found: dict[str, Any] = {}
    for name, selector in params.items():
        root, *names = selector.split(".")
        value, is_there = _follow(variables.get(root), names)
        if is_there:
            found[name] = value
    return found


def _follow(value: Any, names: Sequence[str]) -> tuple[Any, bool]:
    if isinstance(value, PathVariables):
        value = value.by_name if names else value.path
    for name in names:
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None, False
    return value, value is not None


class PathVariables(Struct, frozen=True):
    """A path, and the segments that the stars and names of a pattern matched in it."""

    path: str
    by_name: Mapping[str, str]

    @property
    def named(self) -> dict[str, str]:
        """The segments with a name."""
        return {name: value for name, value in self.by_name.items() if not name.isdecimal()}
