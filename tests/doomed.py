"""Commands that are killed at a fail-point, each in a process of its own.

Importing everything takes longer than most commands, so one process imports it and forks a child for each command.

    python -m doomed        reads orders, one JSON document a line, and answers each with the exit code of its command
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from chaos.process import IMPORTED_LATER, die_with_parent
from command_line import environment
from floodmark.process import failpoints

KILLED = -9
_IMPORTED = (
    *IMPORTED_LATER,
    "floodmark.cli.export_items",
    "floodmark.cli.database_copies",
    "floodmark.operations.handlers.consumers",
    "floodmark.operations.handlers.exports",
)


class Doomed:
    """Runs commands; see above."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, folder: Path, command: Sequence[str], *, failpoint: str = "") -> int:
        """Run a command to its end; the exit code, -9 if it was killed. Its output is in `doomed.log` of the folder."""
        assert self._process.stdin
        assert self._process.stdout
        order = {"folder": str(folder), "command": list(command), "failpoint": failpoint}
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def doomed_commands() -> Iterator[Doomed]:
    """A process that makes others, until the end of the block."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**environment(), "PYTHONPATH": paths, failpoints.VARIABLE: ""}
    with subprocess.Popen(
        [sys.executable, "-m", "doomed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield Doomed(process)
        finally:
            assert process.stdin
            process.stdin.close()


def _serve() -> None:
    die_with_parent()
    for module in _IMPORTED:
        import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(Path(order["folder"]), order["command"], order["failpoint"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(folder: Path, command: Sequence[str], failpoint: str) -> NoReturn:
    code = 1
    try:
        die_with_parent()
        os.chdir(folder)
        log = os.open(folder / "doomed.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        failpoints.arm(failpoint)
        sys.argv = ["floodmark", *command]
        from floodmark.cli import main

        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
