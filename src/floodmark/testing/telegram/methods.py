"""The supported methods. All others get METHOD_INVALID."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from telethon.tl import types

from . import media, sign_in, updates
from .backend import Channel
from .client_view import ClientView, Refusal
from .history import PAGE, History
from .raw import Raw
from .sessions import number

Method = Callable[[ClientView, Any], Any]
_USERNAME_SIGNS = set("abcdefghijklmnopqrstuvwxyz0123456789_")


def answer(client: ClientView, method: str, request: Any) -> Any:
    """Return the response to a request; raises `Refusal`."""
    found = METHODS.get(method)
    if found is None:
        raise Refusal("METHOD_INVALID")
    with client.backend.lock:
        client.require_takeout()
        return found(client, request)


def channel_of(request: Any) -> int | None:
    """Return the number of the channel that a request names, or None; that of a basic group is negative."""
    for name in ("peer", "channel"):
        named = getattr(request, name, None)
        if isinstance(named, types.InputPeerChannel | types.InputChannel):
            return int(named.channel_id)
        if isinstance(named, types.InputPeerChat):
            return -int(named.chat_id)
    return None


def _config(client: ClientView, _request: Any) -> Any:
    return client.config()


def _users(client: ClientView, request: Any) -> Any:
    me = client.me
    return [me for named in request.id if isinstance(named, types.InputUserSelf) or _user_id(named) == me.id]


def _user_id(named: Any) -> int:
    return int(getattr(named, "user_id", 0))


def _resolve(client: ClientView, request: Any) -> Any:
    _ = client.account
    name = request.username.lower()
    if not 3 <= len(name) <= 32 or not set(name) <= _USERNAME_SIGNS:
        raise Refusal("USERNAME_INVALID")
    found = client.backend.find_channel(name)
    if found is None:
        raise Refusal("USERNAME_NOT_OCCUPIED")
    return types.contacts.ResolvedPeer(found.peer, client.chats(found), [])


def _channels(client: ClientView, request: Any) -> Any:
    return types.messages.Chats([client.chat(client.channel(named)) for named in request.id])


def _full_channel(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.channel)
    top = channel.history.top
    full = types.ChannelFull(
        channel.channel_id,
        channel.about,
        top,
        top,
        0,
        types.PhotoEmpty(0),
        types.PeerNotifySettings(),
        [],
        channel.pts,
        participants_count=channel.subscribers,
        linked_chat_id=None if channel.linked is None else channel.linked.channel_id,
    )
    linked = [] if channel.linked is None else [_as_reader(client, channel.linked)]
    return types.messages.ChatFull(full, [*client.chats(channel), *linked], [])


def _as_reader(client: ClientView, channel: Channel) -> Any:
    if channel.is_open_to(client.account.name):
        return client.chat(channel)
    return types.ChannelForbidden(channel.channel_id, 0, channel.title, megagroup=True)


def _topics(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.peer)
    if channel.topics is None:
        raise Refusal("CHANNEL_FORUM_MISSING")
    found = [_topic(channel, number, channel.topics.get(number)) for number in request.topics]
    return types.messages.ForumTopics(len(found), found, [], client.chats(channel), [], channel.pts)


def _topic(channel: Channel, number: int, title: str | None) -> Any:
    if title is None:
        return types.ForumTopicDeleted(number)
    settings = types.PeerNotifySettings()
    counts = (0, number, 0, 0, 0, 0, 0, 0)
    return types.ForumTopic(number, channel.created, channel.peer, title, *counts, channel.peer, settings)


def _join(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.channel)
    if channel.members is not None:
        channel.members.add(client.account.name)
    now = int(client.backend.now())
    return types.messages.ChatInviteJoinResultOk(types.Updates([], [], client.chats(channel), now, 0))


def _leave(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.channel)
    members = set(client.backend.accounts) if channel.members is None else channel.members
    channel.members = members - {client.account.name}
    return types.Updates([], [], client.chats(channel), int(client.backend.now()), 0)


def _history(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.peer)
    page = channel.history.page(
        offset_id=request.offset_id,
        offset_date=_seconds(request.offset_date),
        add_offset=request.add_offset,
        limit=request.limit,
    )
    return _messages(client, channel, _between(page, request), len(channel.history.ids))


def _search(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.peer)
    found = History()
    # A search is rare: the history is read through, and what fits is paged like a history of its own.
    fitting = [message for message in channel.history.newest_first() if _fits(message, request)]
    for message in reversed(fitting):
        found.keep(message, int(message.date.timestamp()))
    page = found.page(offset_id=request.offset_id, add_offset=request.add_offset, limit=request.limit)
    return _messages(client, channel, _between(page, request), len(fitting))


def _fits(message: Any, request: Any) -> bool:
    # No date is the beginning of time on the wire.
    latest = _seconds(request.max_date) or 1 << 40
    if not _seconds(request.min_date) <= message.date.timestamp() < latest:
        return False
    if request.q.lower() not in (message.message or "").lower():
        return False
    return _WANTED.get(type(request.filter), _anything)(message)


def _anything(_message: Any) -> bool:
    return True


_WANTED: Mapping[Any, Callable[[Any], bool]] = {
    types.InputMessagesFilterPhotos: lambda message: isinstance(message.media, types.MessageMediaPhoto),
    types.InputMessagesFilterDocument: lambda message: isinstance(message.media, types.MessageMediaDocument),
    types.InputMessagesFilterVideo: lambda message: bool(getattr(message.media, "video", None)),
    types.InputMessagesFilterUrl: lambda message: isinstance(message.media, types.MessageMediaWebPage),
    types.InputMessagesFilterPinned: lambda message: bool(message.pinned),
}


def _between(page: list[tuple[int, Raw]], request: Any) -> list[Raw]:
    lowest, highest = request.min_id, request.max_id or 1 << 62
    return [raw for message_id, raw in page if lowest < message_id < highest]


def _messages(client: ClientView, channel: Channel, messages: list[Any], count: int) -> Any:
    people = list(client.backend.people.values())
    messages = _with_references(client, messages)
    chats = client.chats(channel, *(origin for origin in channel.origins.values() if origin is not channel))
    if channel.is_basic:
        return types.messages.MessagesSlice(count, messages, [], chats, people)
    return types.messages.ChannelMessages(channel.pts, count, messages, [], chats, people)


def _own_by_ids(client: ClientView, request: Any) -> Any:
    """Return messages of basic groups. They have one numbering for each account; here, for each group."""
    groups = [c for c in client.backend.channels.values() if c.is_basic and c.has_member(client.account.name)]
    found: list[Any] = []
    for named in islice(request.id, PAGE):
        raw = next((raw for group in groups if (raw := group.history.raw(named.id)) is not None), None)
        found.append(types.MessageEmpty(named.id, None) if raw is None else raw)
    found = _with_references(client, found)
    return types.messages.Messages(found, [], client.chats(*groups), list(client.backend.people.values()))


def _by_ids(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.channel)
    found: list[Any] = []
    for named in islice(request.id, PAGE):
        raw = channel.history.raw(named.id)
        found.append(types.MessageEmpty(named.id, channel.peer) if raw is None else raw)
    return _messages(client, channel, found, len(found))


def _views(client: ClientView, request: Any) -> Any:
    channel = client.channel(request.peer)
    found = [channel.history.message(message_id) for message_id in request.id[:PAGE]]
    views = [
        types.MessageViews(views=getattr(message, "views", None), forwards=getattr(message, "forwards", None))
        for message in found
    ]
    return types.messages.MessageViews(views, client.chats(channel), [])


def _dialogs(client: ClientView, request: Any) -> Any:
    mine = [c for c in client.backend.channels.values() if c.has_member(client.account.name) and not request.folder_id]
    mine.sort(key=lambda channel: channel.history.dates[-1] if channel.history.dates else 0, reverse=True)
    after = getattr(request.offset_peer, "channel_id", None) or -getattr(request.offset_peer, "chat_id", 0)
    begin = next((index + 1 for index, channel in enumerate(mine) if channel.channel_id == after), 0)
    shown = mine[begin : begin + min(request.limit, PAGE)]
    tops = [channel.history.raw(channel.history.ids[-1]) for channel in shown if channel.history.ids]
    return types.messages.DialogsSlice(
        len(mine), [updates.dialog(channel) for channel in shown], tops, client.chats(*shown), []
    )


def _file(client: ClientView, request: Any) -> Any:
    _ = client.account
    location, backend = request.location, client.backend
    media_id = getattr(location, "id", None)
    if media_id is None:
        raise Refusal("LOCATION_INVALID")
    if request.limit % 4_096 or 1_048_576 % request.limit:
        raise Refusal("LIMIT_INVALID")
    if request.offset % request.limit and not request.precise:
        raise Refusal("OFFSET_INVALID")
    if location.file_reference != media.reference(backend.period):
        raise Refusal("FILE_REFERENCE_EXPIRED")
    kind = types.storage.FileJpeg() if isinstance(location, types.InputPhotoFileLocation) else _any_file()
    part = _part(backend.files.get(media_id), media_id, request)
    return types.upload.File(kind, int(backend.now()), part)


def _part(uploaded: bytes | None, media_id: int, request: Any) -> bytes:
    if request.location.thumb_size == "m":
        return media.thumbnail(media_id, request.offset, request.limit)
    if uploaded is not None:
        return uploaded[request.offset : request.offset + request.limit]
    return media.content(media_id, request.offset, request.limit)


def _with_references(client: ClientView, messages: list[Any]) -> list[Any]:
    """Return messages with the references of files that are valid now."""
    if not client.backend.period:
        return messages
    first, current = media.reference(0), media.reference(client.backend.period)
    return [Raw(one.data.replace(first, current)) if isinstance(one, Raw) else one for one in messages]


def _any_file() -> Any:
    return types.storage.FileUnknown()


def _begin_takeout(client: ClientView, request: Any) -> Any:
    if not request.message_channels:
        raise Refusal("TAKEOUT_REQUIRED")
    backend, name = client.backend, client.account.name
    backend.takeouts[name] = number(backend.seed, "takeout", name, len(backend.finished_takeouts), backend.now())
    return types.account.Takeout(backend.takeouts[name])


def _end_takeout(client: ClientView, request: Any) -> bool:
    if client.takeout_id is None:
        raise Refusal("TAKEOUT_REQUIRED", 403)
    name = client.account.name
    del client.backend.takeouts[name]
    client.backend.finished_takeouts.append((name, bool(request.success)))
    return True


def _yes(client: ClientView, _request: Any) -> bool:
    _ = client.account
    return True


def _seconds(date: Any) -> int:
    return int(date.timestamp()) if date else 0


METHODS: Mapping[str, Method] = {
    "help.getConfig": _config,
    "users.getUsers": _users,
    "contacts.resolveUsername": _resolve,
    "channels.getChannels": _channels,
    "channels.getFullChannel": _full_channel,
    "channels.getMessages": _by_ids,
    "channels.joinChannel": _join,
    "channels.leaveChannel": _leave,
    "channels.readHistory": _yes,
    "messages.getHistory": _history,
    "messages.getMessages": _own_by_ids,
    "messages.search": _search,
    "messages.getMessagesViews": _views,
    "messages.getForumTopicsByID": _topics,
    "messages.getDialogs": _dialogs,
    "updates.getState": updates.state,
    "updates.getDifference": updates.difference,
    "updates.getChannelDifference": updates.channel_difference,
    "upload.getFile": _file,
    "account.initTakeoutSession": _begin_takeout,
    "account.finishTakeoutSession": _end_takeout,
    "account.updateStatus": _yes,
    "account.getPassword": sign_in.password,
    "auth.sendCode": sign_in.send_code,
    "auth.resendCode": sign_in.send_code,
    "auth.signIn": sign_in.sign_in,
    "auth.checkPassword": sign_in.check_password,
    "auth.logOut": sign_in.log_out,
    "auth.exportAuthorization": sign_in.export_authorization,
    "auth.importAuthorization": sign_in.import_authorization,
}
