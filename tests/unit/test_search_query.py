"""The query language: what it means, and what it says about queries that it cannot read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.search.matching import matches
from floodmark.search.query import AllOf, AnyOf, Node, Not, Term, parse_query, terms_of
from floodmark.search.tokens import tokenize

pytestmark = pytest.mark.spec("B5")

FIRE, SMOKE, DRILL = Term(("fire",)), Term(("smoke",)), Term(("drill",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fire", FIRE),
        ("FIRE", FIRE),
        (" fire  smoke ", AllOf((FIRE, SMOKE))),
        ("fire AND smoke", AllOf((FIRE, SMOKE))),
        ("fire & smoke - !", AllOf((FIRE, SMOKE))),
        ("fire OR smoke", AnyOf((FIRE, SMOKE))),
        ("fire smoke OR drill", AnyOf((AllOf((FIRE, SMOKE)), DRILL))),
        ("fire (smoke OR drill)", AllOf((FIRE, AnyOf((SMOKE, DRILL))))),
        ("fire -drill", AllOf((FIRE, Not(DRILL)))),
        ("fire NOT drill", AllOf((FIRE, Not(DRILL)))),
        ("-(smoke OR drill) fire", AllOf((Not(AnyOf((SMOKE, DRILL))), FIRE))),
        ("fire NOT -smoke", AllOf((FIRE, SMOKE))),
        ("fire -(-smoke)", AllOf((FIRE, SMOKE))),
        ('"big fire"', Term(("big", "fire"))),
        ("\u201cbig fire\u201d", Term(("big", "fire"))),
        ('"big fire"*', Term(("big", "fire"), is_prefix=True)),
        ("ice-cream", Term(("ice", "cream"))),
        ("flood*", Term(("flood",), is_prefix=True)),
        ("title:fire", Term(("fire",), field="title")),
        ('Title:"big fire"', Term(("big", "fire"), field="title")),
        ("title:flood*", Term(("flood",), is_prefix=True, field="title")),
        ("https://example.com/a", Term(("https", "example", "com", "a"))),
        ("url:example.com/a", Term(("example", "com", "a"), field="url")),
        ("12:30", Term(("12", "30"))),
        ("東京都", Term(("東京", "京都"))),
        ("東", Term(("東",), is_prefix=True)),
        ("or and not", AllOf((Term(("or",)), Term(("and",)), Term(("not",))))),
        ("fire ()", FIRE),
        ("fire\0smoke\ud800", Term(("fire", "smoke"))),
    ],
)
def test_queries_are_read(text: str, expected: Node) -> None:
    assert parse_query(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nothing to search for"),
        (" - !? ", "nothing to search for"),
        ('"', "has no end"),
        ('fire "smoke', "has no end"),
        ('title:"smoke', "has no end"),
        ("(fire", "without a \\)"),
        ("fire)", "without a \\("),
        ("-fire", "needs a word to search for"),
        ("-fire NOT smoke", "needs a word to search for"),
        ("fire OR -smoke", "needs a word to search for"),
        ("fire -(-smoke -drill)", "needs a word to search for"),
        ("fire OR", "OR needs"),
        ("OR fire", "OR needs"),
        ("AND fire", "AND needs"),
        ("fire AND", "AND needs"),
        ("fire AND AND smoke", "AND needs"),
        ("fire NOT", "NOT needs"),
        ("title:", "has no value"),
        ("title:(fire)", "has no value"),
        ("title:!", "has no value"),
        ("fi*re", "not at the end"),
        ("*", "not at the end"),
        ("f*", "too short"),
        ("(" * 17 + "fire" + ")" * 17, "levels of parentheses"),
        ("a " * 100, "terms"),
        ("a-" * 400, "words"),
        ("x" * 1_000_000, "1,000,000 characters"),
        ("fire " * 10_000, "50,000 characters"),
    ],
)
def test_a_query_that_cannot_be_read_says_why_and_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        parse_query(text)
    assert refused.value.hint
    assert len(str(refused.value)) < 200


@given(st.text(st.sampled_from('abc東京 "()-*:ORANDT\0\ud800') | st.characters(), max_size=60))
def test_every_text_is_read_or_refused(text: str) -> None:
    """What is read can be answered by an index: every part of it says what to look for."""
    try:
        node = parse_query(text)
    except InvalidInput:
        return
    assert list(terms_of(node))
    _require_answerable(node)


def _require_answerable(node: Node) -> None:
    if isinstance(node, AllOf):
        assert any(not isinstance(one, Not) for one in node.nodes)
    if isinstance(node, AnyOf):
        assert not any(isinstance(one, Not) for one in node.nodes)
    if not isinstance(node, Term):
        for one in (node.node,) if isinstance(node, Not) else node.nodes:
            assert not (isinstance(node, Not) and isinstance(one, Not))
            _require_answerable(one)


@pytest.mark.parametrize(
    ("query", "is_match"),
    [
        ("fire harbour", True),
        ('"fire in"', True),
        ('"in fire"', False),
        ('"harbour big"', False),
        ("har*", True),
        ('"the har"*', True),
        ("fire -harbour", False),
        ("fire -(smoke drill)", True),
        ("smoke OR fire", True),
        ("title:big", True),
        ("title:harbour", False),
        ("big", False),
        ("京", True),
        ("東京", True),
        ("京都", False),
    ],
)
def test_a_query_matches_an_item_without_an_index(query: str, is_match: bool) -> None:
    runs = [tokenize("Fire in the harbour"), [":title:big", ":title:fire"], tokenize("東京")]
    assert matches(parse_query(query), runs) is is_match
