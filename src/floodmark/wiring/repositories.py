"""The repositories of one process, built once. Each reads and writes the tables of one concern."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self

from msgspec import Struct

from floodmark.model.clock import Clock
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.limits import Limits
from floodmark.repositories.audit import AuditLog
from floodmark.repositories.budgets import Budgets
from floodmark.repositories.consumers import Consumers
from floodmark.repositories.days import StreamDays
from floodmark.repositories.dead_letters import DeadLetters
from floodmark.repositories.events import EventLog
from floodmark.repositories.fleet import FleetRepository
from floodmark.repositories.history import ExecutionHistory
from floodmark.repositories.item_pages import ItemPages
from floodmark.repositories.jobs import Jobs
from floodmark.repositories.ledgers import Ledgers
from floodmark.repositories.minutes import Minutes
from floodmark.repositories.proofs import Proofs
from floodmark.repositories.staleness import Staleness
from floodmark.repositories.watermarks import Watermarks
from floodmark.sinks.letters import SinkLetters
from floodmark.sinks.repository import SinkRepository
from floodmark.store.database import Database


class Repositories(Struct, frozen=True, kw_only=True):
    """Repositories of the core. Sources, triggers and the API build those of their own tables."""

    jobs: Jobs
    budgets: Budgets
    executions: ExecutionHistory
    dead_letters: DeadLetters
    watermarks: Watermarks
    events: EventLog
    item_pages: ItemPages
    consumers: Consumers
    days: StreamDays
    minutes: Minutes
    ledgers: Ledgers
    proofs: Proofs
    sinks: SinkRepository
    sink_letters: SinkLetters
    fleet: FleetRepository
    audit: AuditLog
    limits: Limits
    breakers: Breakers
    staleness: Staleness

    @classmethod
    def of(
        cls,
        database: Database,
        clock: Clock,
        *,
        find_patience: Callable[[], Mapping[str, timedelta]],
        default_budget: float,
    ) -> Self:
        """Return the repositories of a database. `default_budget`: the requests a minute of the budget `default`.

        `find_patience` returns for how long each source catches up by itself: see `Staleness`.
        """
        budgets = Budgets(database, clock, default_per_minute=default_budget)
        events, consumers = EventLog(database, clock), Consumers(database, clock)
        return cls(
            jobs=Jobs(database, clock, budgets),
            budgets=budgets,
            executions=ExecutionHistory(database, clock),
            dead_letters=DeadLetters(database, clock),
            watermarks=Watermarks(database, clock),
            events=events,
            item_pages=ItemPages(database, clock),
            consumers=consumers,
            days=StreamDays(database, clock, events, consumers),
            minutes=Minutes(database, clock),
            ledgers=Ledgers(database, clock),
            proofs=Proofs(database, clock, events, consumers),
            sinks=SinkRepository(database, clock),
            sink_letters=SinkLetters(database, clock),
            fleet=FleetRepository(database, clock),
            audit=AuditLog(database, clock),
            limits=Limits(database, clock),
            breakers=Breakers(database, clock),
            staleness=Staleness(database, clock, find_patience=find_patience),
        )
