"""Addresses of pages in their one form, and which of them belong to a site. Pure."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import quote, urljoin, urlsplit

from floodmark.errors import InvalidInput

MOST_CHARACTERS = 2000
# So much of it is left for a path, whatever the host.
_SHORT = MOST_CHARACTERS - 300

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9\-_~.=&]+", re.ASCII)
_OTHER_SCHEME = re.compile(r"(?!https?:)[a-z][a-z0-9+.\-]*:", re.IGNORECASE | re.ASCII)
_INVISIBLE = re.compile(r"[\t\n\r]")
_EDGES = "".join(map(chr, range(33)))
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})|%")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_SAFE, _QUERY_SAFE = "/:@!$&'()*+,;=~%-._", "/?:@!$'()*+,;=~%-._&"
# They say who came from where, not which page it is.
_TRACKED = r"(?:utm_[a-z_]+|gclid|dclid|fbclid|yclid|msclkid|mc_cid|mc_eid|igshid|_openstat|phpsessid)(?:=|&|$)"
_TRACKING = re.compile(_TRACKED, re.IGNORECASE)
# What can be taken as it stands: most links are like this, and taking them apart costs ten times as much.
_PAIR = rf"(?!{_TRACKED})[A-Za-z0-9\-_]+=[A-Za-z0-9\-_~.]*"
_PLAIN_LINK = re.compile(
    rf"/(?!/)[A-Za-z0-9\-_~/]*(?:[A-Za-z0-9\-_~]\.[A-Za-z0-9\-_~/]+)*(?:\?{_PAIR}(?:&{_PAIR})*)?",
    re.ASCII | re.IGNORECASE,
)
_SESSION = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.\-]*[a-z0-9_])?|\[[0-9a-f:.]+\]", re.ASCII)


def canonical(text: str, base: str | None = None) -> str | None:
    """An address in its one form: what two links to the same page have in common. None if it cannot be a page.

    Without fragment, default port, dot segments and tracking parameters; escapes in one spelling.
    """
    said = _INVISIBLE.sub("", text.strip(_EDGES))
    if not said or len(said) > 4 * MOST_CHARACTERS or _OTHER_SCHEME.match(said):
        return None
    try:
        parts = urlsplit(urljoin(base, said) if base else said)
        port = parts.port
    except ValueError:
        return None
    host = _host(parts.hostname)
    if host is None or parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc:
        return None
    place = host if port is None or port == _DEFAULT_PORTS[parts.scheme] else f"{host}:{port}"
    path = _without_dots(_spelled(_SESSION.sub("", parts.path), _PATH_SAFE)) or "/"
    query = _query(parts.query)
    made = f"{parts.scheme}://{place}{path}{'?' if query else ''}{query}"
    return made if len(made) <= MOST_CHARACTERS else None


def join_address(base: str | None, address: str) -> str:
    """An address that may be relative to another one, in full; as it is if that makes no sense."""
    try:
        return urljoin(base, address) if base else address
    except ValueError:
        return address


def host_of(url: str) -> str:
    """The host of a canonical address, with its port unless that is the usual one."""
    return url.partition("://")[2].partition("/")[0]


def origin_of(url: str) -> str:
    """Scheme and host of a canonical address."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def is_same_page(one: str, other: str) -> bool:
    """Whether two canonical addresses differ in nothing but https, `www.` and a slash at the end."""
    return _bare(one) == _bare(other)


def start_of(text: str) -> str:
    """The address a person typed, in its one form; without a scheme it is https. `InvalidInput` if it is none."""
    said = text.strip()
    found = canonical(said if "://" in said else f"https://{said}") if said else None
    if found is None:
        raise InvalidInput(f"{text[:80]!r} is not the address of a page", hint="write it like https://example.com/news")
    return found


class Scope:
    """Which pages belong to a crawl: those of one host, `www.` or not, that match the patterns.

    A pattern is a glob for the path and query: `*` is anything but a slash, `**` anything at all, `?` one character.
    """

    def __init__(self, start: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self.start = start
        self._origin = origin_of(start)
        self._site = _site(start)
        self._is_secure = start.startswith("https:")
        self._include = [glob(pattern) for pattern in include]
        self._exclude = [glob(pattern) for pattern in exclude]

    def link(self, href: str, base: str) -> str | None:
        """The address that a link on the page `base` leads to, whether it belongs to the site or not."""
        if len(href) < _SHORT and _PLAIN_LINK.fullmatch(href):
            return f"{origin_of(base)}{href}"
        # Whole addresses mean the same on every page, and the same ones are on most.
        found = _whole(href) if href.startswith(("https://", "http://")) else canonical(href, base)
        if found is not None and self._is_secure and found.startswith("http:") and self.is_inside(found):
            # A link that was forgotten when the site moved to https.
            return f"https:{found[5:]}"
        return found

    def links(self, hrefs: Iterable[str], base: str) -> dict[str, bool]:
        """Where links on a page lead, in order, each once; and whether that is to be visited."""
        origin = origin_of(base)
        # Most links lead to the same host as it is written here, and then nothing has to be looked up.
        is_ours = origin == self._origin and not self._include and not self._exclude
        found: dict[str, bool] = {}
        for href in hrefs:
            path = href[len(origin) :] if href.startswith(origin) else href
            if is_ours and len(path) < _SHORT and _PLAIN_LINK.fullmatch(path):
                found[origin + path] = True
            elif (address := self.link(href, base)) is not None and address not in found:
                found[address] = self.holds(address)
        return found

    def is_inside(self, url: str) -> bool:
        """Whether it is on the same site."""
        return url.startswith(self._origin + "/") or _site(url) == self._site

    def holds(self, url: str) -> bool:
        """Whether it is to be visited."""
        return self.is_inside(url) and self.is_wanted(url)

    def is_wanted(self, url: str) -> bool:
        """Whether the patterns want it."""
        if not self._include and not self._exclude:
            return True
        path = url[len(origin_of(url)) :]
        if any(pattern.fullmatch(path) for pattern in self._exclude):
            return False
        return not self._include or any(pattern.fullmatch(path) for pattern in self._include)


def glob(pattern: str) -> "re.Pattern[str]":
    """A glob as a regular expression for the path and query of an address."""
    if not pattern.startswith(("/", "*")) or len(pattern) > 500:
        raise InvalidInput(f"{pattern[:60]!r} matches no path", hint="write it like '/news/**' or '**.html'")
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    meant = {"**": ".*", "*": "[^/]*", "?": "."}
    return re.compile("".join(meant.get(part) or re.escape(part) for part in parts), re.DOTALL)


@lru_cache(maxsize=4096)
def _whole(url: str) -> str | None:
    return canonical(url)


def _host(name: str | None) -> str | None:
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


def _query(query: str) -> str:
    if not query:
        return ""
    if not _PLAIN_QUERY.fullmatch(query):
        query = _spelled(query, _QUERY_SAFE)
    return "&".join(part for part in query.split("&") if part and not _TRACKING.match(part))


def _spelled(text: str, safe: str) -> str:
    """Escapes in one spelling: none where none is needed, capital letters where one is."""
    if "%" in text:
        text = _PERCENT.sub(_respelled, text)
    return quote(text, safe=safe, errors="replace")


def _respelled(match: "re.Match[str]") -> str:
    if match[1] is None:
        return "%25"
    letter = chr(int(match[1], 16))
    return letter if letter in _UNRESERVED else match[0].upper()


def _without_dots(path: str) -> str:
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
