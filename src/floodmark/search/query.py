"""The query language of searches and rules. Pure.

    fire smoke          both words, in any order
    "big fire"          these words next to each other
    fire OR smoke       one of them; AND binds closer
    fire -drill         fire without drill; also NOT drill
    flood*              words that begin with flood
    title:fire          in a named field of the item; title:"big fire", title:flood*
    (fire OR smoke) harbour

Operators are written in capitals. A word that consists of several tokens, such as `ice-cream`, is a phrase.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from msgspec import Struct

from floodmark.errors import InvalidInput

from .tokens import phrase_of

MOST_CHARACTERS, MOST_TERMS, MOST_TOKENS, _DEEPEST = 2000, 64, 256, 16
# Shorter beginnings match too many words.
_SHORTEST_PREFIX = 2
_HELP = "see the query language: floodmark search --help"


class Term(Struct, frozen=True):
    """Tokens next to each other, in any text or in a field. `is_prefix`: the last one is the beginning of a token."""

    tokens: tuple[str, ...]
    is_prefix: bool = False
    field: str | None = None

    @property
    def indexed_tokens(self) -> tuple[str, ...]:
        """The tokens as they are indexed: those of a field begin with its name."""
        return self.tokens if self.field is None else tuple(field_token(self.field, token) for token in self.tokens)


class AllOf(Struct, frozen=True):
    """All of these nodes. At least one of them is not a `Not`."""

    nodes: tuple["Node", ...]


class AnyOf(Struct, frozen=True):
    """At least one of these nodes. None of them is a `Not`."""

    nodes: tuple["Node", ...]


class Not(Struct, frozen=True):
    """Everything that the node does not match. It stands only in an `AllOf`."""

    node: "Node"


Node = Term | AllOf | AnyOf | Not


def field_token(field: str, token: str) -> str:
    """Return the form in which a token of a field is indexed. No token of a text begins with a colon."""
    return f":{field}:{token}"


def parse_query(text: str) -> Node:
    """Return the query as a tree, or raise `InvalidInput` with a hint. Its root is no `Not`."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidInput(
            f"the query has {len(text):,} characters; the maximum is {MOST_CHARACTERS:,}", hint="search for fewer words"
        )
    return _Parser(text).parse()


def terms_of(node: Node, *, wanted: bool = True) -> Iterator[Term]:
    """Yield the terms of a query: those that must or may be there, or with `wanted=False` those that must not."""
    if isinstance(node, Term):
        if wanted:
            yield node
    elif isinstance(node, Not):
        yield from terms_of(node.node, wanted=not wanted)
    else:
        for one in node.nodes:
            yield from terms_of(one, wanted=wanted)


class _Symbol(NamedTuple):
    """A part of a query as it was written. The kinds are `(`, `)`, `-`, `"`, `word`, `OR` and `AND`."""

    kind: str
    text: str
    field: str | None = None
    is_prefix: bool = False


