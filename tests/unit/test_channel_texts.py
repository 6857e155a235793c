"""What a stranger has written reaches people as text: it marks nothing up, mentions nobody and breaks no limit."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.notification_kinds import bot_id
from floodmark.notifications.discord import format_discord
from floodmark.notifications.email import build_email
from floodmark.notifications.fitting import join_fitting, safe_link, utf16_length
from floodmark.notifications.messages import to_line
from floodmark.notifications.port import Notification
from floodmark.notifications.poster import retry_after
from floodmark.notifications.slack import format_text
from floodmark.notifications.telegram_bot import format_telegram

pytestmark = pytest.mark.spec("B8")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
EVIL = "<!channel> @everyone *bold* `code` [x](https://evil.example) <@123> <b>b</b> & _i_ ~s~ ||spoiler|| \\* # - :x:"
LINK = 'https://example.org/a?b=1&c=2#d"><script>|x y'


def a_message(title: str = EVIL, *lines: str, link: str | None = None) -> Notification:
    links = (link,) * len(lines)
    shown = tuple(to_line(line, 300) for line in lines)
    return Notification(
        id="0" * 32,
        kind="watch",
        status="match",
        title=to_line(title, 300),
        lines=shown,
        links=links,
        at=NOON,
        instance="box",
    )


class Tags(HTMLParser):
    """The tags and the text of a piece of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_slack_shows_the_text_and_one_link() -> None:
    text = format_text(a_message(EVIL, EVIL, link=LINK))
    assert "<!channel>" not in text
    assert "@everyone" not in text
    assert "*bold*" not in text
    assert text.count("<") == 1, "of the link"
    assert "<https://example.org/a?b=1&amp;c=2#d%22%3E%3Cscript%3E%7Cx%20y>" in text


def test_discord_shows_the_text_and_one_link() -> None:
    text = format_discord(a_message(EVIL, EVIL, link=LINK))
    assert "@everyone" not in text
    assert "\\<@\u200b123\\>" in text
    assert "\\[x\\]\\(https\\://evil.example\\)" in text
    assert "\\*bold\\*" in text
    assert "\\|\\|spoiler\\|\\|" in text
    assert " <https://example.org/a?b=1&c=2#d%22%3E%3Cscript%3E%7Cx%20y>" in text


def test_telegram_shows_the_text_and_one_link() -> None:
    tags = Tags()
    tags.feed(format_telegram(a_message(EVIL, EVIL, link=LINK)))
    assert [tag for tag, _ in tags.tags] == ["b", "a", "i"]
    assert tags.tags[1][1] == {"href": "https://example.org/a?b=1&c=2#d%22%3E%3Cscript%3E%7Cx%20y"}
    assert EVIL.replace("@", "@\u200b") in tags.text


def test_a_mail_has_the_headers_that_we_wrote() -> None:
    evil = "news\r\nBcc: all@example.com\n\nbody"
    letter = build_email(a_message(evil, evil, link=LINK), to=["ada@example.com"], sender="floodmark@box")
    assert letter["Subject"] == "[floodmark] news Bcc: all@example.com body"
    assert letter["Bcc"] is None
    assert "https://example.org/a?b=1&c=2#d%22%3E%3Cscript%3E%7Cx%20y" in letter.get_content()


@given(st.lists(st.text(max_size=400), max_size=40), st.sampled_from([None, "https://example.org/" + "x" * 400]))
def test_no_text_is_longer_than_its_channel_accepts(lines: list[str], link: str | None) -> None:
    message = a_message("x" * 400, *lines, link=link)
    assert len(format_text(message)) <= 3500
    assert utf16_length(format_discord(message)) <= 2000
    assert utf16_length(format_telegram(message)) <= 4096
    tags = Tags()
    tags.feed(format_telegram(message))
    assert {tag for tag, _ in tags.tags} <= {"a", "b", "i"}


def test_left_out_lines_are_counted() -> None:
    assert join_fitting("head", ["a", "b"], "end", longest=100) == "head\na\nb\nend"
    lines = ["x" * 20] * 10
    text = join_fitting("head", lines, "end", longest=100)
    assert text.splitlines()[-2] == "… and 7 more lines"
    assert len(text) <= 100


@pytest.mark.parametrize("url", [None, "", "javascript:alert(1)", "ftp://x", "https://", "https:///x", "x" * 10])
def test_only_web_addresses_become_links(url: str | None) -> None:
    assert safe_link(url) is None


def test_an_address_with_other_letters_is_encoded() -> None:
    assert safe_link("https://example.org/straße?q=ё&x=%41") == "https://example.org/stra%C3%9Fe?q=%D1%91&x=%41"
    assert safe_link(f"https://example.org/{'x' * 500}") is None


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("30", b"", 30),
        ("1.5", b"", 1.5),
        ("", b'{"message": "slow", "retry_after": 2.5, "global": false}', 2.5),
        ("", b'{"ok": false, "error_code": 429, "parameters": {"retry_after": 7}}', 7),
        ("999999", b"", 3600),
        ("", b'{"retry_after": 1e300}', 3600),
        ("", b'{"retry_after": -1}', None),
        ("soon", b"no json", None),
        ("", b"[]", None),
    ],
)
def test_a_receiver_says_how_long_to_wait(header: str, body: bytes, seconds: float | None) -> None:
    assert retry_after(header, body) == (None if seconds is None else timedelta(seconds=seconds))


def test_a_token_of_a_bot_is_recognised_and_never_repeated() -> None:
    assert bot_id("123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11") == 123456
    with pytest.raises(ValueError, match="not a token") as refused:
        bot_id("canary")
    assert "canary" not in str(refused.value)
