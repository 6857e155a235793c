"""Parses robots.txt as in RFC 9309. Pure.

Where the RFC leaves a choice, or a file has errors, the stricter reading applies: a misspelled `Disallow` counts, an
`Allow` must match exactly as written.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

from msgspec import Struct, field

# A longer delay would forbid crawling in effect; sites that mean that write Disallow.
LONGEST_DELAY = timedelta(hours=1)
MOST_SITEMAPS = 1000
# Each URL is compared with every wildcard rule.
_MANY_WILDCARDS = 2000
# Characters read of a line: more than any URL has.
_LINE = 16_663
FORBIDDEN = "robots.txt does not allow it"
"""The note of a page that robots.txt disallows."""

_COMPATIBLE = re.compile(r"compatible;\s*([A-Za-z0-9_\-]+)")
_TOKEN = re.compile(r"[A-Za-z_-]*")
_LINES = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})\s*([smh]?)", re.IGNORECASE | re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE = "".join(map(chr, range(33, 127)))
# Field names, with common misspellings.
_NAMES = {
    **dict.fromkeys(("user-agent", "useragent", "user agent"), "agent"),
    **dict.fromkeys(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), "disallow"),
    **dict.fromkeys(("sitemap", "site-map"), "sitemap"),
    "allow": "allow",
    "crawl-delay": "delay",
    "request-rate": "rate",
}


class _Group(Struct):
    """The rules after one or more User-agent lines."""

    agents: set[str] = field(default_factory=set)
    rules: list[tuple[bool, str]] = field(default_factory=list)
    delay: float = 0.0


class Robots:
    """The rules of one robots.txt for one user agent. An empty text allows everything."""

    def __init__(self, text: str, agent: str) -> None:
        groups, self.sitemaps = _parse(text)
        token, is_plain = _product_token(agent)
        ours = [group for group in groups if token in group.agents]
        others = [group for group in groups if "*" in group.agents]
        chosen = [ours or others]
        if ours and not is_plain:
            # robots.txt cannot express the whole name, so either group may be meant: both must allow.
            chosen = [ours, others]
        self._sides = [_Rules([rule for group in side for rule in group.rules]) for side in chosen]
        self.is_long = any(side.is_long for side in self._sides)
        longest = max((group.delay for side in chosen for group in side), default=0.0)
        self.delay: timedelta = min(timedelta(seconds=min(longest, 1e6)), LONGEST_DELAY)
        """The delay between two pages."""
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        self.terms = "\n".join(line for line in lines if line and not line.lower().startswith("sitemap"))
        """The text without comments and sitemaps; it changes with the rules."""

    def allows(self, url: str) -> bool:
        """Return whether the URL may be fetched."""
        path = _path_of(url)
        return all(side.allows(path) for side in self._sides)


class _Rules:
    """The rules of one group: the longest match decides, and `Allow` among equal lengths."""

    def __init__(self, rules: list[tuple[bool, str]]) -> None:
        # Most rules are plain prefixes, which are looked up by length.
        self._plain: dict[str, bool] = {}
        wild: dict[tuple[bool, str], None] = {}
        for is_allowed, pattern in rules:
            for form in _expand_rule(is_allowed, pattern):
                if "*" in form or form.endswith("$"):
                    wild[is_allowed, form] = None
                else:
                    self._plain[form] = self._plain.get(form, False) or is_allowed
        self._lengths = sorted({len(pattern) for pattern in self._plain}, reverse=True)
        # Longest first: the first match decides.
        self._wild = sorted(wild, key=lambda rule: (-len(rule[1]), not rule[0]))
        self.is_long = len(self._wild) > _MANY_WILDCARDS

    def allows(self, path: str) -> bool:
        normalized = _normalize(path)
        best, is_allowed = self._match_plain(path)
        if normalized != path:
            # Disallow applies to every encoding of a URL, Allow only to the one written.
            longest, is_also_allowed = self._match_plain(normalized)
            if not is_also_allowed and longest >= best:
                best, is_allowed = longest, False
        for may, pattern in self._wild:
            if len(pattern) < best:
                break
            if _matches(pattern, path) or (not may and _matches(pattern, normalized)):
                return is_allowed if len(pattern) == best and is_allowed else may
        return is_allowed

    def _match_plain(self, path: str) -> tuple[int, bool]:
        for length in self._lengths:
            found = self._plain.get(path[:length]) if length <= len(path) else None
            if found is not None:
                return length, found
        return 0, True


def product_name(agent: str) -> str:
    """Return the product of a user agent: `bot` of `bot/1.0` and of `Mozilla/5.0 (compatible; bot/2.1)`."""
    hidden = _COMPATIBLE.search(agent)
    return (hidden[1] if hidden else agent.partition("/")[0]).strip() or "floodmark"


def _product_token(agent: str) -> tuple[str, bool]:
    """Return the product token of RFC 9309 in lower case, and whether it is the whole name."""
    name = product_name(agent)
    token = _TOKEN.match(name)
    assert token is not None
    return token[0].lower(), token[0] == name


def _parse(text: str) -> tuple[list[_Group], list[str]]:
    groups: list[_Group] = []
    sitemaps: list[str] = []
    is_open = False
    for name, value in _parse_fields(text):
        if name == "sitemap":
            if len(sitemaps) < MOST_SITEMAPS and value not in sitemaps:
                sitemaps.append(value)
        elif name == "agent":
            if not is_open:
                groups.append(_Group())
            # Only rules end the list of agents: other lines may be among them.
            is_open = True
            groups[-1].agents.add(_parse_agent(value))
        elif not groups:
            continue
        elif name in {"allow", "disallow"}:
            is_open = False
            if value:
                groups[-1].rules.append((name == "allow", value))
        else:
            groups[-1].delay = max(groups[-1].delay, _parse_delay(name, value))
    return groups, sitemaps


def _parse_fields(text: str) -> Iterator[tuple[str, str]]:
    for line in _LINES.split(text.removeprefix("\ufeff")):
        content = line[:_LINE].partition("#")[0].strip()
        before, colon, after = content.partition(":")
        if not colon:
            # A missing colon is accepted between two words.
            words = content.split()
            before, after = (words[0], words[1]) if len(words) == 2 else ("", "")
        name = _NAMES.get(before.strip().lower())
        if name is not None:
            yield name, after.strip()


def _parse_agent(value: str) -> str:
    """Return the token of a User-agent line: `floodmark` of `Floodmark/0.1.0`."""
    if value == "*" or value.startswith(("* ", "*\t")):
        return "*"
    token = _TOKEN.match(value)
    return token[0].lower() if token else ""


def _parse_delay(name: str, value: str) -> float:
    if name == "rate":
        rate = _RATE.match(value)
        return int(rate[2]) * _SECONDS[rate[3].lower()] / int(rate[1]) if rate and int(rate[1]) else 0.0
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    # Not negative, and not NaN.
    return seconds if seconds > 0 else 0.0


def _expand_rule(is_allowed: bool, pattern: str) -> Iterator[str]:
    """Yield the patterns that a rule stands for."""
    if not is_allowed and not pattern.startswith(("/", "*")):
        # A path without its slash, or a full URL.
        pattern = _path_of(pattern) if "://" in pattern else f"/{pattern}"
    escaped = _escape(pattern)
    yield escaped
    if not is_allowed and _normalize(escaped) != escaped:
        yield _normalize(escaped)
    if is_allowed and escaped.endswith("/index.html"):
        yield f"{escaped.removesuffix('index.html')}$"


def _matches(pattern: str, path: str) -> bool:
    """Return whether a path starts with the pattern (`*`: anything, `$`: the end), in linear time."""
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
    """Return path and query of a URL, with escapes in upper case."""
    rest = url.partition("://")[2] or url
    start = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    path = rest[start:].partition("#")[0]
    return _ESCAPE.sub(lambda match: match[0].upper(), path if path.startswith("/") else f"/{path}")


def _escape(text: str) -> str:
    """Return a pattern with escapes in upper case and all other characters in ASCII."""
    return quote(_ESCAPE.sub(lambda match: match[0].upper(), text), safe=_SAFE, errors="replace")


def _normalize(path: str) -> str:
    """Return the normal form of RFC 9309: only characters that need it are escaped."""
    return _escape(_ESCAPE.sub(_unescape, path))


def _unescape(match: "re.Match[str]") -> str:
    letter = chr(int(match[1], 16))
    return letter if letter in _UNRESERVED else match[0]
