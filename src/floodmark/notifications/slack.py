"""An incoming webhook of Slack, or of what understands the same: Mattermost, Rocket.Chat, Discord with `/slack`.

The address is the secret: whoever has it can write into the channel.
"""

import msgspec

from floodmark.extensions.services import Services

from .port import Notification
from .posting import Poster

_SIGNS = {"trouble": ":rotating_light:", "recovered": ":white_check_mark:", "test": ":wave:"}
# Slack cuts a text of more than 4,000 characters into several messages.
_LONGEST = 3_500


def open_slack(services: Services) -> "SlackChannel | None":
    """Make the channel if NOTIFY_SLACK_URL is set."""
    url = services.settings.notify_slack_url
    return None if url is None else SlackChannel(Poster(services, url.get_secret_value()))


class SlackChannel:
    """Writes into the channel that the webhook belongs to."""

    def __init__(self, poster: Poster) -> None:
        self._poster, self.where, self.close = poster, poster.host, poster.close

    async def send(self, message: Notification) -> None:
        """Returns once Slack has taken it."""
        body = msgspec.json.encode({"text": text_of(message)})
        await self._poster.post(body, {"Content-Type": "application/json"})


def text_of(message: Notification) -> str:
    """The message as Slack formats it; what stands in it is shown and never obeyed."""
    lines = [f"{_SIGNS[message.status]} *{_shown(message.title)}*"]
    lines += [f"• {_shown(line)}" for line in message.lines]
    text = "\n".join(lines)
    # The id is what tells a repetition from something new.
    end = f"\n_floodmark on {_shown(message.instance)}, message {message.id[-8:]}_"
    return text[: _LONGEST - len(end)] + end


def _shown(text: str) -> str:
    """Without what would become a link, a mention or a font: `<!channel>` wakes everyone."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("*", "∗").replace("`", "ˋ").replace("@", "@\u200b")
