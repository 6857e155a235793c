"""Media of a post in the web preview, in the form of posts that an account reads. Pure.

The preview names no files: a photo has no id, a document no exact size.
"""

import re
from typing import Any

from selectolax.lexbor import LexborNode

from .texts import plain_text

_DURATION = re.compile(r"(?:(\d+):)?(\d+):(\d\d)")
_PERCENT = re.compile(r"\d+")
# The class of an element, and the type of the media in it.
_PHOTO, _VIDEO, _ROUND = "tgme_widget_message_photo_wrap", "tgme_widget_message_video_player", "roundvideo_player"
_KINDS = (
    (f"a.{_PHOTO}", "photo"),
    (f".{_VIDEO}", "video"),
    (f".tgme_widget_message_{_ROUND}", "round_video"),
    (".tgme_widget_message_voice_player", "voice"),
    (".tgme_widget_message_document_wrap", "document"),
    (".tgme_widget_message_sticker_wrap", "sticker"),
    (".tgme_widget_message_location_wrap", "geo"),
    (".tgme_widget_message_contact_wrap", "contact"),
    (".tgme_widget_message_game_wrap", "game"),
    (".tgme_widget_message_invoice_wrap", "invoice"),
)
_SINGLE = re.compile(r"/(\d{1,10})\?(?:[^#]*&)?single\b", re.ASCII)


def media_of(post: LexborNode) -> dict[str, Any] | None:
    """Return the media of a post that is not an album."""
    if (poll := post.css_first(".tgme_widget_message_poll")) is not None:
        return _describe_poll(poll)
    page = post.css_first("a.tgme_widget_message_link_preview")
    found = None if page is None else _describe_page(page)
    if page is not None:
        # Its pictures and videos are not those of the post.
        page.decompose()
    for selector, kind in _KINDS:
        if (node := post.css_first(selector)) is not None:
            return _describe(node, kind)
    return found


def members_of(post: LexborNode) -> dict[int, dict[str, Any] | None]:
    """Return the messages of an album and their media; nothing if the post is not an album."""
    found: dict[int, dict[str, Any] | None] = {}
    for link in post.css("a[href]"):
        single = _SINGLE.search(link.attributes.get("href") or "")
        if single is not None:
            found[int(single[1])] = _member_media(link)
    return found


def _member_media(link: LexborNode) -> dict[str, Any] | None:
    classes = (link.attributes.get("class") or "").split()
    for selector, kind in _KINDS:
        if selector.rpartition(".")[2] in classes:
            return _describe(link, kind)
    return media_of(link)


def _describe(node: LexborNode, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": kind}
    if kind == "document":
        made |= _describe_document(node)
    clock = node.css_first("time.message_video_duration, time.tgme_widget_message_voice_duration")
    duration = _DURATION.search(plain_text(clock))
    if duration is not None:
        hours, minutes, seconds = (int(part or 0) for part in duration.groups())
        made["duration"] = hours * 3600 + minutes * 60 + seconds
    return made


def _describe_document(node: LexborNode) -> dict[str, Any]:
    title = plain_text(node.css_first(".tgme_widget_message_document_title"))
    extra = plain_text(node.css_first(".tgme_widget_message_document_extra"))
    icon = node.css_first(".tgme_widget_message_document_icon")
    if icon is not None and "audio" in (icon.attributes.get("class") or "").split():
        return {"type": "audio", **_given(title=title, performer=extra)}
    return _given(filename=title, shown_size=extra)


def _describe_page(page: LexborNode) -> dict[str, Any]:
    texts = {
        name: plain_text(page.css_first(f".link_preview_{name}")) for name in ("site_name", "title", "description")
    }
    return {"type": "webpage", **_given(url=page.attributes.get("href") or "", **texts)}


def _describe_poll(poll: LexborNode) -> dict[str, Any]:
    answers = []
    for option in poll.css(".tgme_widget_message_poll_option"):
        text = plain_text(option.css_first(".tgme_widget_message_poll_option_text"))
        percent = _PERCENT.search(plain_text(option.css_first(".tgme_widget_message_poll_option_percent")))
        answers.append({"text": text, "voters": None, **({"percent": int(percent[0])} if percent else {})})
    question = plain_text(poll.css_first(".tgme_widget_message_poll_question"))
    return {"type": "poll", "question": question, "answers": answers}


def _given(**texts: str) -> dict[str, Any]:
    return {name: text for name, text in texts.items() if text}
