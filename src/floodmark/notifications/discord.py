"""Webhooks of Discord. The URL is a secret: it is enough to write into the channel."""

import re

import msgspec

from floodmark.extensions.services import Services

from .fitting import join_fitting, safe_link, utf16_length
from .port import Notification
from .poster import Poster

_SIGNS = {"trouble": "\N{POLICE CARS REVOLVING LIGHT}", "recovered": "\N{WHITE HEAVY CHECK MARK}", "match": "\N{BELL}"}
# Discord refuses longer texts.
_LONGEST = 2000
# SUPPRESS_EMBEDS: no previews, which load what a post links to.
_FLAGS = 1 << 2
_MARKUP = re.compile(r"[\\*_~`|>#\[\]()<:-]")


def open_discord(services: Services) -> "DiscordChannel | None":
    """Make the channel if NOTIFY_DISCORD_URL is set."""
    url = services.settings.notify_discord_url
    return None if url is None else DiscordChannel(Poster(services, url.get_secret_value()))


class DiscordChannel:
    """Writes into the channel of the webhook."""

    def __init__(self, poster: Poster) -> None:
        self._poster, self.where, self.close = poster, poster.host, poster.close

    async def send(self, message: Notification) -> None:
        """Send it; return when Discord has accepted it."""
        # Nobody is mentioned, whatever the text says.
        content = {"content": format_discord(message), "flags": _FLAGS, "allowed_mentions": {"parse": []}}
        await self._poster.post(msgspec.json.encode(content), {"Content-Type": "application/json"})


def format_discord(message: Notification) -> str:
    """Return the message in Discord's markup; markup and mentions in its texts are escaped."""
    head = f"{_SIGNS.get(message.status, '')} **{_escape(message.title)}**".strip()
    lines = [f"• {_escape(line)}{_link(link)}" for line, link in message.linked_lines()]
    end = f"_floodmark on {_escape(message.instance)}, message {message.id[-8:]}_"
    return join_fitting(head, lines, end, longest=_LONGEST, measure=utf16_length)


def _link(url: str | None) -> str:
    safe = safe_link(url)
    return "" if safe is None else f" <{safe}>"


def _escape(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", text).replace("@", "@\u200b")
