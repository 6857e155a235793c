"""Tokens: every script, and the same whether a text is cut for the index, for a query or to be highlighted."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.search.tokens import LONGEST_TOKEN, fold, phrase_of, spans, tokenize

pytestmark = pytest.mark.spec("B5")

# Scripts, marks, signs without a shape, emoji, and what breaks programs.
LETTERS = st.sampled_from(
    "aBéßİıё́йЖαΣςאבּعَأـकिन्दीไทยກຂကာខ្មែ東京都カガｶﾞ서울ᄀ1９①ﬁ™_-.' \u00ad\u200d\ufe0f🔥👍🏽\0\ud800"
)
TEXTS = st.text(LETTERS | st.characters(), max_size=40)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ice-Cream, CAFÉ_9!", "ice cream cafe 9"),
        ("Straße ﬁre ™ ⑨ ｗｉｄｅ", "strasse fire tm 9 wide"),
        ("Ёлка МОСКВА", "елка москва"),
        ("ΟΔΥΣΣΕΎΣ", "οδυσσευσ"),
        ("שָׁלוֹם", "שלום"),
        ("الْعَرَبِيَّة أحمد كـتاب", "العربيه احمد كتاب".replace("ه", "ة")),
        ("हिन्दी में", "हिन्दी में"),
        ("co\u00adoperation می\u200cخواهم", "cooperation میخواهم"),
        ("東京都", "東京 京都 都"),
        ("iPhone手机壳", "iphone 手机 机壳 壳"),
        ("ｶﾞｽ ガス", "ガス ス ガス ス"),
        ("서울에서", "서울 울에 에서 서"),
        ("ไทย", "ไท ทย ย"),
        ("fire🔥👍🏽!", "fire 🔥 👍"),
        ("", ""),
        ("\0 \ud800 ...", ""),
    ],
)
def test_texts_of_every_script_are_cut_into_tokens(text: str, expected: str) -> None:
    assert tokenize(text) == expected.split()


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.release)])
def test_folding_twice_changes_nothing(step: int) -> None:
    """For every character there is, or for some of them."""
    folded = [fold(chr(code)) for code in range(0, sys.maxunicode + 1, step)]
    assert [text for text in folded if fold(text) != text] == []


@given(TEXTS)
def test_folding_a_text_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(TEXTS)
def test_highlighting_sees_the_tokens_of_the_index(text: str) -> None:
    found = list(spans(text))
    assert [span.token for span in found] == tokenize(text)
    assert all(0 <= span.start < span.end <= len(text) for span in found)


@given(TEXTS, st.data())
def test_a_part_of_a_dense_text_is_found_in_it(before: str, data: st.DataObject) -> None:
    """Wherever it stands: its tokens follow each other."""
    dense = data.draw(st.text("東京都カナ서울ไทย", min_size=1, max_size=8))
    start = data.draw(st.integers(0, len(dense) - 1))
    part = dense[start : start + data.draw(st.integers(1, 8))]
    tokens, (wanted, is_prefix) = tokenize(f"{before} {dense}"), phrase_of(part)
    *first, last = wanted
    assert any(
        tokens[end - len(first) : end] == first and (token.startswith(last) if is_prefix else token == last)
        for end, token in enumerate(tokens)
    )


@given(TEXTS)
def test_a_text_without_dense_scripts_is_looked_for_as_it_is_indexed(text: str) -> None:
    tokens, is_prefix = phrase_of(text)
    if not is_prefix:
        assert list(tokens) == tokenize(text)[: len(tokens)]


def test_long_words_are_cut_alike_in_texts_and_queries() -> None:
    word = "x" * 1_000_000
    assert tokenize(word) == ["x" * LONGEST_TOKEN] == list(phrase_of(word).tokens)


def test_the_place_of_a_token_is_that_of_the_written_word() -> None:
    text = "Die Straße: ﬁre 東京都!"
    assert [text[span.start : span.end] for span in spans(text)] == ["Die", "Straße", "ﬁre", "東京", "京都", "都"]
