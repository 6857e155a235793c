"""Floodmark: a distributed scheduler for incremental collection.

triggers  ->  scheduler  ->  queue  ->  worker  ->  sources   ->  sinks
  when        what is due    hands out   runs one     fetch what     keep items
                                         lease        is newer       and move the watermark

The flow:

    triggers/     when a job is due: cron, interval, calendar, once; what else may fire it; its next runs
    scheduler/    the leader's step: which jobs are due, and which of their instants fire
    queue/        hands executions out: on rows of the database, or on Redis Streams
    worker/       runs executions in slots: a lease goes in, an outcome comes out
    sources/      where items come from: Python functions, Telegram, feeds, sites, cookies
    sinks/        where they go: the store, then events, Redis and files

What travels along it:

    job.py        which target of which source, when, and under which policy
    spec.py       what a person says of a job that is to be made
    execution.py  one due run of a job, its states, and the legal moves between them
    batch.py      items, and the watermark they lead to
    outcome.py    how an execution ended
    notes.py      what people should know about a run that went well all the same
    posts.py      posts of channels as items, and the events that tell of them
    shapes.py     all of these as JSON
    strict_json.py  JSON that others wrote, bounded in depth

What it stands on:

    store/        the truth: every table, on SQLite and PostgreSQL
    signals/      wake-ups between processes, a hint only
    leases/       at most one holder of a name: the leader
    liveness/     locks that end with their process, so that its death is noticed at once
    calls/        how others are called: limits, paces, retries, breakers
    http/         every request to the web: guarded, bounded, polite
    upkeep/       loops beside the flow: leader, rescuer, requeuer, pruner
    incoming/     triggers from outside: webhooks, channels and streams of Redis
    sync/         schedules that another program keeps
    moving/       moving over from another scheduler
    compat/       names that programs written for other schedulers import
    fetching.py   certain days of certain chats, here and now
    patience.py   when a fetch gives up on Telegram
    telemetry/    what happened, as events; metrics and logs listen; traces
    notifying/    tells people of trouble: Slack, webhooks, e-mail
    schemas/      JSON Schemas of what leaves

Who asks and tells:

    office/       every verb, once: on this installation, or on a server
    cli/          commands, over the office
    api/          HTTP, over the office
    client/       that API from another program
    app.py        Floodmark for Python developers: declare collectors, run them
    explain.py    why a job is not running, in one sentence
    health.py     is all well? for load balancers
    doctor.py     is all well? examined thoroughly
    demo/         see it at work
    testing/      for tests of yours: contracts, a clock, a Telegram and a web on this machine

How a process is made:

    settings/     every key, where it came from, and the page about them
    parts.py      what one process has opened: the module that knows every adapter
    installation.py  one prefix in Redis belongs to one database
    roles.py      what a process does: schedule, work, or both
    eventloop.py  the fastest loop there is
    threads.py    threads for functions that block
    leaving.py    ends a process that hangs after its grace
    failpoints.py where a test can kill it

Small things:

    clock.py ids.py durations.py when.py     time, names, lengths of time, and how people say when
    errors.py masking.py vault.py            what went wrong, what may be shown, what is kept secret
    validation.py                            the one check of jobs and params, for every way in
    lua.py redis_errors.py                   scripts for Redis; what its client raises, without importing it
    redis_connecting.py                      connections to Redis that cannot hang
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .app import Floodmark
    from .batch import Batch, Item, Watermark
    from .errors import AccountLost, FloodmarkError, Gone, InvalidInput, Permanent, SlowDown, TargetDenied, Transient
    from .job import CatchUp, Job, Overlap, Priority
    from .settings import Settings
    from .sources.port import Context, Source, Target
else:
    from importlib import import_module

    # Loaded when first asked for: the whole takes a second, and `floodmark --help` needs none of it.
    _HOMES = {
        "app": ("Floodmark",),
        "batch": ("Batch", "Item", "Watermark"),
        "errors": (
            "AccountLost",
            "FloodmarkError",
            "Gone",
            "InvalidInput",
            "Permanent",
            "SlowDown",
            "TargetDenied",
            "Transient",
        ),
        "job": ("CatchUp", "Job", "Overlap", "Priority"),
        "settings": ("Settings",),
        "sources.port": ("Context", "Source", "Target"),
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
    "Floodmark",
    "FloodmarkError",
    "Gone",
    "InvalidInput",
    "Item",
    "Job",
    "Overlap",
    "Permanent",
    "Priority",
    "Settings",
    "SlowDown",
    "Source",
    "Target",
    "TargetDenied",
    "Transient",
    "Watermark",
]
