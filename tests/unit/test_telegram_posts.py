"""Messages as Telethon reads them off the wire become plain data."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from telethon.extensions import BinaryReader
from telethon.tl import types

from floodmark.model.batch import Item
from floodmark.sources.telegram.peer_names import PeerNames
from floodmark.sources.telegram.posts import item_of, items_of
from floodmark.sources.telegram.raw_messages import MAX_RAW_BYTES, raw_of
from floodmark.store.item_rows import pack
from floodmark.testing.telegram.makers import maker
from floodmark.testing.telegram.raw import unpack

AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 15, 13, tzinfo=UTC)
PEER = types.PeerChannel(1000001)
LONG = 2**62 + 1


def post(text: str = "hello", *, over_the_wire: bool = True, **fields: Any) -> Item:
    message = types.Message(4812, PEER, AT, text, post=True, **fields)
    if over_the_wire:
        with BinaryReader(bytes(message)) as reader:
            message = reader.tgread_object()
    return item_of(message, 1000001, "harbour")


def media(made: Any) -> dict[str, Any]:
    found: dict[str, Any] = post(media=made).data["media"]
    return found


def document(*attributes: Any, mime: str = "application/pdf", **fields: Any) -> Any:
    made = types.Document(LONG, 1, b"ref", AT, mime, 12_345, 2, list(attributes))
    return types.MessageMediaDocument(document=made, **fields)


def test_a_plain_post_has_what_every_post_has() -> None:
    item = post()
    assert item.key == "1000001:4812"
    assert item.occurred_at == AT
    assert item.data == {
        "id": 4812,
        "channel_id": 1000001,
        "channel": "harbour",
        "date": AT,
        "text": "hello",
        "kind": "message",
    }
    assert b'"date":"2026-11-15T12:00:00Z"' in pack([item])[0].data


def test_a_post_with_everything() -> None:
    item = post(
        "Bold and more",
        silent=True,
        pinned=True,
        noforwards=True,
        from_id=types.PeerUser(LONG),
        fwd_from=types.MessageFwdHeader(
            AT,
            imported=True,
            from_id=types.PeerChannel(1400000001),
            from_name="Someone",
            channel_post=7,
            post_author="A. Helm",
            psa_type="covid",
        ),
        via_bot_id=LONG,
        reply_to=types.MessageReplyHeader(
            forum_topic=True,
            quote=True,
            reply_to_msg_id=4000,
            reply_to_peer_id=types.PeerChannel(1400000002),
            reply_from=types.MessageFwdHeader(AT, from_name="Hidden"),
            reply_to_top_id=3000,
            quote_text="said before",
            quote_entities=[types.MessageEntityItalic(0, 4)],
            quote_offset=5,
        ),
        media=types.MessageMediaPhoto(
            spoiler=True,
            photo=types.Photo(
                LONG,
                1,
                b"ref",
                AT,
                [
                    types.PhotoStrippedSize("i", b"x"),
                    types.PhotoSize("m", 320, 240, 1_800),
                    types.PhotoSizeProgressive("y", 1280, 960, [100, 9_000]),
                ],
                2,
            ),
            ttl_seconds=60,
        ),
        entities=[types.MessageEntityBold(0, 4), types.MessageEntityTextUrl(5, 3, "https://example.org")],
        views=12,
        forwards=1,
        replies=types.MessageReplies(3, 1),
        edit_date=LATER,
        post_author="Editor",
        grouped_id=LONG,
        reactions=types.MessageReactions(
            [
                types.ReactionCount(types.ReactionEmoji("👍"), 3),
                types.ReactionCount(types.ReactionCustomEmoji(LONG), 2),
                types.ReactionCount(types.ReactionPaid(), 1),
            ]
        ),
        ttl_period=86_400,
    )
    assert item.data == {
        "id": 4812,
        "channel_id": 1000001,
        "channel": "harbour",
        "date": AT,
        "text": "Bold and more",
        "kind": "message",
        "entities": [
            {"type": "bold", "offset": 0, "length": 4},
            {"type": "text_url", "offset": 5, "length": 3, "url": "https://example.org"},
        ],
        "media": {
            "type": "photo",
            "id": str(LONG),
            "width": 1280,
            "height": 960,
            "size": 9_000,
            "spoiler": True,
            "ttl_seconds": 60,
        },
        "views": 12,
        "forwards": 1,
        "replies": 3,
        "reactions": [
            {"emoji": "👍", "count": 3},
            {"custom_emoji": str(LONG), "count": 2},
            {"type": "paid", "count": 1},
        ],
        "edit_date": "2026-11-15T13:00:00Z",
        "grouped_id": str(LONG),
        "reply_to": {
            "id": 4000,
            "channel_id": 1400000002,
            "top_id": 3000,
            "forum_topic": True,
            "quote": {
                "text": "said before",
                "offset": 5,
                "entities": [{"type": "italic", "offset": 0, "length": 4}],
            },
            "from": {"date": "2026-11-15T12:00:00Z", "name": "Hidden"},
        },
        "forwarded_from": {
            "channel_id": 1400000001,
            "date": "2026-11-15T12:00:00Z",
            "id": 7,
            "name": "Someone",
            "author": "A. Helm",
            "imported": True,
            "psa_type": "covid",
        },
        "from": {"user_id": str(LONG)},
        "author": "Editor",
        "via_bot": str(LONG),
        "pinned": True,
        "silent": True,
        "noforwards": True,
        "ttl_seconds": 86_400,
    }
    msgspec.json.encode(item.data)


@pytest.mark.parametrize(
    "text",
    ["العبّارة تصل إلى الرصيف", "👨‍👩‍👧🇳🇴 family", "ж" * 4096, "nul\0byte", "\u202eright\u202c"],
    ids=["rtl", "emoji", "4096", "nul", "marks"],
)
def test_any_text_is_kept(text: str) -> None:
    item = post(text)
    assert item.data["text"] == text
    [packed] = pack([item])
    assert packed.data


def test_a_lone_surrogate_does_no_harm() -> None:
    item = post("half \ud83d of it", over_the_wire=False, entities=[types.MessageEntityBold(0, 4)])
    [packed] = pack([item])
    assert "half � of it" in packed.data.decode()


@pytest.mark.parametrize(
    ("entity", "shown"),
    [
        (types.MessageEntityPre(0, 2, "python"), {"type": "pre", "language": "python"}),
        (types.MessageEntityMentionName(0, 2, LONG), {"type": "mention_name", "user_id": str(LONG)}),
        (types.MessageEntityCustomEmoji(0, 2, LONG), {"type": "custom_emoji", "document_id": str(LONG)}),
        (types.MessageEntityBlockquote(0, 2, collapsed=True), {"type": "blockquote", "collapsed": True}),
        (types.MessageEntityUnknown(0, 2), {"type": "unknown"}),
        (types.MessageEntityBankCard(0, 2), {"type": "bank_card"}),
    ],
)
def test_entities_keep_their_offsets_and_what_they_point_to(entity: Any, shown: dict[str, Any]) -> None:
    assert post(entities=[entity]).data["entities"] == [{"offset": 0, "length": 2, **shown}]


def test_documents_tell_what_they_are() -> None:
    name = types.DocumentAttributeFilename("plan.pdf")
    base = {"id": str(LONG), "mime": "application/pdf", "size": 12_345}
    assert media(document(name)) == {"type": "document", **base, "filename": "plan.pdf"}
    assert media(document(types.DocumentAttributeVideo(17.5, 640, 360)))["type"] == "video"
    assert media(document(types.DocumentAttributeVideo(17.5, 640, 360)))["duration"] == 17.5
    assert media(document(types.DocumentAttributeVideo(1, 2, 2, round_message=True)))["type"] == "round_video"
    song = media(document(types.DocumentAttributeAudio(200, title="Song", performer="Band")))
    assert (song["type"], song["title"], song["performer"], song["duration"]) == ("audio", "Song", "Band", 200)
    assert media(document(types.DocumentAttributeAudio(3, voice=True)))["type"] == "voice"
    sticker = types.DocumentAttributeSticker("😀", types.InputStickerSetEmpty())
    assert media(document(types.DocumentAttributeImageSize(512, 512), sticker))["emoji"] == "😀"
    both = [types.DocumentAttributeAnimated(), types.DocumentAttributeVideo(1, 2, 2)]
    assert media(document(*both))["type"] == media(document(*reversed(both)))["type"] == "animation"
    assert media(types.MessageMediaDocument()) == {"type": "document"}
    assert media(types.MessageMediaDocument(document=types.DocumentEmpty(5))) == {"type": "document"}
    assert media(types.MessageMediaPhoto(ttl_seconds=5)) == {"type": "photo", "ttl_seconds": 5}


def a_poll(**fields: Any) -> Any:
    answers = [types.PollAnswer(types.TextWithEntities(text, []), text.encode()) for text in ("North", "East")]
    poll = types.Poll(LONG, types.TextWithEntities("Which pier?", []), answers, hash=0, quiz=True, **fields)
    voted = [types.PollAnswerVoters(b"North", voters=5, recent_voters=[])]
    return types.MessageMediaPoll(poll, types.PollResults(results=voted, total_voters=5))


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (
            types.MessageMediaWebPage(types.WebPage(1, "https://e.org", "e.org", 0, title="T", description="D")),
            {"type": "webpage", "url": "https://e.org", "title": "T", "description": "D"},
        ),
        (types.MessageMediaWebPage(types.WebPagePending(1, AT)), {"type": "webpage"}),
        (
            a_poll(),
            {
                "type": "poll",
                "id": str(LONG),
                "question": "Which pier?",
                "answers": [{"text": "North", "voters": 5}, {"text": "East", "voters": None}],
                "total_voters": 5,
                "quiz": True,
            },
        ),
        (types.MessageMediaGeo(types.GeoPoint(2.5, 1.5, 0)), {"type": "geo", "lat": 1.5, "long": 2.5}),
        (types.MessageMediaGeo(types.GeoPointEmpty()), {"type": "geo"}),
        (
            types.MessageMediaGeoLive(types.GeoPoint(2.5, 1.5, 0), 900),
            {"type": "geo_live", "lat": 1.5, "long": 2.5, "period": 900},
        ),
        (
            types.MessageMediaVenue(types.GeoPoint(2.5, 1.5, 0), "Pier 3", "East basin", "p", "i", "t"),
            {"type": "venue", "lat": 1.5, "long": 2.5, "title": "Pier 3", "address": "East basin"},
        ),
        (
            types.MessageMediaContact("+100", "Ada", "", "", 0),
            {"type": "contact", "phone": "+100", "first_name": "Ada"},
        ),
        (
            types.MessageMediaContact("+100", "Ada", "L", "", LONG),
            {"type": "contact", "phone": "+100", "first_name": "Ada", "last_name": "L", "user_id": str(LONG)},
        ),
        (types.MessageMediaDice(6, "🎲"), {"type": "dice", "emoji": "🎲", "value": 6}),
        (types.MessageMediaStory(PEER, 9), {"type": "story", "story_id": 9, "channel_id": 1000001}),
        (
            types.MessageMediaInvoice("T", "D", "EUR", 999, "s"),
            {"type": "invoice", "title": "T", "description": "D", "currency": "EUR", "amount": 999},
        ),
        (
            types.MessageMediaGame(types.Game(LONG, 1, "g", "Game", "D", types.PhotoEmpty(1))),
            {"type": "game", "id": str(LONG), "title": "Game", "description": "D"},
        ),
        (types.MessageMediaPaidMedia(50, []), {"type": "paid_media", "stars": 50, "count": 0}),
        (types.MessageMediaUnsupported(), {"type": "unsupported"}),
        (
            types.MessageMediaGiveaway([1400000001], 3, AT, months=1),
            {
                "type": "giveaway",
                "channels": [1400000001],
                "quantity": 3,
                "until_date": "2026-11-15T12:00:00Z",
                "months": 1,
            },
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_every_kind_of_media_is_described(made: Any, shown: dict[str, Any]) -> None:
    assert media(made) == shown


def test_service_messages_tell_what_happened() -> None:
    action = types.MessageActionChatEditTitle("New title")
    item = item_of(types.MessageService(5, PEER, AT, action=action), 1000001, None)
    assert item.data["kind"] == "service"
    assert item.data["text"] == ""
    assert item.data["channel"] is None
    assert item.data["action"] == {"type": "chat_edit_title", "title": "New title"}
    added = types.MessageActionChatAddUser([LONG, 5])
    told = item_of(types.MessageService(5, PEER, AT, action=added), 1000001, None).data["action"]
    assert told == {"type": "chat_add_user", "users": [str(LONG), 5]}
    pinned = types.MessageService(5, PEER, AT, action=types.MessageActionPinMessage())
    assert item_of(pinned, 1000001, None).data["action"] == {"type": "pin_message"}


def test_a_reply_to_a_story_is_told() -> None:
    assert post(reply_to=types.MessageReplyStoryHeader(PEER, 3)).data["reply_to"] == {
        "story_id": 3,
        "channel_id": 1000001,
    }


def test_messages_that_are_not_there_are_left_out() -> None:
    messages = [types.MessageEmpty(1, None), types.Message(2, PEER, AT, "x"), types.MessageEmpty(3, PEER)]
    assert [item.key for item in items_of(messages, 1000001, "harbour")] == ["1000001:2"]


def same(first: Item, second: Item) -> bool:
    [a], [b] = pack([first]), pack([second])
    return a.content_hash == b.content_hash


@pytest.mark.spec("T7")
def test_what_readers_do_is_no_change_of_a_post() -> None:
    before = post(views=1, forwards=0, media=a_poll())
    voted = a_poll()
    voted.results.total_voters = 999
    after = post(
        views=999,
        forwards=5,
        media=voted,
        pinned=True,
        replies=types.MessageReplies(3, 1),
        reactions=types.MessageReactions([types.ReactionCount(types.ReactionEmoji("👍"), 3)]),
        edit_date=LATER,
        edit_hide=True,
    )
    assert same(before, after)
    assert after.data["hidden_edit_date"] == "2026-11-15T13:00:00Z"
    assert "edit_date" not in after.data


def test_a_preview_that_arrives_later_is_no_change_of_a_post() -> None:
    page = types.MessageMediaWebPage(types.WebPage(1, "https://e.org", "e.org", 0, title="T"))
    assert same(post("see e.org"), post("see e.org", media=page))


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "other"},
        {"edit_date": LATER},
        {"entities": [types.MessageEntityBold(0, 5)]},
        {"media": document()},
        {"media": a_poll(closed=True)},
        {"media": types.MessageMediaDice(6, "🎲")},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_the_author_does_is_a_change(fields: dict[str, Any]) -> None:
    assert not same(post(), post(**fields))


BUTTONS = types.ReplyInlineMarkup(
    [
        types.KeyboardInlineButtonRow(
            [
                types.KeyboardInlineButton("Tickets", types.InlineButtonTypeUrl("https://e.org/tickets")),
                types.KeyboardInlineButton("Vote", types.InlineButtonTypeCallback(b"up")),
            ]
        ),
        types.KeyboardInlineButtonRow([types.KeyboardInlineButton("Copy", types.InlineButtonTypeCopy("CODE"))]),
    ]
)
NAMES = PeerNames(
    [
        types.User(42, first_name="Ada", last_name="Helm", username="ada"),
        types.User(
            43, first_name="Poll", bot=True, usernames=[types.Username("old"), types.Username("pollbot", active=True)]
        ),
        types.User(44, deleted=True),
    ],
    [types.Channel(1400000001, "Weather", types.ChatPhotoEmpty(), AT, username="weather")],
)


def named(**fields: Any) -> Item:
    return item_of(types.Message(4812, PEER, AT, "hello", post=True, **fields), 1000001, "harbour", NAMES)


@pytest.mark.spec("B11")
def test_authors_and_origins_have_names_if_the_answer_has_them() -> None:
    origin = types.MessageFwdHeader(AT, from_id=types.PeerChannel(1400000001), channel_post=7)
    data = named(from_id=types.PeerUser(42), via_bot_id=43, fwd_from=origin).data
    assert data["from"] == {"user_id": "42", "name": "Ada Helm", "username": "ada"}
    assert (data["via_bot"], data["via_bot_name"]) == ("43", "pollbot")
    assert data["forwarded_from"] == {
        "channel_id": 1400000001,
        "name": "Weather",
        "username": "weather",
        "date": "2026-11-15T12:00:00Z",
        "id": 7,
    }
    assert named(from_id=types.PeerUser(44)).data["from"] == {"user_id": "44", "deleted": True}
    assert named(from_id=types.PeerUser(45)).data["from"] == {"user_id": "45"}
    hidden = types.MessageFwdHeader(AT, from_name="A hidden person")
    assert named(fwd_from=hidden).data["forwarded_from"]["name"] == "A hidden person"


@pytest.mark.spec("B11")
def test_buttons_restrictions_and_previews_are_data() -> None:
    reason = types.RestrictionReason("ios", "copyright", "Not available")
    picture = types.Photo(LONG, 1, b"ref", AT, [types.PhotoSize("x", 800, 600, 5_000)], 2)
    page = types.WebPage(1, "https://e.org", "e.org", 0, type="article", title="T", photo=picture)
    data = post(reply_markup=BUTTONS, restriction_reason=[reason], media=types.MessageMediaWebPage(page)).data
    assert data["buttons"] == [
        [
            {"text": "Tickets", "type": "url", "url": "https://e.org/tickets"},
            {"text": "Vote", "type": "callback", "data": "dXA="},
        ],
        [{"text": "Copy", "type": "copy", "copy_text": "CODE"}],
    ]
    assert data["restrictions"] == [{"platform": "ios", "reason": "copyright", "text": "Not available"}]
    assert data["media"] == {
        "type": "webpage",
        "url": "https://e.org",
        "title": "T",
        "page_type": "article",
        "photo": {"id": str(LONG), "width": 800, "height": 600, "size": 5_000},
    }


@pytest.mark.spec("B11", "G2")
def test_names_buttons_and_restrictions_change_no_fingerprint() -> None:
    reason = types.RestrictionReason("all", "terms", "No")
    rich = named(from_id=types.PeerUser(42), via_bot_id=43, reply_markup=BUTTONS, restriction_reason=[reason])
    assert pack([rich])[0].content_hash == pack([post()])[0].content_hash


@pytest.mark.spec("G2")
def test_items_of_earlier_versions_keep_their_content_hash() -> None:
    """The digest was made by the version before names, buttons and raw messages: a re-read makes no revisions."""
    made = maker("lifelike", 7, 1_500_000_001)
    messages = [unpack(made.raw(number, 1_700_000_000 + 60 * number)) for number in range(1, 401)]
    rows = pack(items_of(messages, 1_500_000_001, "harbour", NAMES, with_raw=True))
    digest = hashlib.sha256(b"".join((row.key + row.content_hash).encode() for row in rows)).hexdigest()
    assert digest == "75583be4dd3c8c57ff4ba138728f7d431ba1c23990f4f837951fe6f67bd0cb48"


@pytest.mark.spec("B11")
def test_a_raw_message_has_every_field_that_telegram_sent() -> None:
    message = types.Message(4812, PEER, AT, "hello", post=True, effect=LONG, reply_markup=BUTTONS, views=3, forwards=0)
    raw = raw_of(message)
    assert raw["_"] == "Message"
    assert raw["effect"] == str(LONG)
    assert raw["peer_id"] == {"_": "PeerChannel", "channel_id": 1000001}
    assert raw["date"] == "2026-11-15T12:00:00Z"
    assert raw["forwards"] == 0
    assert raw["reply_markup"]["rows"][0]["buttons"][1]["type"] == {"_": "InlineButtonTypeCallback", "data": "dXA="}
    assert not [name for name in raw if name.startswith("_") and name != "_"]
    assert "silent" not in raw


def test_a_raw_message_is_bounded() -> None:
    message = types.Message(4812, PEER, AT, "x" * (MAX_RAW_BYTES + 1))
    assert raw_of(message) == {"_": "Message", "id": 4812, "left_out_bytes": len(msgspec.json.encode(_whole(message)))}
    page: Any = types.PageBlockParagraph(types.TextPlain("deep"))
    for _ in range(100):
        page = types.PageBlockCover(page)
    cached = types.Page("u", [page], [], [])
    deep = types.WebPage(1, "https://e.org", "e.org", 0, cached_page=cached)
    assert raw_of(types.Message(1, PEER, AT, "", media=types.MessageMediaWebPage(deep)))["_"] == "Message"


def _whole(message: Any) -> dict[str, Any]:
    peer = {"_": "PeerChannel", "channel_id": 1000001}
    return {"_": "Message", "id": 4812, "peer_id": peer, "date": "2026-11-15T12:00:00Z", "message": message.message}