_QUOTES = str.maketrans("\u201c\u201d\u201e\u201f\u00ab\u00bb", '""""""')
_SYMBOL = re.compile(
    r"""
      (?P<bracket>[()])
    | (?P<minus>-)(?=[^\s-])
    | (?:(?P<field>[A-Za-z][A-Za-z0-9_.-]*):)?"(?P<phrase>[^"]*)(?P<end>"\*?|$)
    | (?P<word>[^\s()"]+)
    """,
    re.VERBOSE,
)
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*):(?!//)(.*)", re.DOTALL)
_OPERATORS = {"OR": "OR", "AND": "AND", "NOT": "-"}


def _symbols(text: str) -> Iterator[_Symbol]:
    for found in _SYMBOL.finditer(text.translate(_QUOTES)):
        if found["bracket"]:
            yield _Symbol(found["bracket"], found[0])
        elif found["minus"]:
            yield _Symbol("-", "-")
        elif found["phrase"] is not None:
            if not found["end"]:
                _refuse(f"the quotation mark before {found['phrase'][:40]!r} has no end", 'write "big fire"')
            yield _Symbol('"', found["phrase"], _field_name(found["field"]), found["end"] == '"*')
        else:
            yield _word(found["word"])


def _word(text: str) -> _Symbol:
    if text in _OPERATORS:
        return _Symbol(_OPERATORS[text], text)
    field = _FIELD.fullmatch(text)
    name, value = (None, text) if field is None else (_field_name(field[1]), field[2])
    if not value:
        _refuse(f"{text[:40]} has no value", f'write {text[:40]}word; to find the word itself: "{text[:40]}"')
    word = value.removesuffix("*")
    if "*" in word or not word:
        _refuse(f"{text[:40]!r} has a * that is not at the end of a word", "write the beginning of a word: flood*")
    return _Symbol("word", word, name, word != value)


def _field_name(name: str | None) -> str | None:
    return None if name is None else name.lower()


class _Parser:
    """Reads symbols one by one. `_next` is the symbol that was not used yet."""

    def __init__(self, text: str) -> None:
        self._symbols = _symbols(text)
        self._next: _Symbol | None = next(self._symbols, None)
        self._terms = self._tokens = self._depth = 0

    def parse(self) -> Node:
        node = self._any_of()
        if self._next is not None:
            _refuse("there is a ) without a (", "remove it, or put it in quotation marks")
        if node is None:
            _refuse("there is nothing to search for", 'write some words: floodmark search "big fire"')
        return _require_wanted(node)

    def _take(self) -> _Symbol | None:
        taken, self._next = self._next, next(self._symbols, None)
        return taken

    def _is_next(self, *kinds: str) -> bool:
        return self._next is not None and self._next.kind in kinds

    def _any_of(self) -> Node | None:
        nodes = [self._all_of()]
        while self._is_next("OR"):
            self._take()
            nodes.append(self._all_of())
        if len(nodes) == 1:
            return nodes[0]
        found = [node for node in nodes if node is not None]
        if len(found) < len(nodes):
            _refuse("OR needs a word before and after it", 'write fire OR smoke; to find the word itself: "or"')
        return AnyOf(tuple(_require_wanted(node) for node in found))

    def _all_of(self) -> Node | None:
        nodes: list[Node] = []
        while self._next is not None and not self._is_next(")", "OR"):
            if self._is_next("AND"):
                self._take()
                if not nodes or not self._is_next("(", "-", '"', "word"):
                    _refuse(
                        "AND needs a word before and after it", 'write fire AND smoke; to find the word itself: "and"'
                    )
            node = self._one()
            if node is not None:
                nodes.append(node)
        return AllOf(tuple(nodes)) if len(nodes) > 1 else nodes[0] if nodes else None

    def _one(self) -> Node | None:
        symbol = self._take()
        assert symbol is not None
        if symbol.kind == "-":
            if not self._is_next("(", "-", '"', "word"):
                _refuse("NOT needs a word after it", 'write fire -drill; to find the word itself: "not"')
            node = self._one()
            if node is None:
                return None
            return node.node if isinstance(node, Not) else Not(_require_wanted(node))
        return self._group() if symbol.kind == "(" else self._term(symbol)

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            _refuse(f"the query has more than {_DEEPEST} levels of parentheses", "use fewer parentheses")
        node = self._any_of()
        if self._take() is None:
            _refuse("there is a ( without a )", "close it, or put it in quotation marks")
        self._depth -= 1
        return node

    def _term(self, symbol: _Symbol) -> Term | None:
        tokens, is_open = phrase_of(symbol.text)
        if not tokens:
            # A dash or another sign between words. A field without a value is a mistake.
            if symbol.field is not None:
                _refuse(f"{symbol.field[:40]}: has no value", f"write {symbol.field[:40]}:word")
            return None
        if symbol.is_prefix and not is_open and len(tokens[-1]) < _SHORTEST_PREFIX:
            _refuse(f"{symbol.text[:40]}* is too short", f"write at least {_SHORTEST_PREFIX} letters before the *")
        self._terms, self._tokens = self._terms + 1, self._tokens + len(tokens)
        if self._terms > MOST_TERMS or self._tokens > MOST_TOKENS:
            _refuse(f"the query has more than {MOST_TERMS} terms or {MOST_TOKENS} words", "search for fewer words")
        return Term(tokens, is_open or symbol.is_prefix, symbol.field)


def _require_wanted(node: Node) -> Node:
    """Return the node, or refuse it if it only says what must not be found."""
    if isinstance(node, Not) or (isinstance(node, AllOf) and all(isinstance(one, Not) for one in node.nodes)):
        _refuse("a query, and each part of an OR, needs a word to search for", "add a word: fire -drill")
    return node


def _refuse(problem: str, example: str) -> NoReturn:
    raise InvalidInput(f"the query cannot be read: {problem}", hint=f"{example}; {_HELP}")
