"""The rules of a site for crawlers: its robots.txt, read as RFC 9309 says. Pure.

Where the RFC leaves a choice, or a file is written badly, the reading that forbids more is taken: a misspelled
`Disallow` counts, an `Allow` has to match exactly as it is written.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

from msgspec import Struct, field

# Longer than this between two pages is no delay but a way of saying no; sites that mean it write Disallow.
LONGEST_DELAY = timedelta(hours=1)
MOST_SITEMAPS = 1000
# Each address is compared with each rule that has a wildcard.
_MANY_WILDCARDS = 2000
# Characters of a line that count: more than any address has.
_LINE = 16_663
FORBIDDEN = "robots.txt does not allow it"
"""The note of a page that we may not read."""

_COMPATIBLE = re.compile(r"compatible;\s*([A-Za-z0-9_\-]+)")
_TOKEN = re.compile(r"[A-Za-z_-]*")
_LINES = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})\s*([smh]?)", re.IGNORECASE | re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE = "".join(map(chr, range(33, 127)))
# The names of lines, with the spellings that are common in the wild.
_NAMES = {
    **dict.fromkeys(("user-agent", "useragent", "user agent"), "agent"),
    **dict.fromkeys(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), "disallow"),
    **dict.fromkeys(("sitemap", "site-map"), "sitemap"),
    "allow": "allow",
    "crawl-delay": "delay",
    "request-rate": "rate",
}


class _Group(Struct):
    """The rules that follow one or more lines with names of crawlers."""

    agents: set[str] = field(default_factory=set)
    rules: list[tuple[bool, str]] = field(default_factory=list)
    delay: float = 0.0


class Robots:
    """The rules of one robots.txt for us. Without a text everything is allowed."""

    def __init__(self, text: str, agent: str) -> None:
        groups, self.sitemaps = _read(text)
        token, is_plain = _token_of(agent)
        ours = [group for group in groups if token in group.agents]
        others = [group for group in groups if "*" in group.agents]
        chosen = [ours or others]
        if ours and not is_plain:
            # A name that robots.txt cannot spell may be meant by neither group: both have to allow.
            chosen = [ours, others]
        self._sides = [_Rules([rule for group in side for rule in group.rules]) for side in chosen]
        self.is_long = any(side.is_long for side in self._sides)
        asked = max((group.delay for side in chosen for group in side), default=0.0)
        self.delay: timedelta = min(timedelta(seconds=min(asked, 1e6)), LONGEST_DELAY)
        """How long to wait between two pages."""
        said = (line.partition("#")[0].strip() for line in text.splitlines())
        self.terms = "\n".join(line for line in said if line and not line.lower().startswith("sitemap"))
        """What is allowed and forbidden, without remarks."""

    def allows(self, url: str) -> bool:
        """Whether we may read this address."""
        path = _path_of(url)
        return all(side.allow(path) for side in self._sides)


class _Rules:
    """Rules of one group: the longest that matches decides, and `Allow` among equals."""

    def __init__(self, rules: list[tuple[bool, str]]) -> None:
        # Most rules are plain beginnings of paths, and are looked up by their length.
        self._plain: dict[str, bool] = {}
        wild: dict[tuple[bool, str], None] = {}
        for is_allowed, pattern in rules:
            for form in _forms(is_allowed, pattern):
                if "*" in form or form.endswith("$"):
                    wild[is_allowed, form] = None
                else:
                    self._plain[form] = self._plain.get(form, False) or is_allowed
        self._lengths = sorted({len(pattern) for pattern in self._plain}, reverse=True)
        # A rule for its length decides, so the first one that matches does.
        self._wild = sorted(wild, key=lambda rule: (-len(rule[1]), not rule[0]))
        self.is_long = len(self._wild) > _MANY_WILDCARDS

    def allow(self, path: str) -> bool:
        spelled = _spelled(path)
        best, is_allowed = self._plain_match(path)
        if spelled != path:
            # Disallow holds for every spelling of an address, Allow for the one that is written.
            longest, is_also_allowed = self._plain_match(spelled)
            if not is_also_allowed and longest >= best:
                best, is_allowed = longest, False
        for may, pattern in self._wild:
            if len(pattern) < best:
                break
            if _matches(pattern, path) or (not may and _matches(pattern, spelled)):
                return is_allowed if len(pattern) == best and is_allowed else may
        return is_allowed

    def _plain_match(self, path: str) -> tuple[int, bool]:
        for length in self._lengths:
            found = self._plain.get(path[:length]) if length <= len(path) else None
            if found is not None:
                return length, found
        return 0, True


def name_of(agent: str) -> str:
    """What robots.txt calls a program: `floodmark` of `floodmark/1.0`, `bot` of `Mozilla/5.0 (compatible; bot/2.1)`."""
    hidden = _COMPATIBLE.search(agent)
    return (hidden[1] if hidden else agent.partition("/")[0]).strip() or "floodmark"


def _token_of(agent: str) -> tuple[str, bool]:
    """The product token of RFC 9309, in small letters, and whether it is all of the name."""
    name = name_of(agent)
    token = _TOKEN.match(name)
    assert token is not None
    return token[0].lower(), token[0] == name


def _read(text: str) -> tuple[list[_Group], list[str]]:
    groups: list[_Group] = []
    sitemaps: list[str] = []
    is_open = False
    for name, value in _fields(text):
        if name == "sitemap":
            if len(sitemaps) < MOST_SITEMAPS and value not in sitemaps:
                sitemaps.append(value)
        elif name == "agent":
            if not is_open:
                groups.append(_Group())
            # Only rules end the list of names: other lines may stand among them.
            is_open = True
            groups[-1].agents.add(_agent(value))
        elif not groups:
            continue
        elif name in {"allow", "disallow"}:
            is_open = False
            if value:
                groups[-1].rules.append((name == "allow", value))
        else:
            groups[-1].delay = max(groups[-1].delay, _delay(name, value))
    return groups, sitemaps


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in _LINES.split(text.removeprefix("\ufeff")):
        said = line[:_LINE].partition("#")[0].strip()
        before, colon, after = said.partition(":")
        if not colon:
            # The colon may be missing where it is clear what is meant.
            words = said.split()
            before, after = (words[0], words[1]) if len(words) == 2 else ("", "")
        name = _NAMES.get(before.strip().lower())
        if name is not None:
            yield name, after.strip()


def _agent(value: str) -> str:
    """The token on a line with a name: `floodmark` of `Floodmark/0.1.0`; what follows it does not count."""
    if value == "*" or value.startswith(("* ", "*\t")):
        return "*"
    token = _TOKEN.match(value)
    return token[0].lower() if token else ""


def _delay(name: str, value: str) -> float:
    if name == "rate":
        rate = _RATE.match(value)
        return int(rate[2]) * _SECONDS[rate[3].lower()] / int(rate[1]) if rate and int(rate[1]) else 0.0
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    # Neither less than nothing nor what is no number.
    return seconds if seconds > 0 else 0.0


def _forms(is_allowed: bool, pattern: str) -> Iterator[str]:
    """The patterns that a rule stands for."""
    if not is_allowed and not pattern.startswith(("/", "*")):
        # A path without its slash, or a whole address.
        pattern = _path_of(pattern) if "://" in pattern else f"/{pattern}"
    said = _escaped(pattern)
    yield said
    if not is_allowed and _spelled(said) != said:
        yield _spelled(said)
    if is_allowed and said.endswith("/index.html"):
        yield f"{said.removesuffix('index.html')}$"


def _matches(pattern: str, path: str) -> bool:
    """Whether a path begins like the pattern: `*` is anything, `$` the end. Linear, however many stars there are."""
    is_whole = pattern.endswith("$")
    first, *rest = (pattern[:-1] if is_whole else pattern).split("*")
    if not path.startswith(first):
        return False
    if not rest:
        return not is_whole or path == first
    at = len(first)
    for part in rest[:-1]:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if is_whole:
        return path.endswith(rest[-1]) and len(path) - len(rest[-1]) >= at
    return path.find(rest[-1], at) >= 0


def _path_of(url: str) -> str:
    """Path and query of an address, as they are written."""
    rest = url.partition("://")[2] or url
    start = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    path = rest[start:].partition("#")[0]
    return _ESCAPE.sub(lambda match: match[0].upper(), path if path.startswith("/") else f"/{path}")


def _escaped(text: str) -> str:
    """A pattern as addresses are written: escapes in capital letters, nothing outside of ASCII."""
    return quote(_ESCAPE.sub(lambda match: match[0].upper(), text), safe=_SAFE, errors="replace")


def _spelled(path: str) -> str:
    """The one spelling of RFC 9309: without escapes where none is needed, with them where one is."""
    return _escaped(_ESCAPE.sub(_plain_letter, path))


def _plain_letter(match: "re.Match[str]") -> str:
    letter = chr(int(match[1], 16))
    return letter if letter in _UNRESERVED else match[0]
