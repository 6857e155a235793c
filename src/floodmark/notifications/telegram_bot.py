"""Messages of a Telegram bot. The token is a secret: it is enough to be the bot."""

from html import escape

import msgspec

from floodmark.extensions.services import Services

from .fitting import join_fitting, safe_link, utf16_length
from .port import Notification
from .poster import Poster

_SIGNS = {"trouble": "\N{POLICE CARS REVOLVING LIGHT}", "recovered": "\N{WHITE HEAVY CHECK MARK}", "match": "\N{BELL}"}
# Telegram refuses longer texts. It counts without the tags, so this is on the safe side.
_LONGEST = 4096
_HINT = "compare NOTIFY_TELEGRAM_BOT_TOKEN and NOTIFY_TELEGRAM_CHAT; the bot must be a member of the chat"


def open_telegram_bot(services: Services) -> "TelegramBotChannel | None":
    """Make the channel if NOTIFY_TELEGRAM_BOT_TOKEN and NOTIFY_TELEGRAM_CHAT are set."""
    settings = services.settings
    token, chat = settings.notify_telegram_bot_token, settings.notify_telegram_chat
    if token is None or chat is None:
        return None
    url = f"{settings.notify_telegram_api_url.rstrip('/')}/bot{token.get_secret_value()}/sendMessage"
    return TelegramBotChannel(Poster(services, url, hint=_HINT), chat)


class TelegramBotChannel:
    """Writes into a chat of which the bot is a member."""

    def __init__(self, poster: Poster, chat: str) -> None:
        self._poster, self._chat, self.close = poster, chat, poster.close
        self.where = f"chat {chat} through {poster.host}"

    async def send(self, message: Notification) -> None:
        """Send it; return when Telegram has accepted it."""
        content = {
            "chat_id": self._chat,
            "text": format_telegram(message),
            "parse_mode": "HTML",
            # No previews, which load what a post links to.
            "link_preview_options": {"is_disabled": True},
        }
        await self._poster.post(msgspec.json.encode(content), {"Content-Type": "application/json"})


def format_telegram(message: Notification) -> str:
    """Return the message in Telegram's HTML; markup and mentions in its texts are escaped."""
    head = f"{_SIGNS.get(message.status, '')} <b>{_escape(message.title)}</b>".strip()
    lines = [f"• {_escape(line)}{_link(link)}" for line, link in message.linked_lines()]
    end = f"<i>floodmark on {_escape(message.instance)}, message {message.id[-8:]}</i>"
    return join_fitting(head, lines, end, longest=_LONGEST, measure=utf16_length)


def _link(url: str | None) -> str:
    safe = safe_link(url)
    return "" if safe is None else f' <a href="{escape(safe)}">link</a>'


def _escape(text: str) -> str:
    return escape(text, quote=False).replace("@", "@\u200b")
