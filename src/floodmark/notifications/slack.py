"""An incoming webhook of Slack, or of what understands the same: Mattermost, Rocket.Chat, Discord with `/slack`.

The address is the secret: whoever has it can write into the channel.
"""

from typing import Final
from urllib.parse import urlsplit

import msgspec

from floodmark.outbound.client import Http

from .port import ChannelName, Message
from .posting import post

_SIGNS = {"trouble": ":rotating_light:", "recovered": ":white_check_mark:", "test": ":wave:"}
# Slack cuts a text of more than 4,000 characters into several messages.
_LONGEST = 3_500


class Slack:
    """Writes into the channel that the webhook belongs to."""

    name: Final[ChannelName] = "slack"

    def __init__(self, http: Http, url: str) -> None:
        self._http, self._url = http, url
        self.where = urlsplit(url).hostname or ""

    async def send(self, message: Message) -> None:
        """Returns once Slack has taken it."""
        body = msgspec.json.encode({"text": text_of(message)})
        await post(self._http, self._url, body, {"Content-Type": "application/json"})


def text_of(message: Message) -> str:
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
