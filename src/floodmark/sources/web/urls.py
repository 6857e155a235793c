"""Normalized URLs of pages, and which of them belong to a site. Pure."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import quote, urljoin, urlsplit

from floodmark.errors import InvalidInput

MOST_CHARACTERS = 2000
# A path of this length fits, whatever the host.
_SHORT = MOST_CHARACTERS - 300

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9\-_~.=&]+", re.ASCII)
_OTHER_SCHEME = re.compile(r"(?!https?:)[a-z][a-z0-9+.\-]*:", re.IGNORECASE | re.ASCII)
_INVISIBLE = re.compile(r"[\t\n\r]")
_EDGES = "".join(map(chr, range(33)))
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})|%")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_SAFE, _QUERY_SAFE = "/:@!$&'()*+,;=~%-._", "/?:@!$'()*+,;=~%-._&"
# These parameters track visitors and do not select a page.
_TRACKED = r"(?:utm_[a-z_]+|gclid|dclid|fbclid|yclid|msclkid|mc_cid|mc_eid|igshid|_openstat|phpsessid)(?:=|&|$)"
_TRACKING = re.compile(_TRACKED, re.IGNORECASE)
# Links that are normalized already: most are, and parsing them would take ten times as long.
_PAIR = rf"(?!{_TRACKED})[A-Za-z0-9\-_]+=[A-Za-z0-9\-_~.]*"
_PLAIN_LINK = re.compile(
    rf"/(?!/)[A-Za-z0-9\-_~/]*(?:[A-Za-z0-9\-_~]\.[A-Za-z0-9\-_~/]+)*(?:\?{_PAIR}(?:&{_PAIR})*)?",
    re.ASCII | re.IGNORECASE,
)
_SESSION = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.\-]*[a-z0-9_])?|\[[0-9a-f:.]+\]", re.ASCII)


def normalize_url(text: str, base: str | None = None) -> str | None:
    """Return the normalized form of a URL, which is the same for all links to a page; None if it cannot be a page.

    Removes fragment, default port, dot segments and tracking parameters, and normalizes percent-encoding.
    """
    stripped = _INVISIBLE.sub("", text.strip(_EDGES))
    if not stripped or len(stripped) > 4 * MOST_CHARACTERS or _OTHER_SCHEME.match(stripped):
        return None
    try:
        parts = urlsplit(urljoin(base, stripped) if base else stripped)
        port = parts.port
    except ValueError:
        return None
    host = _normalize_host(parts.hostname)
    if host is None or parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc:
        return None
    place = host if port is None or port == _DEFAULT_PORTS[parts.scheme] else f"{host}:{port}"
    path = _remove_dot_segments(_normalize_escapes(_SESSION.sub("", parts.path), _PATH_SAFE)) or "/"
    query = _normalize_query(parts.query)
    made = f"{parts.scheme}://{place}{path}{'?' if query else ''}{query}"
    return made if len(made) <= MOST_CHARACTERS else None


def join_address(base: str | None, address: str) -> str:
    """Return an absolute URL for one that may be relative to `base`; unchanged if it cannot be joined."""
    try:
        return urljoin(base, address) if base else address
    except ValueError:
        return address


def host_of(url: str) -> str:
    """Return the host of a normalized URL, with its port unless that is the default."""
    return url.partition("://")[2].partition("/")[0]


def origin_of(url: str) -> str:
    """Return scheme and host of a normalized URL."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def is_same_page(one: str, other: str) -> bool:
    """Return whether two normalized URLs differ only in https, `www.` and a trailing slash."""
    return _bare(one) == _bare(other)


def parse_start_url(text: str) -> str:
    """Normalize a URL that a person typed, https by default; `InvalidInput` if it is not a URL."""
    stripped = text.strip()
    found = normalize_url(stripped if "://" in stripped else f"https://{stripped}") if stripped else None
    if found is None:
        raise InvalidInput(f"{text[:80]!r} is not the URL of a page", hint="write it like https://example.com/news")
    return found


