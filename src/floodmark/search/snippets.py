"""The part of a text that shows why an item was found, with the matches marked. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from floodmark.model.search import SnippetPart

from .matching import places_of
from .query import Node, Term, terms_of
from .texts import ItemTexts
from .tokens import LONGEST_TOKEN, Span, fold, likely_spans, spans

LENGTH = 200
_BEFORE = 60
# A part of a text is searched for matches only if it may have one.
_CHUNK = 2000
_MOST_SEARCHED = 200_000
_ELLIPSIS = "…"


class _Match(NamedTuple):
    start: int
    end: int
    term: int


def snippet_of(query: Node | None, found: ItemTexts) -> tuple[SnippetPart, ...]:
    """Return the part of the item's texts with the most different terms of a query; without a match, the beginning."""
    terms = [] if query is None else [term for term in terms_of(query) if term.field is None]
    best: tuple[int, str, list[_Match], int] = (0, "", [], 0)
    for text in found.texts if terms else ():
        for start, matches in _windows(list(_matches(terms, text))):
            variety = len({match.term for match in matches})
            if variety > best[0]:
                best = (variety, text, matches, start)
    _, text, matches, start = best
    return _parts(text, matches, start) if matches else _parts(next(iter(found.texts), ""), [], 0)


def mark_title(query: Node | None, title: str) -> tuple[SnippetPart, ...]:
    """Return the beginning of a title with its matches, those of `title:` included."""
    wanted = () if query is None else terms_of(query)
    terms = [Term(term.tokens, term.is_prefix) for term in wanted if term.field in (None, "title")]
    return _parts(title, list(_matches(terms, title[:LENGTH])), 0)


def _matches(terms: Sequence[Term], text: str) -> Iterator[_Match]:
    """Yield the places of all terms in a text, in order."""
    found: list[_Match] = []
    for start, chunk in _chunks(terms, text[:_MOST_SEARCHED]):
        matches = _matches_in(terms, likely_spans(chunk))
        if any(fold(chunk[span.start : span.end])[:LONGEST_TOKEN] != span.token for span, _, _ in matches):
            matches = _matches_in(terms, list(spans(chunk)))
        found += [_Match(start + first.start, start + end, number) for first, end, number in matches]
    yield from sorted(set(found))


def _matches_in(terms: Sequence[Term], places: list[Span]) -> list[tuple[Span, int, int]]:
    """Return the first token, the end and the term of each match."""
    run = [span.token for span in places]
    return [
        (places[place[0]], _end(places[place[-1]], term), number)
        for number, term in enumerate(terms)
        for place in places_of(term, run)
    ]


def _end(last: Span, term: Term) -> int:
    # Of a pair of characters only the one that was looked for.
    is_half = term.is_prefix and len(term.tokens[-1]) == 1 and len(last.token) == 2
    return last.start + 1 if is_half else last.end


def _chunks(terms: Sequence[Term], text: str) -> Iterator[tuple[int, str]]:
    """Yield parts of a text that may have a match. They end at a space, if there is one."""
    start = 0
    while start < len(text):
        end = len(text) if start + _CHUNK >= len(text) else text.rfind(" ", start + 1, start + _CHUNK)
        end = end if end > start else min(len(text), start + _CHUNK)
        folded = fold(text[start:end])
        if any(all(token in folded for token in term.tokens) for term in terms):
            yield start, text[start:end]
        start = end


def _windows(matches: list[_Match]) -> Iterator[tuple[int, list[_Match]]]:
    """Yield for each match the beginning of a snippet with it, and all matches in that snippet."""
    for place, match in enumerate(matches[:1000]):
        start = max(0, match.start - _BEFORE)
        yield start, [one for one in matches[place : place + 50] if one.end <= start + LENGTH]


def _parts(text: str, matches: list[_Match], start: int) -> tuple[SnippetPart, ...]:
    """Return a text from about `start` on, cut into parts that match and parts that do not."""
    start = _word_start(text, start)
    end = _word_end(text, start + LENGTH)
    parts: list[SnippetPart] = [SnippetPart(_ELLIPSIS)] if start > 0 else []
    place = start
    for match in matches:
        first, last = max(match.start, place), min(match.end, end)
        if first >= last:
            continue
        if first > place:
            parts.append(SnippetPart(text[place:first]))
        parts.append(SnippetPart(text[first:last], is_match=True))
        place = last
    if place < end:
        parts.append(SnippetPart(text[place:end]))
    if end < len(text):
        parts.append(SnippetPart(_ELLIPSIS))
    return tuple(parts)


def _word_start(text: str, start: int) -> int:
    """Return the beginning of the next word, if it is near."""
    if start == 0:
        return 0
    space = text.find(" ", start, start + _BEFORE // 2)
    return start if space < 0 else space + 1


def _word_end(text: str, end: int) -> int:
    """Return the end of the last whole word, if it is near."""
    if end >= len(text):
        return len(text)
    space = text.rfind(" ", end - _BEFORE // 2, end + 1)
    return end if space < 0 else space
