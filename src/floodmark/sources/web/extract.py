"""Extracts title, main text, metadata and links from the HTML of a page. Pure.

Crawls spend most of their time here, so a page is parsed once and most of the work is done outside of Python.
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field
from selectolax.lexbor import LexborHTMLParser, LexborNode

from .nesting import TooNested, check_nesting

MOST_TEXT, MOST_FACT, _MOST_FACTS = 500_000, 500, 30
# Links that are followed after one visit of a page, and how many of them its item lists.
MOST_LINKS, MOST_LISTED = 50_000, 1000
# Links before normalization, including duplicates: a page of 20 MB can have a million.
_MOST_HREFS = 20 * MOST_LINKS

SCRIPTED = "shows its text only after JavaScript has run: crawl it with --render"
EMPTY = "has no text, even after its scripts have run"
FRAMED = "is a frameset: its text is in the pages of its frames"
HOLLOW = (SCRIPTED, FRAMED)
"""The notes of pages that have content, but no text of their own."""
# Pages with less text are checked for scripts and frames.
_LITTLE_TEXT = 100
_MOUNTS = "#root,#app,#__next,#__nuxt,#___gatsby,#svelte,app-root,[ng-app],[data-reactroot]"
# Content other than text.
_OTHER_CONTENT = "p,img,picture,video,audio,form,table,iframe,object,embed,svg"
_SCRIPT_WANTED = re.compile(
    r"(?:enable|activate|turn on|switch on|needs?|requires?|without|aktivier|activ|включ)\w*.{0,60}javascript|"
    r"javascript.{0,60}(?:enable|disabled|required|activat|aktivier|activ|off\b|отключ|включ)",
    re.IGNORECASE | re.DOTALL,
)

# Never part of the main text.
_CLUTTER = "script,style,noscript,template,nav,aside,form,iframe,svg,button,select,dialog,[hidden],[aria-hidden=true]"
_FRAME = "header,footer," + _CLUTTER
_MAIN = "main,article,[role=main]"

# Elements within a line; every other element is a line of its own.
INLINE = (
    "a,abbr,acronym,b,bdi,bdo,big,cite,code,data,del,dfn,em,font,i,img,ins,kbd,label,mark,nobr,output,q,ruby,s,samp,small,"
    "span,strike,strong,sub,sup,time,tt,u,var,wbr"
)
# Separates lines. No page contains it, since the parser replaces it.
_SEPARATOR = "\0"

_PUBLISHED = (
    "article:published_time",
    "og:published_time",
    "date",
    "pubdate",
    "dc.date",
    "dcterms.created",
    "datepublished",
)
_MODIFIED = ("article:modified_time", "og:updated_time", "last-modified", "dcterms.modified", "datemodified")
_AUTHOR = ("author", "article:author", "dc.creator", "twitter:creator")
_FEED_TYPES = ("application/rss+xml", "application/atom+xml", "application/feed+json")
_NOT_FOUND = re.compile(
    r"\b404\b|not found|page (?:does not|doesn.t) exist|no longer (?:exists|available)|nicht gefunden|introuvable|"
    r"no encontrada|non trovata|не найден",
    re.IGNORECASE,
)
_RULES_WITH_VALUES = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
_OUR_NAMES = ("", "*", "floodmark")
# Error pages with status 200 have less text than this.
_SOFT_MISS_TEXT = 600


class Document(Struct, kw_only=True):
    """The content of an HTML page. `hrefs` are its links as written; `facts` is its metadata."""

    title: str = ""
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    base: str | None = None
    canonical: str | None = None
    hrefs: list[str] = field(default_factory=list)
    """Distinct links that may be followed, in order."""
    others: list[str] = field(default_factory=list)
    """Links that may not be followed (nofollow)."""
    feeds: list[str] = field(default_factory=list)
    is_indexed: bool = True
    is_followed: bool = True
    is_soft_miss: bool = False
    lacking: str | None = None
    """Why the page has little or no text, if that is known."""
    remarks: list[str] = field(default_factory=list)
    """Values that could not be read, and limits that were reached."""

    @property
    def fingerprint(self) -> str:
        """A hash of title and text, which decides whether a page has changed."""
        return hashlib.blake2b(f"{self.title}\n{self.text}".encode(errors="replace"), digest_size=16).hexdigest()


def parse_document(html: str, *, rules: str = "") -> Document:
    """Return the content of a page; raise `TooNested` if it must not be parsed. `rules` is its X-Robots-Tag header."""
    check_nesting(html)
    tree = LexborHTMLParser(html)
    found = Document()
    _apply_robots(found, rules)
    _read_metas(tree, found)
    _read_relations(tree, found)
    _read_links(tree, found)
    heading = _first_text(tree, "h1")
    found.title = _first_text(tree, "title") or str(found.facts.get("open_graph", {}).get("title", "")) or heading
    root = tree.root
    if root is not None and (language := root.attributes.get("lang")):
        found.facts["language"] = language.strip()[:35]
    _read_linked_data(tree, found)
    _read_time(tree, found)
    found.text = _main_text(tree)
    if len(found.text) < _LITTLE_TEXT:
        found.lacking = _find_lacking(html)
        if found.lacking == SCRIPTED and _SCRIPT_WANTED.search(found.text):
            # The text is only a request to enable JavaScript.
            found.text = ""
    titles = f"{found.title}\n{heading}"
    found.is_soft_miss = len(found.text) < _SOFT_MISS_TEXT and _NOT_FOUND.search(titles) is not None
    return found


def _find_lacking(html: str) -> str | None:
    tree = LexborHTMLParser(html)
    if tree.css_first("frameset") is not None:
        return FRAMED
    if tree.css_first("script") is None:
        return None
    asks = any(_SCRIPT_WANTED.search(node.text(deep=True)) for node in tree.css("noscript"))
    is_waiting = any(not node.text(deep=True).strip() for node in tree.css(_MOUNTS))
    return SCRIPTED if asks or is_waiting or tree.css_first(_OTHER_CONTENT) is None else None


def _main_text(tree: LexborHTMLParser) -> str:
    """Return the main text, one line per block. Removes everything else from the tree."""
    body = tree.body
    if body is None:
        return ""
    chosen = _choose_main(body)
    for node in chosen.css(_FRAME if chosen.tag == "body" else _CLUTTER):
        node.decompose()
    if chosen.tag == "body":
        chosen = _choose_densest(chosen)
    return _text_of(chosen)[:MOST_TEXT]


def extract_text(fragment: str) -> str:
    """Return the text of an HTML fragment, such as a feed entry; empty if it is nested too deeply."""
    if "<" not in fragment and "&" not in fragment:
        return " ".join(fragment.split())[:MOST_TEXT]
    try:
        check_nesting(fragment)
    except TooNested:
        return ""
    tree = LexborHTMLParser(fragment)
    body = tree.body
    if body is None:
        return ""
    for node in body.css("script,style,template"):
        node.decompose()
    return _text_of(body)[:MOST_TEXT]


def _text_of(node: LexborNode) -> str:
    """Return the text of a node, one line per block. Unwraps inline elements of the tree."""
    for inline in node.css(INLINE):
        inline.unwrap()
    node.merge_text_nodes()
    parts = node.text(deep=True, separator=_SEPARATOR, skip_empty=True).split(_SEPARATOR)
    return "\n".join(line for part in parts if (line := _join_lines(part)))


def _join_lines(text: str) -> str:
    text = text.strip()
    # Most texts need no splitting, which is slow.
    return " ".join(text.split()) if "\n" in text or "  " in text or not text.isprintable() else text


def _choose_main(body: LexborNode) -> LexborNode:
    """Return the element marked as main content. A list of articles counts as a whole."""
    marked = body.css(_MAIN)
    mains = [node for node in marked if node.tag != "article"]
    articles = [node for node in marked if node.tag == "article"]
    if len(articles) == 1 and (not mains or _weight(articles[0]) * 2 > _weight(mains[0])):
        return articles[0]
    if mains and _weight(mains[0]):
        return mains[0]
    return body


def _weight(node: LexborNode) -> int:
    return len(node.text(deep=True))


def _choose_densest(body: LexborNode) -> LexborNode:
    """Return the block with most of the paragraphs' text, or the body if there is none."""
    weights: dict[int, int] = {}
    parents: dict[int, LexborNode] = {}
    total = 0
    for paragraph in body.css("p"):
        parent = paragraph.parent
        if parent is None:
            continue
        weight = len(paragraph.text(deep=True))
        parents.setdefault(parent.mem_id, parent)
        weights[parent.mem_id] = weights.get(parent.mem_id, 0) + weight
        total += weight
    if not weights:
        return body
    best = max(weights, key=lambda place: weights[place])
    # Otherwise keep all: a page of tables has few paragraphs.
    return parents[best] if weights[best] > 400 and weights[best] * 10 > total * 7 else body


