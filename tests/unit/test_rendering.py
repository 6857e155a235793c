"""Texts in templates of the dashboard: where a line may be broken, and what stands for items without a text."""

import pytest

from floodmark.dashboard.item_content import describe_untitled
from floodmark.dashboard.rendering import join_units, mark_breaks

pytestmark = pytest.mark.spec("B10")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("until 14:06:40", "until 14:06:40"),
        (
            "telegram:reader1:messages.getHistory is limited",
            "telegram:<wbr>reader1:<wbr>messages.<wbr>getHistory is limited",
        ),
        ("<b>:aaaaaaaaaaaaaaaaaaaaaaaa</b>", "&lt;b&gt;:<wbr>aaaaaaaaaaaaaaaaaaaaaaaa&lt;/<wbr>b&gt;"),
        ("  two  spaces ", "  two  spaces "),
        ("", ""),
    ],
)
def test_long_words_are_broken_at_their_joints(text: str, expected: str) -> None:
    assert str(mark_breaks(text)) == expected


def test_numbers_stay_with_their_units() -> None:
    assert join_units("every 10 s") == "every 10\N{NO-BREAK SPACE}s"
    assert join_units("daily at 02:00 days 1 to 5") == "daily at 02:00 days 1 to 5"


def test_a_post_without_text_is_named_by_its_number() -> None:
    assert describe_untitled("telegram:1500000002", "1500000002:659") == "Post 659 without text"
    assert describe_untitled("python:posts", "17") == "17"
