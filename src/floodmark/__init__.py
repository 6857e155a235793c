"""Floodmark: a distributed scheduler for incremental collection.

triggers  ->  scheduler  ->  queue  ->  worker  ->  sources   ->  sinks
  when        what is due    hands out   runs one     fetch what     keep items
                                         lease        is newer       and move the watermark
"""

__version__ = "0.1.0"

from .app import Floodmark
from .batch import Batch, Item, Watermark
from .errors import AccountLost, FloodmarkError, Gone, InvalidInput, Permanent, SlowDown, Transient
from .job import Job, Priority
from .settings import Settings
from .sources.port import Context, Source, Target

__all__ = [
    "AccountLost",
    "Batch",
    "Context",
    "Floodmark",
    "FloodmarkError",
    "Gone",
    "InvalidInput",
    "Item",
    "Job",
    "Permanent",
    "Priority",
    "Settings",
    "SlowDown",
    "Source",
    "Target",
    "Transient",
    "Watermark",
]
