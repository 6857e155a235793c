"""Channels that people are notified over: Slack, e-mail and others."""

from typing import Annotated

from floodmark.model.notification_channels import ChannelRow, ChannelTest

from .declaration import WHOLE_LIST, Path, get, post
from .words import Name

_TAG = "Notifications"

NotificationChannelName = Annotated[Name, Path("The name of a channel.", name="channel", examples=["slack"])]


class NotificationOperations:
    """List channels and send test messages over them."""

    @get("/notifications/channels", tag=_TAG, operation_id="list_notification_channels", envelope=WHOLE_LIST)
    async def notification_channels(self) -> list[ChannelRow]:
        """List channels for notifications. These are the configured ones and those that watches name, by name."""

    @post(
        "/notifications/channels/{channel}/test",
        tag=_TAG,
        answers={409: "This process does not have its settings.", 502: "The receiver did not accept it."},
    )
    async def test_notification_channel(self, name: NotificationChannelName) -> ChannelTest:
        """Send a test message over a channel. The process that responds has to have its settings."""
