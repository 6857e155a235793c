"""The web preview of the channels, in the form of t.me/s: a local web site for programs without an account.

    async with LoopbackPreview(backend) as preview:
        ...  # TELEGRAM_PREVIEW_URL = preview.url
        preview.trouble("/s/*", status(429, retry_after="30"))

A page has the newest 20 ids below `?before=`; an album is one block. Groups, missing names and channels with
`has_preview = False` redirect to the page of the name, as at Telegram.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from typing import Any

from aiohttp import web
from telethon.tl import types

from floodmark.testing.web.site import Site

from .backend import Channel, TelegramBackend
from .preview_text import html_of

_PAGE = 20


class LoopbackPreview(Site):
    """Serves /s/<name> and /<name> for the channels of a backend."""

    def __init__(self, backend: TelegramBackend, *, port: int = 0, remembered: int | None = None) -> None:
        super().__init__(port=port, remembered=remembered)
        self.backend = backend
        self.missing = self._serve

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        name = parts[-1]
        with self.backend.lock:
            channel = self.backend.find_channel(name)
            if len(parts) == 1:
                return _html(_landing(name, channel))
            if parts[0] != "s" or channel is None or channel.is_group or not channel.has_preview:
                return web.Response(status=302, headers={"Location": f"{self.url}/{name}"})
            before = request.query.get("before", "")
            return _html(_channel_page(channel, int(before) if before.isdigit() else None))


def _html(body: str) -> web.Response:
    return web.Response(text=body, content_type="text/html")


def _landing(name: str, channel: Channel | None) -> str:
    if channel is None:
        title, extra = f"Telegram: Contact @{name}", ""
    else:
        members = "members, 12 online" if channel.is_group else "subscribers"
        title = f"Telegram: View @{name}"
        extra = f'<div class="tgme_page_extra">{channel.subscribers} {members}</div>'
    return (
        f"<!DOCTYPE html><html><head><title>{title}</title></head><body>"
        f'<div class="tgme_page_wrap"><div class="tgme_page">{extra}</div></div></body></html>'
    )


def _channel_page(channel: Channel, before: int | None) -> str:
    ids = [number for number in channel.ids() if before is None or number < before]
    shown = [message for number in ids[-_PAGE:] if (message := channel.message(number)) is not None]
    blocks = "".join(_block(channel, group) for group in _groups(shown))
    more = link = ""
    if len(ids) > _PAGE:
        cursor = f"/s/{channel.username}?before={ids[-_PAGE]}"
        link = f'<link rel="prev" href="{cursor}">'
        more = (
            '<div class="tgme_widget_message_centered js-messages_more_wrap">'
            f'<a href="{cursor}" class="tme_messages_more js-messages_more" data-before="{ids[-_PAGE]}"></a></div>'
        )
    return (
        f"<!DOCTYPE html><html><head><title>{escape(channel.title)} – Telegram</title>{link}"
        f'<link rel="canonical" href="/s/{channel.username}?before={before or ""}"></head>'
        '<body class="widget_frame_base tgme_webpreview emoji_image"><main class="tgme_main">'
        '<div class="tgme_page_wrap"><div class="tgme_channel_info"><div class="tgme_channel_info_header">'
        f'<div class="tgme_channel_info_header_title"><span dir="auto">{escape(channel.title)}</span></div></div></div>'
        f'<section class="tgme_channel_history js-message_history">{more}{blocks}</section></div></main></body></html>'
    )


def _groups(messages: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield single messages and albums."""
    group: list[Any] = []
    for message in messages:
        album = getattr(message, "grouped_id", None)
        if group and (album is None or album != getattr(group[0], "grouped_id", None)):
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _block(channel: Channel, group: Sequence[Any]) -> str:
    first = group[0]
    is_album, is_service = len(group) > 1, isinstance(first, types.MessageService)
    number = f"{first.id}g" if is_album else first.id
    token = json.dumps({"c": -channel.channel_id, "p": number, "t": 1_700_000_000, "h": "0123456789abcdef"})
    view = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return (
        '<div class="tgme_widget_message_wrap js-widget_message_wrap">'
        f'<div class="tgme_widget_message text_not_supported_wrap js-widget_message{" service_message" * is_service}"'
        f' data-post="{channel.username}/{first.id}" data-view="{view}">'
        '<div class="tgme_widget_message_user"><a href="/"><i class="tgme_widget_message_user_photo"></i></a></div>'
        f'<div class="tgme_widget_message_bubble">{_service(first) if is_service else _content(channel, group)}'
        f"{_footer(channel, first)}</div></div></div>"
    )


def _service(message: Any) -> str:
    action = message.action
    words = getattr(action, "message", None) or type(action).__name__.removeprefix("MessageAction")
    return f'<div class="tgme_widget_message_text js-message_text" dir="auto">{escape(words)}</div>'


def _content(channel: Channel, group: Sequence[Any]) -> str:
    first = group[0]
    head = _forward(channel, first) + _reply(channel, first)
    if len(group) > 1:
        members = "".join(_media(channel, message, single=True) for message in group)
        files = f'<div class="tgme_widget_message_grouped_wrap"><div class="js-message_grouped">{members}</div></div>'
    else:
        files = _media(channel, first)
    # As on half of all real posts, whatever they contain.
    notice = (
        '<div class="media_not_supported_cont"><div class="message_media_not_supported_label">Please open</div></div>'
    )
    captions = [message for message in group if message.message]
    text = _text(captions[0]) if len(captions) == 1 else ""
    if len(group) > 1 and text:
        text = f'<div class="tgme_widget_message_text js-message_text" dir="auto">{text}</div>'
    page = _page(first.media) if isinstance(first.media, types.MessageMediaWebPage) else ""
    return head + files + text + page + (notice if first.id % 2 else "") + _reactions(first)


