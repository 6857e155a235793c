"""The command line: parse, call the operations, show.

commands.py   all commands, by panel; a command's module is loaded when it is needed
root.py       global options, errors, and what every command uses
session.py    opens the operations: of a server, or of this process
"""

import gc
import sys
from typing import TYPE_CHECKING

from floodmark.version import __version__

if TYPE_CHECKING:
    from .commands import app as app
else:

    def __getattr__(name):
        """Load all commands when they are first asked for."""
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .commands import app  # noqa: PLC0415 - takes half a second

        return app


def main() -> None:
    """Run the command that was typed: the entry point `floodmark`."""
    if sys.argv[1:] == ["--version"]:
        # Without the commands, which take longer to load than this to print.
        sys.stdout.write(f"floodmark {__version__}\n")
        return
    # Imports make many objects and no garbage: with the usual threshold a short command takes a tenth longer.
    gc.set_threshold(50_000)
    from .commands import app_for  # noqa: PLC0415 - as above

    app_for(sys.argv[1:])(prog_name="floodmark")
