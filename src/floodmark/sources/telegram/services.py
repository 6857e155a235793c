"""The services and tables that the Telegram source uses."""

from msgspec import Struct, field

from floodmark.coordination.partition import Partition
from floodmark.extensions.services import Services
from floodmark.model.clock import Clock
from floodmark.observability.events import Events
from floodmark.outbound.caller import Caller
from floodmark.repositories.hints import Hints
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.collected_items import CollectedItems
from floodmark.store.database import Database

from .accounts import Accounts
from .channels import Channels
from .engagement import Engagement
from .preview.client import PreviewClient
from .updates import PushedUpdates


class TelegramServices(Struct, frozen=True, kw_only=True):
    """The services and tables that the Telegram source uses."""

    settings: Settings
    database: Database
    accounts: Accounts
    channels: Channels
    collected: CollectedItems
    engagement: Engagement
    calls: Caller
    clock: Clock
    events: Events
    updates: PushedUpdates
    holder: str
    """The name of this process, which holds the leases of its sessions."""
    partition: Partition
    preview: PreviewClient
    topics: dict[tuple[int, int], str] = field(default_factory=dict)
    """The titles of topics by channel and topic, as far as this process knows them."""

    @classmethod
    def of(cls, services: Services) -> "TelegramServices":
        """Return them for the services of a process."""
        database, clock, events = services.database, services.clock, services.events
        channels = Channels(database, clock)
        return cls(
            settings=services.settings,
            database=database,
            accounts=Accounts(database, clock, Vault.of(services.settings), events),
            channels=channels,
            collected=CollectedItems(database),
            engagement=Engagement(database),
            calls=services.caller,
            clock=clock,
            events=events,
            updates=PushedUpdates(channels, Hints(database, clock), services.signals, events),
            holder=services.process,
            partition=services.partition,
            preview=PreviewClient(services),
        )
