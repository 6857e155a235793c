"""Updates since a client was last connected: `updates.*`."""

from typing import Any

from telethon.tl import types

from .backend import Channel, ChannelChange
from .client_view import ClientView

# A client that missed more updates of a channel gets only its current state.
TOO_LONG = 100
# The account itself has no updates, so its counter is constant; 0 would mean that it is unknown.
_ACCOUNT_PTS = 1


def state(client: ClientView, _request: Any) -> Any:
    """`updates.getState`"""
    _ = client.account
    return types.updates.State(_ACCOUNT_PTS, 0, int(client.backend.now()), 0, 0)


def difference(client: ClientView, request: Any) -> Any:
    """`updates.getDifference`: returns the channels that changed since then."""
    account, now = client.account, int(client.backend.now())
    since = int(request.date.timestamp()) if request.date else 0
    moved = [c for c in client.backend.channels.values() if _has_news(c, account.name, since)]
    if not moved:
        return types.updates.DifferenceEmpty(now, 0)
    updates = [types.UpdateChannelTooLong(channel.channel_id, channel.pts) for channel in moved]
    return types.updates.Difference([], [], updates, client.chats(*moved), [], state(client, request))


def _has_news(channel: Channel, account: str, since: int) -> bool:
    return not channel.is_basic and channel.has_member(account) and channel.moved_at >= max(since, 1)


def channel_difference(client: ClientView, request: Any) -> Any:
    """`updates.getChannelDifference`"""
    channel = client.channel(request.channel)
    if request.pts >= channel.pts:
        return types.updates.ChannelDifferenceEmpty(channel.pts, final=True, timeout=30)
    missed = _missed(channel, request.pts)
    if missed is None:
        raw = channel.history.page(limit=20)
        return types.updates.ChannelDifferenceTooLong(
            dialog(channel), [message for _, message in raw], client.chats(channel), [], final=True, timeout=30
        )
    return types.updates.ChannelDifference(
        channel.pts,
        [change.message for change in missed if change.message is not None],
        [change.update for change in missed if change.message is None],
        client.chats(channel),
        [],
        final=True,
        timeout=30,
    )


def dialog(channel: Channel) -> Any:
    """Return a dialog of an account for a channel, with its update counter."""
    top = channel.history.ids[-1] if channel.history.ids else 0
    return types.Dialog(channel.peer, top, top, top, 0, 0, 0, 0, types.PeerNotifySettings(), pts=channel.pts)


def _missed(channel: Channel, pts: int) -> list[ChannelChange] | None:
    missed = [change for change in channel.changes if change.pts > pts]
    if not missed or missed[0].pts - missed[0].pts_count > pts or len(missed) > TOO_LONG:
        return None
    return missed
