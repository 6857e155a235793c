"""What the Telegram source asks of the rest of Floodmark."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from floodmark.errors import SlowDown
from floodmark.extensions.services import Services
from floodmark.model.accounts import AccountRow
from floodmark.model.clock import Clock
from floodmark.observability.events import Events
from floodmark.outbound.caller import CallKey
from floodmark.security.vault import Vault
from floodmark.sources.recall import Held, Recall

from .accounts import Accounts, TelegramAccount
from .channels import Acquaintance, Channels, KnownChannel

T = TypeVar("T")


class AccountStore(Protocol):
    """Logins, and who has their session open."""

    async def names(self, tenant_id: str | None = None) -> Sequence[AccountRow]:
        """Those that can be used for a tenant; without one, all that can be used."""
        ...

    async def parked(self, tenant_id: str | None = None) -> Sequence[AccountRow]:
        """Those that a tenant could use if they were not parked."""
        ...

    async def show(self, name: str) -> AccountRow:
        """One without its secrets; `NotFound`."""
        ...

    async def get(self, name: str) -> TelegramAccount:
        """One with its secrets; `NotFound`."""
        ...

    async def lease(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the right to open its session; False while another has it."""
        ...

    async def release(self, name: str, *, holder: str) -> None:
        """Give that right back."""
        ...

    async def park(self, name: str, reason: str, *, seen: AccountRow | None = None) -> bool:
        """It can no longer be used, unless it was stored anew since it was `seen`."""
        ...


class ChannelStore(Protocol):
    """What accounts know of channels."""

    async def known(
        self, account: str, *, channel_id: int | None = None, username: str | None = None
    ) -> KnownChannel | None:
        """A channel by its number, else by its name."""
        ...

    async def acquaintances(
        self, *, channel_id: int | None = None, username: str | None = None
    ) -> Mapping[str, Acquaintance]:
        """Which accounts know it, and how many others they know."""
        ...

    async def last_name(self, channel_id: int) -> str | None:
        """The name under which any account saw a channel last."""
        ...

    async def remember(self, channel: KnownChannel) -> None:
        """Keep what is known now."""
        ...

    async def forget(self, account: str, channel_id: int) -> None:
        """It was wrong."""
        ...


class Memory(Protocol):
    """What was collected before."""

    async def checked_at(self, stream: str) -> datetime | None:
        """When a stream was last collected to its end."""
        ...

    async def held(self, stream: str, *, since: datetime, after: Held | None, limit: int) -> Sequence[Held]:
        """Items from a moment on that are not gone, oldest first."""
        ...

    async def data(self, stream: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """What was kept of these items."""
        ...

    async def count_jobs(self, source: str) -> int:
        """How many jobs a source has."""
        ...


class Calls(Protocol):
    """How a call is made: `floodmark.outbound`."""

    async def call(self, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        """Make it within its limits, again if it met a passing fault."""
        ...

    async def load(self, scope: str) -> None:
        """Read what holds for a scope."""
        ...

    async def wait_of(self, scope: str, method: str) -> SlowDown | None:
        """What stands in the way of a call right now."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """All of it."""

    accounts: AccountStore
    channels: ChannelStore
    memory: Memory
    calls: Calls
    clock: Clock
    events: Events
    holder: str
    """Who we are: the process that sessions are leased to."""

    @classmethod
    def of(cls, services: Services) -> "Ports":
        """Read and write the tables of this source with the services of a process."""
        database, clock = services.database, services.clock
        return cls(
            accounts=Accounts(database, clock, Vault.of(services.settings), services.events),
            channels=Channels(database, clock),
            memory=Recall(database),
            calls=services.caller,
            clock=clock,
            events=services.events,
            holder=services.process,
        )
