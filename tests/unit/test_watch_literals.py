"""A text that matches contains a literal of its query or pattern: so one search for all literals misses nothing."""

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.search.matching import matches
from floodmark.search.query import parse_query
from floodmark.search.tokens import fold, tokenize
from floodmark.watches.literals import literals_of_pattern, literals_of_query
from floodmark.watches.patterns import compile_pattern

pytestmark = pytest.mark.spec("B8")

WORDS: tuple[str, ...] = (
    "fire",
    "FIRE",
    "fireplace",
    "café",
    "cafe\u0301",
    "москва",
    "Straße",
    "東京都",
    "東",
    "kilo",
    "K",
    "ﬁre",
)
WORDS += (
    "ſmoke",
    "smoke",
    "ice-cream",
    "ÅNGSTRÖM",
    "a_b",
    "하",
    "\u1112\u1161\u11ab",
    "か\u3099",
    "ι\u0345",
    "ΌΣΟΣ",
    "x",
)
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=8).map(" ".join) | st.text(max_size=40)


@pytest.mark.parametrize(
    ("query", "literals"),
    [
        ("fire", {"fire"}),
        ("fire OR smoke", {"fire", "smoke"}),
        ("big fire", {"fire"}),
        ("fire -drill", {"fire"}),
        ('"big red fire"', {"fire"}),
        ("(fire OR smoke) harbour", {"harbour"}),
        ("flood*", {"flood"}),
        ("title:Café", {"cafe"}),
        ("東京都", {"東京都"}),
        ('"no on"', {"no"}),
    ],
)
def test_the_literals_of_a_query_are_few_and_long(query: str, literals: set[str]) -> None:
    assert set(literals_of_query(parse_query(query)) or ()) == literals


QUERIES = st.recursive(
    st.sampled_from(WORDS).map(lambda word: f'"{word}"') | st.sampled_from(["fire", "caf*", '"ice cream"', "москв*"]),
    lambda inner: st.tuples(inner, st.sampled_from([" ", " OR ", " -"]), inner).map(
        lambda found: f"({''.join(found)})"
    ),
    max_leaves=5,
)


@given(QUERIES, TEXTS)
@example("fire", "ﬁre")
def test_a_text_that_matches_a_query_contains_one_of_its_literals(query: str, text: str) -> None:
    try:
        node = parse_query(query)
    except InvalidInput:
        return
    if matches(node, [tokenize(text)]):
        assert any(literal in fold(text) for literal in literals_of_query(node) or ())


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("fire", {"fire"}),
        ("(?i)Fire", {"fire"}),
        ("fire|smoke", {"fire", "smoke"}),
        ("fir[ea]", {"fir"}),
        ("big (fire|smoke)s?", {"big"}),
        ("fires?", {"fire"}),
        ("ab+cde", {"cde"}),
        ("(fire){2}", {"fire"}),
        (r"price: \d+ EUR", {"price"}),
        (r"\$1,000", {"000"}),
        (r"(?P<word>flood)\s+warning", {"warning"}),
        ("café", {"cafe"}),
        ("москва", {"москва"}),
        ("[[:alpha:]]+fire", {"fire"}),
        (r"[^]a\]]fire", {"fire"}),
        (r"\pL+fire\p{Greek}", {"fire"}),
    ],
)
def test_the_literals_of_a_pattern(pattern: str, literals: set[str]) -> None:
    compile_pattern(pattern)
    assert set(literals_of_pattern(pattern) or ()) == literals


@pytest.mark.parametrize(
    "pattern",
    ["a|fire", ".*", r"\d+", "(fire)?", "fire*?|x", "(fire)*", "ab", "[fire]", r"\Qfire\E", r"\x66ire", "かな", "ιιι"],
)
def test_a_pattern_without_a_literal_that_helps(pattern: str) -> None:
    compile_pattern(pattern)
    assert literals_of_pattern(pattern) is None


PIECES = st.sampled_from(
    [
        *(
            "fire",
            "Fire",
            "smoke",
            "café",
            "москва",
            "東京",
            "하",
            "か",
            "ι",
            "kg",
            "ß",
            "s",
            "k",
            "ab",
            "1",
            " ",
            "x",
            "-",
        ),
        *(".", r"\d", r"\w", "[a-f]", "[^x]", r"\pL", r"\.", "^", "$", "\u0301"),
    ]
)
PATTERNS = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "+?"])).map(
            lambda one: f"(?:{one[0]}){one[1]}"
        ),
        inner.map(lambda one: f"(?i:{one})"),
        inner.map(lambda one: f"(?i){one}"),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=8,
)


@given(PATTERNS, TEXTS)
@example("하", "\u1112\u1161\u11ab")
@example("か", "か\u3099")
@example("(?i)ιιι", "ι\u0345ι")
@example("(?i)kilo", "\u212ailo")
@example("(?i)smoke", "ſmoke")
def test_a_text_that_matches_a_pattern_contains_one_of_its_literals(pattern: str, text: str) -> None:
    literals = literals_of_pattern(pattern)
    if literals is not None and re2.search(pattern, text) is not None:
        assert any(literal in fold(text) for literal in literals)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("fire(", "missing ): ( at character 5"),
        (r"big \( [)] (fire", "missing ): (fire at character 12"),
        ("fire)s", "unexpected ): )s at character 5"),
        ("[abc", "missing ]: [abc at character 1"),
        ("fire{1001}", "invalid repetition size: {1001} at character 5"),
        (r"(a)\1", r"invalid escape sequence: \1 at character 4"),
        ("x(?=fire)", "invalid perl operator: (?= at character 2"),
        ("ab[z-a]", "invalid character class range: z-a at character 4"),
        ("a**", "bad repetition operator: ** at character 2"),
        (r"x \bfire\b", r"\b at character 3"),
        (r"\\\B", r"\B at character 3"),
        ("x" * 1001, "at most 1,000 characters"),
        ("((a{100}){100}){100}", "invalid repetition size"),
    ],
)
def test_a_refused_pattern_says_why_and_where(pattern: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_pattern(pattern)
    assert says in str(refused.value)
    assert refused.value.hint


def test_whole_words_are_found_in_every_script() -> None:
    for word, text in (("москва", "Вот москва, и всё"), ("fire", "(fire)"), ("café", "le café"), ("1|2", "1")):
        pattern = compile_pattern(word, whole_word=True)
        assert pattern.search(text)
        assert not pattern.search(f"x{text.replace(' ', '').replace('(', '').strip(')')}x")


def test_a_pattern_that_takes_other_engines_for_ever_is_quick() -> None:
    assert compile_pattern("(a+)+$").search("a" * 100_000 + "!") is None
