"""Loads installed and configured channels, and builds the notifier that sends over them."""

from collections.abc import Callable

from floodmark.extensions.services import Services
from floodmark.model.notification_kinds import kinds_of
from floodmark.process.entry_points import open_extensions
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for

from .decisions import NotificationPace
from .notifier import Leading, Notifier
from .port import CHANNELS, NotificationChannel
from .trouble_repository import TroubleRepository


def open_channels(services_for: Callable[[str], Services]) -> dict[str, NotificationChannel]:
    """Return every configured channel by the name of its entry point."""
    return open_extensions(CHANNELS, services_for)


async def configured_channels(resources: Resources) -> list[str]:
    """Return the names of the configured channels."""
    opened = open_channels(lambda name: services_for(resources, name))
    for channel in opened.values():
        await channel.close()
    return list(opened)


def build_notifier(resources: Resources, leader: Leading) -> Notifier | None:
    """Return the notifier of this installation; None if no channel is configured, or NOTIFY_ON is none."""
    settings = resources.settings
    channels = open_channels(lambda name: services_for(resources, name)) if kinds_of(settings.notify_on) else {}
    if not channels:
        return None
    return Notifier(
        TroubleRepository(resources.database, resources.clock, resources.repositories.staleness),
        leader,
        resources.events,
        channels,
        kinds=kinds_of(settings.notify_on),
        pace=NotificationPace(debounce=settings.notify_debounce, group_wait=settings.notify_group_wait),
        instance=settings.hostname,
    )