def _text(message: Any) -> str:
    return (
        '<div class="tgme_widget_message_text js-message_text" dir="auto">'
        f"{html_of(message.message, message.entities or ())}</div>"
    )


def _forward(channel: Channel, message: Any) -> str:
    header = message.fwd_from
    if header is None:
        return ""
    origin = channel.backend.channels.get(getattr(header.from_id, "channel_id", 0))
    if origin is not None and origin.username:
        place = f"https://t.me/{origin.username}/{header.channel_post}"
        name = f'<a class="tgme_widget_message_forwarded_from_name" href="{place}">{escape(origin.title)}</a>'
    else:
        name = f'<span class="tgme_widget_message_forwarded_from_name">{escape(header.from_name or "Unknown")}</span>'
    return f'<div class="tgme_widget_message_forwarded_from accent_color">Forwarded from {name}</div>'


def _reply(channel: Channel, message: Any) -> str:
    number = getattr(message.reply_to, "reply_to_msg_id", None)
    if number is None:
        return ""
    quoted = channel.message(number)
    words = escape(getattr(quoted, "message", None) or "Deleted")
    return (
        f'<a class="tgme_widget_message_reply user-color-default" href="https://t.me/{channel.username}/{number}">'
        f'<div class="tgme_widget_message_text js-message_reply_text">{words}</div></a>'
    )


def _media(channel: Channel, message: Any, *, single: bool = False) -> str:
    media = message.media
    place = f"https://t.me/{channel.username}/{message.id}{'?single' if single else ''}"
    if isinstance(media, types.MessageMediaPhoto):
        style = "width:800px;background-image:url('https://cdn4.telesco.pe/file/x.jpg')"
        return f'<a class="tgme_widget_message_photo_wrap 5400 1200" href="{place}" style="{style}"></a>'
    if isinstance(media, types.MessageMediaDocument):
        return _document(media.document, place)
    if isinstance(media, types.MessageMediaPoll):
        return _poll(media)
    return ""


def _document(document: Any, place: str) -> str:
    kinds = {type(attribute): attribute for attribute in document.attributes}
    video = kinds.get(types.DocumentAttributeVideo)
    if video is not None:
        clock = f"{int(video.duration) // 60}:{int(video.duration) % 60:02}"
        return (
            f'<a class="tgme_widget_message_video_player js-message_video_player" href="{place}">'
            f'<time class="message_video_duration js-message_video_duration">{clock}</time></a>'
        )
    name = kinds.get(types.DocumentAttributeFilename)
    title = escape(name.file_name if name is not None else "file")
    return (
        f'<a class="tgme_widget_message_document_wrap" href="{place}">'
        '<div class="tgme_widget_message_document_icon accent_bg"></div><div class="tgme_widget_message_document">'
        f'<div class="tgme_widget_message_document_title accent_color" dir="auto">{title}</div>'
        f'<div class="tgme_widget_message_document_extra" dir="auto">{document.size / 1024:.1f} KB</div></div></a>'
    )


def _poll(media: Any) -> str:
    votes = {result.option: result.voters for result in media.results.results or ()}
    total = sum(votes.values()) or 1
    options = "".join(
        '<div class="tgme_widget_message_poll_option">'
        f'<div class="tgme_widget_message_poll_option_percent">{100 * votes.get(answer.option, 0) // total}%</div>'
        f'<div class="tgme_widget_message_poll_option_text">{escape(answer.text.text)}</div></div>'
        for answer in media.poll.answers
    )
    question = escape(media.poll.question.text)
    return (
        '<div class="tgme_widget_message_poll js-poll">'
        f'<div class="tgme_widget_message_poll_question">{question}</div>{options}</div>'
    )


def _page(media: Any) -> str:
    page = media.webpage
    return (
        f'<a class="tgme_widget_message_link_preview" href="{escape(page.url)}">'
        f'<div class="link_preview_title" dir="auto">{escape(page.title or "")}</div>'
        f'<div class="link_preview_description" dir="auto">{escape(page.description or "")}</div></a>'
    )


def _reactions(message: Any) -> str:
    if message.reactions is None:
        return ""
    shown = "".join(
        f'<span class="tgme_reaction"><i class="emoji"><b>{escape(result.reaction.emoticon)}</b></i>'
        f"{rounded(result.count)}</span>"
        for result in message.reactions.results
        if isinstance(result.reaction, types.ReactionEmoji)
    )
    return f'<div class="tgme_widget_message_reactions js-message_reactions">{shown}</div>'


def _footer(channel: Channel, message: Any) -> str:
    moment: datetime = message.date
    views = getattr(message, "views", None)
    count = "" if views is None else f'<span class="tgme_widget_message_views">{rounded(views)}</span>'
    author = getattr(message, "post_author", None)
    name = f'<span class="tgme_widget_message_from_author" dir="auto">{escape(author)}</span>, ' if author else ""
    is_edited = getattr(message, "edit_date", None) is not None and not message.edit_hide
    return (
        f'<div class="tgme_widget_message_footer"><div class="tgme_widget_message_info">{count}'
        f'<span class="tgme_widget_message_meta">{name}{"edited " * is_edited}'
        f'<a class="tgme_widget_message_date" href="https://t.me/{channel.username}/{message.id}">'
        f'<time datetime="{moment.isoformat()}" class="time">{moment:%H:%M}</time></a></span></div></div>'
    )


def rounded(count: int) -> str:
    """Return a number as the preview shows it: 4400 is `4.4K`."""
    for factor, sign in ((1_000_000, "M"), (1_000, "K")):
        if count >= factor:
            return f"{count / factor:.1f}".removesuffix(".0") + sign
    return str(count)
