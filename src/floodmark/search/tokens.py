"""Tokens: the words of a text as they are compared, the same on every database and in every rule. Pure.

A text is folded (compatibility forms, upper case and diacritics are removed) and cut into tokens:

    words       runs of letters, digits and vowel signs:  "Ice-Cream CAFÉ_9" -> ice cream cafe 9
    dense runs  scripts without spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese): every two
                neighbouring characters, and the last one alone:  東京都 -> 東京 京都 都
    emoji       each on its own

So a word in a dense script is found wherever it stands: its pairs follow each other. A single character is found as the
beginning of a pair. `phrase_of` returns the tokens to look for, `tokenize` those of a text.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from operator import add
from typing import NamedTuple
from unicodedata import normalize

# Changed when texts get other tokens: an index of another version is built again.
VERSION = "1"
# Longer words are cut, in texts and in queries.
LONGEST_TOKEN = 64

# Diacritics and points, and characters without a shape. The vowel signs of scripts such as Devanagari or Thai stay,
# because words that differ only in them are different words. So do the voicing marks of Japanese.
_DROPPED = re.compile(
    "["
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07eb-\u07f3\u0816-\u0819\u081b-\u0823"
    "\u0825-\u0827\u0829-\u082d\u0859-\u085b\u0898-\u089f\u08ca-\u08e1\u08e3-\u08ff\u135d-\u135f\u1ab0-\u1aff"
    "\u1cd0-\u1ce8\u1dc0-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2de0-\u2dff\u302a-\u302f\ua66f-\ua672\ua674-\ua67d\ua69e"
    "\ua69f\ua8e0-\ua8f1\ufb1e\ufe20-\ufe2f"
    "\u00ad\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
    "\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef"
    "]+"
)
# The scripts with such signs, without their punctuation: in a regular expression the signs are no letters.
_SIGNS = (
    "\u07a6-\u07b0\u0900-\u0963\u0966-\u096f\u0971-\u0a75\u0a77-\u0aef\u0af9-\u0c76\u0c78-\u0c83\u0c85-\u0df3\u0f18\u0f19"
    "\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u1700-\u1734\u1740-\u1773\u1885\u1886\u18a9\u1900-\u193b\u1a00-\u1a1b"
    "\u1b00-\u1b4c\u1b80-\u1bf3\u1c00-\u1c37\u2d7f\ua6f0\ua6f1\ua800-\ua82c\ua840-\ua873\ua880-\ua8c5\ua8fb\ua8fd-\ua92d"
    "\ua930-\ua953\ua980-\ua9c0\uaa00-\uaa4d\uaa80-\uaac2\uaae0-\uaaef\uaaf5\uaaf6\uabc0-\uabed\U00011000-\U00011fff"
)
_DENSE = (
    # Thai, Lao, Burmese, Korean letters, Khmer, Tai scripts
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109d\u1100-\u11ff\u1780-\u17d3\u17dc\u17dd"
    "\u1950-\u1974\u1980-\u19c9\u1a20-\u1a7f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
    # Chinese, Japanese, Yi, Korean
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48c\ua960-\ua97c\uac00-\ud7a3"
    "\ud7b0-\ud7fb\uf900-\ufaff\U00017000-\U00018cff\U0001aff0-\U0001b2ff\U00020000-\U000323af"
)
_EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"

_DENSE_RUN = re.compile(f"[{_DENSE}]+")
_WORD = re.compile(rf"[\w{_SIGNS}]+|[{_EMOJI}]")
_PIECE = re.compile(rf"[{_DENSE}]+|(?:(?![{_DENSE}])[\w{_SIGNS}])+|[{_EMOJI}]")
_NOT_SPACE = re.compile(r"\S+")


class Phrase(NamedTuple):
    """Tokens to be found next to each other. `is_prefix`: the last one is only the beginning of a token."""

    tokens: tuple[str, ...]
    is_prefix: bool = False


class Span(NamedTuple):
    """A token and its place in the text."""

    token: str
    start: int
    end: int


def fold(text: str) -> str:
    """Return the text in the form in which texts are compared. Folding it again changes nothing."""
    if text.isascii():
        return text.lower()
    folded = normalize("NFKD", normalize("NFKD", text).casefold())
    return normalize("NFC", _DROPPED.sub("", folded))


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text, in order."""
    folded = fold(text).replace("_", " ")
    if _DENSE_RUN.search(folded) is None:
        return [word[:LONGEST_TOKEN] for word in _WORD.findall(folded)]
    tokens: list[str] = []
    for piece in _PIECE.findall(folded):
        if _DENSE_RUN.match(piece) is None:
            tokens.append(piece[:LONGEST_TOKEN])
        else:
            tokens += map(add, piece, piece[1:])
            tokens.append(piece[-1])
    return tokens


def phrase_of(text: str) -> Phrase:
    """Return what to look for to find a text. It has no tokens if the text has no letters, digits or emoji."""
    pieces = _PIECE.findall(fold(text).replace("_", " "))
    if not pieces:
        return Phrase(())
    *others, last = pieces
    tokens = [token for piece in others for token in tokenize(piece)]
    if _DENSE_RUN.match(last) is None:
        return Phrase((*tokens, last[:LONGEST_TOKEN]))
    if len(last) == 1:
        return Phrase((*tokens, last), is_prefix=True)
    # The run may go on in the text, so its last character need not stand alone.
    return Phrase((*tokens, *map(add, last, last[1:])))


def spans(text: str) -> Iterator[Span]:
    """Yield the tokens of a text, the same as `tokenize`, with their places."""
    for found in _NOT_SPACE.finditer(text):
        folded, places = _fold_with_places(found[0])
        for token, start, end in _cut(folded.replace("_", " ")):
            yield Span(token, found.start() + places[start], found.start() + places[end - 1] + 1)


def _cut(folded: str) -> Iterator[Span]:
    for found in _PIECE.finditer(folded):
        piece, start = found[0], found.start()
        if _DENSE_RUN.match(piece) is None:
            yield Span(piece[:LONGEST_TOKEN], start, found.end())
            continue
        for place in range(len(piece)):
            pair = piece[place : place + 2]
            yield Span(pair, start + place, start + place + len(pair))


def _fold_with_places(piece: str) -> tuple[str, list[int]]:
    """Return a folded text, and for each of its characters the place of the character that it comes from."""
    folded = fold(piece)
    if len(folded) == len(piece) and piece.isascii():
        return folded, list(range(len(piece)))
    made, places = list[str](), list[int]()
    for place, character in enumerate(piece):
        some = _fold_character(character)
        made.append(some)
        places += [place] * len(some)
    if "".join(made) == folded:
        return folded, places
    # Characters were combined. The places are then those of the nearest characters.
    last = len(piece) - 1
    return folded, [min(last, place * len(piece) // max(1, len(folded))) for place in range(len(folded))]


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    return fold(character)
