"""Incoming webhooks of Slack and compatible services: Mattermost, Rocket.Chat, Discord with `/slack`.

The URL is a secret: it is enough to write into the channel.
"""

import msgspec

from floodmark.extensions.services import Services

from .fitting import join_fitting, safe_link
from .port import Notification
from .poster import Poster

_SIGNS = {"trouble": ":rotating_light:", "recovered": ":white_check_mark:", "match": ":bell:", "test": ":wave:"}
# Slack splits a text of more than 4,000 characters.
_LONGEST = 3_500


def open_slack(services: Services) -> "SlackChannel | None":
    """Make the channel if NOTIFY_SLACK_URL is set."""
    url = services.settings.notify_slack_url
    return None if url is None else SlackChannel(Poster(services, url.get_secret_value()))


class SlackChannel:
    """Writes into the channel of the webhook."""

    def __init__(self, poster: Poster) -> None:
        self._poster, self.where, self.close = poster, poster.host, poster.close

    async def send(self, message: Notification) -> None:
        """Send it; return when Slack has accepted it."""
        body = msgspec.json.encode({"text": format_text(message)})
        await self._poster.post(body, {"Content-Type": "application/json"})


def format_text(message: Notification) -> str:
    """Return the message in Slack's markup; markup in its texts is escaped."""
    head = f"{_SIGNS[message.status]} *{_escape(message.title)}*"
    lines = [f"• {_escape(line)}{_link(link)}" for line, link in message.linked_lines()]
    # The id distinguishes a repeated message from a new one.
    end = f"_floodmark on {_escape(message.instance)}, message {message.id[-8:]}_"
    return join_fitting(head, lines, end, longest=_LONGEST)


def _link(url: str | None) -> str:
    safe = safe_link(url)
    return "" if safe is None else f" <{safe.replace('&', '&amp;')}>"


def _escape(text: str) -> str:
    """Escape links, formatting and mentions: `<!channel>` notifies everyone."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("*", "∗").replace("`", "ˋ").replace("@", "@\u200b")
