"""Loads installed and configured channels, and builds the notifier that sends over them."""

from collections.abc import Callable

from floodmark.extensions.services import Services
from floodmark.model.notification_kinds import kinds_of
from floodmark.process.entry_points import find_extensions, load_extension
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for

from .decisions import NotificationPace
from .notifier import Leading, Notifier
from .port import CHANNELS, NotificationChannel, OpenChannel
from .trouble_repository import TroubleRepository


def open_channels(services_for: Callable[[str], Services]) -> dict[str, NotificationChannel]:
    """Return every configured channel by the name of its entry point."""
    found: dict[str, NotificationChannel] = {}
    for name in sorted(find_extensions(CHANNELS)):
        open_channel: OpenChannel = load_extension(CHANNELS, name)
        channel = open_channel(services_for(name))
        if channel is not None:
            found[name] = channel
    return found


def build_notifier(resources: Resources, leader: Leading) -> Notifier | None:
    """Return the notifier of this installation; None if no channel is configured."""
    settings, channels = resources.settings, open_channels(lambda name: services_for(resources, name))
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
