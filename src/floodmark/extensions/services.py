"""The services of a process that its sources, sinks and notification channels use."""

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from floodmark.model.clock import Clock

if TYPE_CHECKING:
    # Only for type checkers: a program that imports `floodmark.Services` does not need the database driver.
    from redis.asyncio import Redis

    from floodmark.coordination.partition import Partition
    from floodmark.coordination.signals.port import Signals
    from floodmark.observability.events import Events
    from floodmark.outbound.caller import Caller
    from floodmark.outbound.client import Http
    from floodmark.outbound.polite import PoliteHttp
    from floodmark.settings import Settings
    from floodmark.store.database import Database


class Services(Struct, frozen=True, kw_only=True):
    """The services of one process, for one extension."""

    settings: "Settings"
    """Floodmark's own settings."""
    section: Mapping[str, str]
    """The settings of this extension: `MASTODON_TOKEN` is `section["token"]` of the extension `mastodon`."""
    clock: Clock
    log: Any
    """A structlog logger that names the extension in every line."""
    events: "Events"
    """Emit events here; metrics, logs and traces follow from them."""
    http: "PoliteHttp"
    """GET with the guard against private addresses, per-domain limits, retries and circuit breakers."""
    guarded_http: "Http"
    """The guarded HTTP client without limits and retries: one call sends one request. Can POST."""
    caller: "Caller"
    """Makes any call with a rate limit, a circuit breaker and retries."""
    database: "Database"
    """The connections to Floodmark's database. An extension writes only to its own tables."""
    redis: "Redis | None"
    signals: "Signals"
    """Wakes the scheduler and the workers, in every process."""
    process: str
    """The name of this process, unique in the installation."""
    partition: "Partition"
    """The workers of the installation, and which of them is preferred for a key."""
    threads: Executor
    """Threads for code that blocks."""
    instance: str | None = None
    """The name that the setting SINKS gives to this sink; `section` has its `SINK_<NAME>_...`."""