class Scope:
    """The pages of a crawl: those of one host, with or without `www.`, that match the patterns.

    With `subdomains` also those of all hosts below it.

    A pattern is a glob for path and query: `*` matches anything but a slash, `**` anything, `?` one character.
    """

    def __init__(
        self, start: str, *, include: Sequence[str] = (), exclude: Sequence[str] = (), subdomains: bool = False
    ) -> None:
        self.start = start
        self._origin = origin_of(start)
        self._site = _site(start)
        self._suffix = f".{self._site}" if subdomains else None
        self._is_secure = start.startswith("https:")
        self._include = [compile_glob(pattern) for pattern in include]
        self._exclude = [compile_glob(pattern) for pattern in exclude]

    def link(self, href: str, base: str) -> str | None:
        """Return the normalized target of a link on the page `base`, on this site or another one."""
        if len(href) < _SHORT and _PLAIN_LINK.fullmatch(href):
            return f"{origin_of(base)}{href}"
        # Absolute links recur on most pages of a site.
        found = _normalize_cached(href) if href.startswith(("https://", "http://")) else normalize_url(href, base)
        if found is not None and self._is_secure and found.startswith("http:") and self.is_inside(found):
            # The site has moved to https and this link was not updated.
            return f"https:{found[5:]}"
        return found

    def links(self, hrefs: Iterable[str], base: str) -> dict[str, bool]:
        """Return the distinct targets of links on a page, in order, each with whether the crawl contains it."""
        origin = origin_of(base)
        # Most links are on the same origin, and without patterns need no check.
        is_ours = origin == self._origin and not self._include and not self._exclude
        found: dict[str, bool] = {}
        for href in hrefs:
            path = href[len(origin) :] if href.startswith(origin) else href
            if is_ours and len(path) < _SHORT and _PLAIN_LINK.fullmatch(path):
                found[origin + path] = True
            elif (address := self.link(href, base)) is not None and address not in found:
                found[address] = self.contains(address)
        return found

    def is_inside(self, url: str) -> bool:
        """Return whether a URL is on the same site."""
        if url.startswith(self._origin + "/"):
            return True
        site = _site(url)
        return site == self._site or (self._suffix is not None and site.endswith(self._suffix))

    def contains(self, url: str) -> bool:
        """Return whether a URL belongs to the crawl."""
        return self.is_inside(url) and self.is_wanted(url)

    def is_wanted(self, url: str) -> bool:
        """Return whether a URL matches the patterns."""
        if not self._include and not self._exclude:
            return True
        path = url[len(origin_of(url)) :]
        if any(pattern.fullmatch(path) for pattern in self._exclude):
            return False
        return not self._include or any(pattern.fullmatch(path) for pattern in self._include)


def compile_glob(pattern: str) -> "re.Pattern[str]":
    """Return the regular expression of a glob for path and query."""
    if not pattern.startswith(("/", "*")) or len(pattern) > 500:
        raise InvalidInput(f"{pattern[:60]!r} matches no path", hint="write it like '/news/**' or '**.html'")
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    meant = {"**": ".*", "*": "[^/]*", "?": "."}
    return re.compile("".join(meant.get(part) or re.escape(part) for part in parts), re.DOTALL)


@lru_cache(maxsize=4096)
def _normalize_cached(url: str) -> str | None:
    return normalize_url(url)


def _normalize_host(name: str | None) -> str | None:
    if not name:
        return None
    name = name.rstrip(".").lower()
    if ":" in name:
        name = f"[{name}]"
    if not name.isascii():
        try:
            name = name.encode("idna").decode().lower()
        except UnicodeError:
            return None
    return name if len(name) <= 255 and _HOST.fullmatch(name) else None


def _normalize_query(query: str) -> str:
    if not query:
        return ""
    if not _PLAIN_QUERY.fullmatch(query):
        query = _normalize_escapes(query, _QUERY_SAFE)
    return "&".join(part for part in query.split("&") if part and not _TRACKING.match(part))


def _normalize_escapes(text: str, safe: str) -> str:
    """Decode escapes that are not needed and write the others in upper case."""
    if "%" in text:
        text = _PERCENT.sub(_normalize_escape, text)
    return quote(text, safe=safe, errors="replace")


def _normalize_escape(match: "re.Match[str]") -> str:
    if match[1] is None:
        return "%25"
    letter = chr(int(match[1], 16))
    return letter if letter in _UNRESERVED else match[0].upper()


def _remove_dot_segments(path: str) -> str:
    if "/." not in path:
        return path
    kept: list[str] = []
    parts = path.split("/")
    for part in parts:
        if part == "..":
            if len(kept) > 1:
                kept.pop()
        elif part != ".":
            kept.append(part)
    if parts[-1] in {".", ".."}:
        kept.append("")
    return "/".join(kept) if len(kept) > 1 else "/"


def _site(url: str) -> str:
    return host_of(url).removeprefix("www.")


def _bare(url: str) -> str:
    return url.partition("://")[2].removeprefix("www.").rstrip("/")
