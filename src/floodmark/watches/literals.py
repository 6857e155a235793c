"""Literals that a text must contain to match: one search for the literals of all watches finds the candidates. Pure.

Literals are folded as the tokens of searches are. A text matches only if it contains at least one of them, folded.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from floodmark.search.query import AllOf, AnyOf, Node, Not, Term
from floodmark.search.tokens import fold, tokenize

Literals = frozenset[str]

# In UTF-8. A shorter literal is in nearly every text.
_SHORTEST_BYTES = 3
_MOST_LITERALS = 50
# Letters whose marks are all dropped by folding, and ideographs: a literal of these folds to a part of the folded text,
# whatever stands around it. Iota is left out: RE2 takes U+0345, which is dropped, for one.
_SAFE = (
    ("0", "9"),
    ("A", "Z"),
    ("a", "z"),
    ("\u00c0", "\u024f"),
    ("\u0391", "\u0398"),
    ("\u039a", "\u03b8"),
    ("\u03ba", "\u03c9"),
    ("\u0400", "\u0481"),
    ("\u048a", "\u052f"),
    ("\u05d0", "\u05ea"),
    ("\u0620", "\u063f"),
    ("\u0641", "\u064a"),
    ("\u4e00", "\u9fff"),
)
_PROPERTIES = "is"
_PAIR = 2
_REPEAT, _META = "*+?{", ".^$|)"


def literals_of_query(node: Node) -> Literals | None:
    """Return the literals of a query, the fewest and longest ones; None if it has none."""
    if isinstance(node, Term):
        # A property such as `is:cut` is no part of the text.
        return None if node.field == _PROPERTIES else frozenset({max(_join_pairs(node.tokens), key=len)})
    if isinstance(node, Not):
        return None
    parts = [literals_of_query(one) for one in node.nodes]
    if isinstance(node, AllOf):
        return _best(parts)
    assert isinstance(node, AnyOf)
    return _any_of(parts)


class NeededWords(NamedTuple):
    """Tokens that an item must have, as they are indexed, and texts that it must contain, folded.

    `are_enough`: an item that has the tokens matches.
    """

    tokens: frozenset[str]
    texts: tuple[str, ...]
    are_enough: bool


def words_needed_by(node: Node) -> tuple[NeededWords, ...]:
    """Return what a query needs: an item that matches has everything of at least one entry."""
    parts = node.nodes if isinstance(node, AnyOf) else (node,)
    return tuple(NeededWords(_tokens_of(part), _texts_of(part), _are_words(part)) for part in parts)


def _tokens_of(node: Node) -> frozenset[str]:
    if isinstance(node, Term):
        # Of a beginning, the whole token is not known.
        return frozenset(node.indexed_tokens[:-1] if node.is_prefix else node.indexed_tokens)
    if isinstance(node, AllOf):
        return frozenset[str]().union(*map(_tokens_of, node.nodes))
    return frozenset()


def _texts_of(node: Node) -> tuple[str, ...]:
    if isinstance(node, Term):
        return () if node.field == _PROPERTIES else node.tokens
    if isinstance(node, AllOf):
        return tuple(text for one in node.nodes for text in _texts_of(one))
    return ()


def _are_words(node: Node) -> bool:
    """Return whether a node is one word, or several that must all be there."""
    if isinstance(node, Term):
        return len(node.tokens) == 1 and not node.is_prefix
    return isinstance(node, AllOf) and all(map(_are_words, node.nodes))


def _join_pairs(tokens: Sequence[str]) -> list[str]:
    """Return the tokens, with 東京 and 京都 next to each other as 東京都: such pairs stand in one run of characters."""
    joined = list(tokens[:1])
    for before, token in pairwise(tokens):
        is_pair = len(before) == len(token) == _PAIR and before[-1] == token[0]
        # Words of two letters are no pairs: `no on`.
        if is_pair and len(tokenize(before)) == _PAIR:
            joined[-1] += token[-1]
        else:
            joined.append(token)
    return joined


def literals_of_pattern(pattern: str) -> Literals | None:
    """Return the literals of a pattern that RE2 accepts; None if it has none that help."""
    try:
        found = _PatternReader(pattern).read()
    except _UnknownSyntax:
        return None
    return found if found is not None and len(found) <= _MOST_LITERALS else None


class _UnknownSyntax(Exception):
    """The pattern has syntax that is not analysed."""


class _Atom(NamedTuple):
    """A part of a pattern: one literal character, or the literals that a group needs."""

    character: str | None = None
    literals: Literals | None = None


class _PatternReader:
    """Reads a pattern character by character. Whatever it does not know exactly needs no literal."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._place = pattern, 0

    def read(self) -> Literals | None:
        found = self._alternatives()
        if self._place < len(self._pattern):
            raise _UnknownSyntax
        return found

    def _peek(self, length: int = 1) -> str:
        return self._pattern[self._place : self._place + length]

    def _alternatives(self) -> Literals | None:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._place += 1
            branches.append(self._sequence())
        return _any_of(branches)

    def _sequence(self) -> Literals | None:
        runs: list[str] = [""]
        groups: list[Literals] = []
        while self._peek() and self._peek() not in "|)":
            atom = self._atom()
            least, is_one = self._repetition()
            if atom.character is not None and is_one:
                runs[-1] += atom.character
            else:
                if least and atom.character is not None:
                    # `ab+c` contains `ab`, and `bc` is not certain.
                    runs[-1] += atom.character
                elif least and atom.literals is not None:
                    groups.append(atom.literals)
                runs.append("")
        return _best([*groups, *map(_literals_of_run, runs)])

    def _atom(self) -> _Atom:
        sign = self._peek()
        self._place += 1
        if sign == "(":
            return self._group()
        if sign == "[":
            self._skip_class()
            return _Atom()
        if sign == "\\":
            return self._escape()
        if sign in _REPEAT:
            raise _UnknownSyntax
        return _Atom() if sign in _META else _Atom(sign)

    def _group(self) -> _Atom:
        if self._peek() == "?":
            self._place += 1
            self._skip_group_options()
            if self._pattern[self._place - 1] == ")":
                # Options for the rest, such as (?i): folding makes no difference of case anyway.
                return _Atom()
        literals = self._alternatives()
        if self._peek() != ")":
            raise _UnknownSyntax
        self._place += 1
        return _Atom(literals=literals)

    def _skip_group_options(self) -> None:
        """Skip to after the `:` of `(?i:`, the `>` of a name, or the `)` of options alone."""
        if self._peek(2) == "P<" or self._peek() == "<":
            end = self._pattern.find(">", self._place)
        else:
            ends = [place for sign in ":)" if (place := self._pattern.find(sign, self._place)) >= 0]
            end = min(ends, default=-1)
            if not set(self._pattern[self._place : end]) <= set("imsU-"):
                raise _UnknownSyntax
        if end < 0:
            raise _UnknownSyntax
        self._place = end + 1

    def _skip_class(self) -> None:
        """Skip a class such as `[^]a-z\\]]` or `[[:alpha:]]`."""
        if self._peek() == "^":
            self._place += 1
        is_first = True
        while self._peek() != "]" or is_first:
            if not self._peek():
                raise _UnknownSyntax
            if self._peek(2) == "[:":
                self._place = self._pattern.find(":]", self._place) + 1
            elif self._peek() == "\\":
                self._place += 1
            self._place += 1
            is_first = False
        self._place += 1

    def _escape(self) -> _Atom:
        sign = self._peek()
        self._place += 1
        if sign in ("p", "P"):
            if self._peek() == "{":
                self._place = self._pattern.find("}", self._place)
            self._place += 1
            return _Atom()
        if sign in "QExC" or sign.isdecimal():
            raise _UnknownSyntax
        return _Atom() if sign.isalpha() else _Atom(sign)

    def _repetition(self) -> tuple[bool, bool]:
        """Return whether the atom must be there at least once, and whether it is there exactly once."""
        sign = self._peek()
        if sign not in _REPEAT or not sign:
            return True, True
        self._place += 1
        least = sign == "+"
        if sign == "{":
            end = self._pattern.find("}", self._place)
            bounds = self._pattern[self._place : end].split(",")
            if end < 0 or not bounds[0].isdecimal():
                # RE2 takes it for the character itself.
                raise _UnknownSyntax
            least, self._place = int(bounds[0]) > 0, end + 1
        if self._peek() == "?":
            self._place += 1
        if self._peek() and self._peek() in _REPEAT:
            raise _UnknownSyntax
        return least, False


def _literals_of_run(run: str) -> Literals | None:
    """Return the longest part of consecutive characters that folds safely."""
    parts: list[str] = [""]
    for character in run:
        folded = fold(character) if _is_safe(character) else ""
        if len(folded) == 1 and folded.isalnum():
            parts[-1] += folded
        else:
            parts.append("")
    longest = max(parts, key=len)
    return frozenset({longest}) if len(longest.encode()) >= _SHORTEST_BYTES else None


def _is_safe(character: str) -> bool:
    return any(first <= character <= last for first, last in _SAFE)


def _any_of(parts: Sequence[Literals | None]) -> Literals | None:
    """Return the literals of alternatives: each needs its own."""
    found: set[str] = set()
    for part in parts:
        if part is None:
            return None
        found |= part
    return frozenset(found)


def _best(parts: Sequence[Literals | None]) -> Literals | None:
    """Return the literals that the fewest texts contain: one long literal rather than many short ones."""
    found = [part for part in parts if part]
    return max(found, key=lambda part: (-len(part), min(map(len, part)), sorted(part)), default=None)
