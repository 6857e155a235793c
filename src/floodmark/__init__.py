"""Floodmark: a distributed scheduler for incremental collection.

triggers  ->  scheduler  ->  queue  ->  worker  ->  sources   ->  sinks
  when        what is due    hands out   runs one     fetch what     keep items
                                         lease        is newer       and move the watermark

Packages, from the bottom up. Imports go down only (`.importlinter`).

Values and decisions:

    errors.py       every error, with the next step for the user
    version.py      the version of this package
    model/          values that travel: Job, Execution, Item, Batch, Outcome; clock, ids, durations
    process/        one operating system process: event loop, threads, lock files, failpoints for tests
    security/       encryption of secrets, masking of secrets in output
    settings/       every setting: name, default, bounds, origin
    triggers/       when a job is due: cron, interval, calendar, once
    rules/          pure decisions: planning, may it start, rank, stream name, outcomes, backoff, freshness, explanation

Ports and adapters:

    observability/  events, logs, metrics, traces
    store/          the database: tables of the core, migrations, the steps of the protocol on PostgreSQL and SQLite
    repositories/   one repository per table of the core: what people and programs read and change
    search/         full-text search: tokens, the query language, an index on SQLite and on PostgreSQL
    coordination/   leases, signals, leadership, services and their runner, connections to Redis
    outbound/       every call that leaves the process: guarded HTTP, rate limits, circuit breakers, retries
    extensions/     what sources, sinks and notification channels get from the process they run in
    queue/          hands out executions: SQL rows or Redis Streams
    sources/        where items come from: python, telegram, web, feed, cookies; each with its own tables
    sinks/          where items go: the store; where events go: Redis streams, webhooks, Kafka, files
    wiring/         opens all of these for one process, and builds its repositories once

Stages and services:

    scheduler/      fires what is due; the leader's maintenance: rescuer, requeuer, pruner
    worker/         runs executions: a lease goes in, an outcome comes out
    inbound/        external triggers: webhooks, Redis messages
    notifications/  Slack, Discord, Telegram, e-mail and webhook messages about trouble
    watches/        notify people of items that match, and of sources that are gone or late
    sync/           jobs that another program keeps
    importers/      moves jobs over from other schedulers

What people and programs use:

    operations/     everything a person or program can ask for
    exports/        stored items as files: JSON lines, CSV, Parquet, spreadsheets
    client/         the HTTP client, asynchronous and blocking
    api/            the HTTP API
    dashboard/      pages in a browser
    runtime/        the roles of a process, each a list of services; several processes
    app.py          `Floodmark`, the class that programs import
    testing/        contract suites and loopback servers for tests
    compat/         names that programs written for other schedulers import
    demo/           the demo
    cli/            the command line
    schemas/        JSON Schemas of exported events and files
"""

from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from .app import Floodmark
    from .errors import (
        AccountLost,
        EventsDeleted,
        FloodmarkError,
        Gone,
        InvalidInput,
        Permanent,
        SlowDown,
        TargetDenied,
        Transient,
    )
    from .extensions.services import Services
    from .model.batch import Batch, Item, Watermark
    from .model.completeness import Coverage, Gap, Trouble
    from .model.job import CatchUp, Job, Overlap, Priority
    from .model.streams import StoredItem
    from .operations.event_consumer import EventConsumer
    from .settings import Settings
    from .sinks.port import EventSink
    from .sources.columns import ExportColumn
    from .sources.form import JobForm, ParamOption
    from .sources.port import Context, Source, Target
    from .store.port import Event
else:
    from importlib import import_module

    # Loaded when first asked for: the whole takes a second, and `floodmark --help` needs none of it.
    _HOMES = {
        "app": ("Floodmark",),
        "extensions.services": ("Services",),
        "model.batch": ("Batch", "Item", "Watermark"),
        "model.completeness": ("Coverage", "Gap", "Trouble"),
        "errors": (
            "AccountLost",
            "EventsDeleted",
            "FloodmarkError",
            "Gone",
            "InvalidInput",
            "Permanent",
            "SlowDown",
            "TargetDenied",
            "Transient",
        ),
        "model.job": ("CatchUp", "Job", "Overlap", "Priority"),
        "model.streams": ("StoredItem",),
        "operations.event_consumer": ("EventConsumer",),
        "settings": ("Settings",),
        "sinks.port": ("EventSink",),
        "sources.columns": ("ExportColumn",),
        "sources.form": ("JobForm", "ParamOption"),
        "sources.port": ("Context", "Source", "Target"),
        "store.port": ("Event",),
    }

    def __getattr__(name):
        """Import the module a public name lives in."""
        for home, names in _HOMES.items():
            if name in names:
                globals()[name] = getattr(import_module(f".{home}", __name__), name)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        """What is here, loaded or not."""
        return sorted({*globals(), *__all__})


__all__ = [
    "AccountLost",
    "Batch",
    "CatchUp",
    "Context",
    "Coverage",
    "Event",
    "EventConsumer",
    "EventSink",
    "EventsDeleted",
    "ExportColumn",
    "Floodmark",
    "FloodmarkError",
    "Gap",
    "Gone",
    "InvalidInput",
    "Item",
    "Job",
    "JobForm",
    "Overlap",
    "ParamOption",
    "Permanent",
    "Priority",
    "Services",
    "Settings",
    "SlowDown",
    "Source",
    "StoredItem",
    "Target",
    "TargetDenied",
    "Transient",
    "Trouble",
    "Watermark",
    "__version__",
]
