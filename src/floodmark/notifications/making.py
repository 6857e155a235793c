"""From settings to channels, and to the notifier that sends over them."""

from datetime import timedelta
from urllib.parse import urlsplit

from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.model.notification_kinds import addresses_of, kinds_of
from floodmark.observability.events import Events
from floodmark.outbound.client import Http
from floodmark.outbound.guard import Guard
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from .deciding import Pace
from .email import Email
from .noticing import Noticing
from .notifier import Leading, Notifier
from .port import Channel
from .slack import Slack
from .webhook import Webhook


def http_for(settings: Settings, events: Events | None = None) -> Http:
    """What posts. The hosts in NOTIFY_SLACK_URL and NOTIFY_WEBHOOK_URL may be private: whoever set them knows."""
    urls = [url.get_secret_value() for url in (settings.notify_slack_url, settings.notify_webhook_url) if url]
    named = [urlsplit(url).hostname or "" for url in urls]
    return Http(
        Guard(allowed_hosts(",".join([settings.http_allow_hosts or "", *named]))),
        user_agent=settings.http_user_agent or "floodmark",
        resolve=resolved_hosts(settings.http_resolve),
        events=events,
    )


def channels_of(settings: Settings, http: Http) -> list[Channel]:
    """Each that is configured."""
    found: list[Channel] = []
    if settings.notify_slack_url is not None:
        found.append(Slack(http, settings.notify_slack_url.get_secret_value()))
    if settings.notify_webhook_url is not None:
        secret = settings.notify_webhook_secret
        url = settings.notify_webhook_url.get_secret_value()
        found.append(Webhook(http, url, None if secret is None else secret.get_secret_value()))
    if settings.notify_email_to is not None and settings.notify_email_smtp_url is not None:
        sender = settings.notify_email_from or f"floodmark@{settings.hostname}"
        found.append(Email(settings.notify_email_smtp_url, to=addresses_of(settings.notify_email_to), sender=sender))
    return found


def notifier_of(parts: Resources, leader: Leading) -> Notifier:
    """What tells people of the trouble of this installation."""
    settings, http = parts.settings, http_for(parts.settings, parts.events)
    age = timedelta(hours=settings.lpa_max_age_hours)
    return Notifier(
        Noticing(parts.database, parts.clock, telegram_max_age=age),
        leader,
        parts.events,
        channels_of(settings, http),
        kinds=kinds_of(settings.notify_on),
        pace=Pace(debounce=settings.notify_debounce, group_wait=settings.notify_group_wait),
        instance=settings.hostname,
        http=http,
    )