def _read_metas(tree: LexborHTMLParser, found: Document) -> None:
    facts = found.facts
    graph: dict[str, str] = {}
    for node in tree.css("meta[content]"):
        attributes = node.attributes
        name = (
            attributes.get("property")
            or attributes.get("name")
            or attributes.get("http-equiv")
            or attributes.get("itemprop")
            or ""
        ).lower()
        content = (attributes.get("content") or "").strip()[:MOST_FACT]
        if not name or not content:
            continue
        if name.startswith("og:"):
            if len(graph) < _MOST_FACTS:
                graph.setdefault(name[3:], content)
        elif name in {"robots", "floodmark"}:
            _apply_robots(found, content)
        elif name == "description":
            facts.setdefault("description", content)
        elif name in {"content-language", "language"}:
            facts.setdefault("language", content[:35])
        if name in _AUTHOR:
            facts.setdefault("author", content)
        elif name in _PUBLISHED:
            _set_time(facts, "published", content)
        elif name in _MODIFIED:
            _set_time(facts, "modified", content)
    if graph:
        facts["open_graph"] = graph


def _read_relations(tree: LexborHTMLParser, found: Document) -> None:
    for node in tree.css("link[rel][href],base[href]"):
        attributes = node.attributes
        href = attributes.get("href") or ""
        if node.tag == "base":
            found.base = found.base or href
            continue
        relation = (attributes.get("rel") or "").lower().split()
        if "canonical" in relation:
            found.canonical = found.canonical or href
        elif (
            "alternate" in relation and (attributes.get("type") or "").lower() in _FEED_TYPES and len(found.feeds) < 10
        ):
            found.feeds.append(href)


