"""Floodmark: a distributed scheduler for incremental collection.

triggers  ->  scheduler  ->  queue  ->  worker  ->  sources   ->  sinks
  when        what is due    hands out   runs one     fetch what     keep items
                                         lease        is newer       and move the watermark
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .app import Floodmark
    from .batch import Batch, Item, Watermark
    from .errors import AccountLost, FloodmarkError, Gone, InvalidInput, Permanent, SlowDown, Transient
    from .job import CatchUp, Job, Overlap, Priority
    from .settings import Settings
    from .sources.port import Context, Source, Target
else:
    from importlib import import_module

    # Loaded when first asked for: the whole takes a second, and `floodmark --help` needs none of it.
    _HOMES = {
        "app": ("Floodmark",),
        "batch": ("Batch", "Item", "Watermark"),
        "errors": ("AccountLost", "FloodmarkError", "Gone", "InvalidInput", "Permanent", "SlowDown", "Transient"),
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
    "Transient",
    "Watermark",
]
