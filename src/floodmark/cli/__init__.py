"""The command line: parse options, call operations, print the result.

root_help.py  the help of all commands
commands.py   all commands, by help panel; the module of a command is loaded when it is needed
root.py       global options, error messages, and what every command uses
session.py    opens the operations of a server, or on the database
"""

import gc
import os
import sys
from typing import TYPE_CHECKING

from floodmark.version import __version__

if TYPE_CHECKING:
    from .commands import app as app
else:

    def __getattr__(name):
        """Load all commands at the first use of `app`."""
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .commands import app  # noqa: PLC0415 - takes half a second

        return app


# Objects after which a command first looks for garbage. Services choose their own: see `process.eventloop`.
_FIRST_COLLECTION = 300_000


def main() -> None:
    """Run a command: the entry point `floodmark`."""
    if sys.argv[1:] == ["--version"]:
        # Without loading the commands, which takes much longer.
        sys.stdout.write(f"floodmark {__version__}\n")
        return
    if sys.argv[1:] in ([], ["--help"], ["-h"]) and "_FLOODMARK_COMPLETE" not in os.environ:
        from .root_help import printed_root_help  # noqa: PLC0415 - as above

        sys.stdout.write(printed_root_help())
        return
    # Imports make many objects and no garbage: with the usual threshold a short command takes a third longer.
    gc.set_threshold(_FIRST_COLLECTION)
    from .commands import app_for  # noqa: PLC0415 - as above

    try:
        app_for(sys.argv[1:])(prog_name="floodmark")
    finally:
        # The process ends: Python would look for garbage among all objects once more.
        gc.freeze()