def _read_links(tree: LexborHTMLParser, found: Document) -> None:
    follow: dict[str, None] = {}
    others: dict[str, None] = {}
    for node in tree.css("a[href],area[href],frame[src]"):
        attributes = node.attributes
        # A fragment does not make another page.
        href = (attributes.get("href") or attributes.get("src") or "").partition("#")[0]
        if not href:
            continue
        relation = attributes.get("rel")
        (others if relation and "nofollow" in relation.lower() else follow)[href] = None
        if len(follow) + len(others) >= _MOST_HREFS:
            break
    found.hrefs, found.others = list(follow), [href for href in others if href not in follow]


def _read_linked_data(tree: LexborHTMLParser, found: Document) -> None:
    """Read dates and author from JSON-LD; those of the page's head take precedence."""
    facts = found.facts
    if "published" in facts and "author" in facts:
        return
    for node in tree.css('script[type="application/ld+json"]')[:5]:
        try:
            read = msgspec.json.decode(node.text(deep=True))
        except (msgspec.DecodeError, RecursionError):
            continue
        things = read.get("@graph", read) if isinstance(read, dict) else read
        for thing in things[:20] if isinstance(things, list) else [things]:
            if isinstance(thing, dict):
                _read_thing(thing, facts)


def _read_thing(thing: dict[str, Any], facts: dict[str, Any]) -> None:
    for name, fact in (("datePublished", "published"), ("dateModified", "modified")):
        if isinstance(thing.get(name), str):
            _set_time(facts, fact, thing[name])
    author = thing.get("author")
    if isinstance(author, list):
        author = author[0] if author else None
    if isinstance(author, dict):
        author = author.get("name")
    if isinstance(author, str) and author.strip():
        facts.setdefault("author", author.strip()[:MOST_FACT])


def _read_time(tree: LexborHTMLParser, found: Document) -> None:
    if "published" not in found.facts:
        node = tree.css_first("article time[datetime],main time[datetime]")
        if node is not None:
            _set_time(found.facts, "published", node.attributes.get("datetime") or "")


def _set_time(facts: dict[str, Any], name: str, text: str) -> None:
    if name not in facts and (moment := parse_time(text)) is not None:
        facts[name] = moment.isoformat()


def parse_time(text: str) -> datetime | None:
    """Return an ISO 8601 time in UTC; None if it is invalid."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _apply_robots(found: Document, rules: str) -> None:
    if not rules:
        return
    words = _rules_for_us(rules)
    if words & {"noindex", "none"}:
        found.is_indexed = False
    if words & {"nofollow", "none"}:
        found.is_followed = False


def _rules_for_us(rules: str) -> set[str]:
    """Return the rules for this crawler: only noindex of `noindex, otherbot: nofollow`. A name applies to its line."""
    found = set()
    for line in rules.lower().split("\n"):
        name = ""
        for word in line.split(","):
            before, colon, after = word.partition(":")
            if colon and before.strip() not in _RULES_WITH_VALUES:
                name, word = before.strip(), after  # noqa: PLW2901 - the rest of the word
            if name in _OUR_NAMES:
                found.add(word.strip())
    return found


def _first_text(tree: LexborHTMLParser, selector: str) -> str:
    node = tree.css_first(selector)
    return "" if node is None else " ".join(node.text(deep=True).split())[:MOST_FACT]
