"""What people paste is recognised: which source it belongs to."""

import pytest

from floodmark.errors import InvalidInput
from floodmark.sources.recognition import recognise

pytestmark = pytest.mark.spec("B10")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("@durov", "telegram"),
        ("https://t.me/durov", "telegram"),
        ("t.me/s/durov/12?single", "telegram"),
        ("telegram.me/durov", "telegram"),
        ("https://t.me/+invitation", "telegram"),
        ("-1001234567890", "telegram"),
        ("example.com", "web"),
        ("  example.com  ", "web"),
        ("www.example.co.uk/news?page=2", "web"),
        ("https://example.com/", "web"),
        ("http://127.0.0.1:8080/", "web"),
        ("https://münchen.example/straße", "web"),
        ("https://example.com/feed", "feed"),
        ("https://example.com/feed/", "feed"),
        ("https://example.com/rss.xml", "feed"),
        ("example.com/news/atom.xml?lang=de", "feed"),
        ("https://example.com/index.rdf", "feed"),
        ("https://example.com/feeds/all.atom.xml", "feed"),
        ("https://example.com/feed.json", "feed"),
        ("https://example.com/feedback", "web"),
        ("https://feed.example.com/", "web"),
        ("myapp.feeds:news", "python"),
    ],
)
def test_a_target_belongs_to_the_source_that_fits_best(text: str, source: str) -> None:
    assert recognise(text)[0] == source


def test_a_domain_can_also_be_scanned_for_cookies() -> None:
    assert recognise("example.com") == ["web", "feed", "cookies"]
    assert "cookies" not in recognise("https://example.com/news")


@pytest.mark.parametrize("text", ["", "hello", "hello world", "javascript:alert(1)", "ftp://example.com/", "<b>", "…"])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a target") as refused:
        recognise(text)
    assert "@channel" in refused.value.hint


def test_a_very_long_text_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="too long") as refused:
        recognise("https://example.com/" + "a" * 1_000_000)
    assert len(str(refused.value)) < 200
