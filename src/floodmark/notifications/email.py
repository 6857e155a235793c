"""E-mail over SMTP: `smtp://` with STARTTLS if the server offers it, `smtps://` with TLS from the start.

Credentials are never sent without TLS, unless the server is on this machine.
"""

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from concurrent.futures import Executor
from email.message import EmailMessage
from email.utils import format_datetime
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

import structlog

from floodmark.extensions.services import Services
from floodmark.model.notification_kinds import addresses_of
from floodmark.process.threads import DaemonThreads
from floodmark.security.masking import MASK, mask_text

from .fitting import safe_link
from .port import Notification, NotSent

_PORTS = {"smtp": 587, "smtps": 465}
# For each step of the SMTP dialog.
_TIMEOUT_SECONDS = 15.0


def open_email(services: Services) -> "EmailChannel | None":
    """Make the channel if NOTIFY_EMAIL_TO and NOTIFY_EMAIL_SMTP_URL are set."""
    settings = services.settings
    if settings.notify_email_to is None or settings.notify_email_smtp_url is None:
        return None
    sender = settings.notify_email_from or f"floodmark@{settings.hostname}"
    return EmailChannel(settings.notify_email_smtp_url, to=addresses_of(settings.notify_email_to), sender=sender)


class EmailChannel:
    """Sends to everyone in `to`, from `sender`."""

    def __init__(self, smtp_url: str, *, to: Sequence[str], sender: str, threads: Executor | None = None) -> None:
        url = urlsplit(smtp_url)
        self._host, self._is_tls = url.hostname or "", url.scheme == "smtps"
        self._port = url.port or _PORTS[url.scheme]
        self._user, self._password = unquote(url.username or ""), unquote(url.password or "")
        self._to, self._sender = tuple(to), sender
        # A thread that hangs must not keep a stopping process alive.
        self._threads = threads or DaemonThreads(1)
        self.where = f"{', '.join(self._to)} through {self._host}"

    async def send(self, message: Notification) -> None:
        """Send it; return when the server has accepted it."""
        letter = build_email(message, to=self._to, sender=self._sender)
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._send, letter)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise NotSent(self._explain(error), hint="check NOTIFY_EMAIL_SMTP_URL and the log of the server") from None

    async def close(self) -> None:
        """Do nothing: each message has its own connection."""

    def _send(self, letter: EmailMessage) -> None:
        with self._connect() as server:
            if not self._is_tls:
                server.ehlo()
                if server.has_extn("starttls"):
                    server.starttls(context=ssl.create_default_context())
                    server.ehlo()
                elif self._user and not _is_here(self._host):
                    raise smtplib.SMTPNotSupportedError(
                        "the server offers no STARTTLS, and a password is not sent without TLS"
                    )
            if self._user:
                server.login(self._user, self._password)
            refused = server.send_message(letter)
        if refused:
            # The other recipients have it and would get it twice.
            structlog.get_logger().warning("mail refused", to=sorted(refused))

    def _connect(self) -> smtplib.SMTP:
        if self._is_tls:
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=context)
        return smtplib.SMTP(self._host, self._port, timeout=_TIMEOUT_SECONDS)

    def _explain(self, error: Exception) -> str:
        """Return the error in one line, without the password."""
        match error:
            case smtplib.SMTPRecipientsRefused(recipients=refused):
                code, said = next(iter(refused.values()))
                text = f"refuses {', '.join(refused)}: {code} {_text(said)}"
            case smtplib.SMTPResponseException(smtp_code=code, smtp_error=said):
                text = f"answered {code} {_text(said)}"
            case ssl.SSLCertVerificationError():
                text = f"has an invalid certificate: {error.verify_message}"
            case TimeoutError():
                text = "does not answer in time"
            case _:
                text = f"cannot be used: {error}"
        if self._password:
            text = text.replace(self._password, MASK)
        return mask_text(" ".join(f"the mail server {self._host}:{self._port} {text}".split()))


def build_email(message: Notification, *, to: Sequence[str], sender: str) -> EmailMessage:
    """Return the message as e-mail. Its Message-ID is the id of the message, so that mail programs show it once."""
    letter = EmailMessage()
    letter["Subject"] = f"[floodmark] {message.title}"
    letter["From"], letter["To"] = sender, ", ".join(to)
    letter["Date"] = format_datetime(message.at)
    letter["Message-ID"] = f"<{message.id}@floodmark>"
    # Suppresses automatic replies.
    letter["Auto-Submitted"] = "auto-generated"
    end = f"-- \nfloodmark on {message.instance}, message {message.id}"
    lines = [f"- {line}{_link(link)}" for line, link in message.linked_lines()]
    letter.set_content("\n".join([message.title, "", *lines, "", end, ""]))
    return letter


def _link(url: str | None) -> str:
    safe = safe_link(url)
    return "" if safe is None else f"\n  {safe}"


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said
