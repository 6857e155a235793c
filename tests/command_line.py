"""Floodmark as people start it: in this process for speed, as a real one where that is the point."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from typer import testing
from typer.main import get_command
from typer.testing import CliRunner

from floodmark.cli import app
from floodmark.settings import keys
from forked import ForkedCommand

T = TypeVar("T")

# Else all hundred commands are made anew for each line that is typed.
vars(testing)["_get_command"] = cache(get_command)

COLLECTORS = '''
"""Collectors of the tests."""
import asyncio
import time
from datetime import timedelta
from pathlib import Path

from floodmark import Floodmark, Gone, Permanent, SlowDown


def news(since, count=5, mode="", deep=None):
    """Five more each time."""
    first = (since or 0) + 1
    return [{"id": n, "title": f"News [bold]{n}[/] \\x1b[31m"} for n in range(first, first + count)]


async def slow(since):
    """Runs for a minute, unless it is ended."""
    yield {"id": 1}
    await asyncio.sleep(60)


def broken(since):
    raise ValueError(f"no such thing after {since}")


def hopeless(since):
    raise Permanent("the page is empty", hint="look elsewhere")


def gone(since):
    raise Gone("the channel was deleted")


def limited(since):
    raise SlowDown(timedelta(minutes=5), key="account 1", reason="FloodWait on account 1")


app = Floodmark()


@app.collector(every="1s", key="id", watermark="id")
async def ticks(since):
    yield {"id": (since or 0) + 1}


not_an_app = 42
'''


class Answer:
    """What a command said."""

    def __init__(self, command: tuple[str, ...], code: int, out: str, err: str) -> None:
        self.command, self.code, self.out, self.err = command, code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"floodmark {' '.join(self.command)}\nexit code {self.code}\n{self.out}\n{self.err}"


class CommandLine:
    """A folder with collectors in which commands are typed."""

    def __init__(self, folder: Path, **settings: str) -> None:
        modules = "feeds, faulty, nofeeds, chatty, system.test_moving"
        self.folder, self.settings = folder, {"PYTHON_MODULES": modules, **settings}
        (folder / "feeds.py").write_text(COLLECTORS, encoding="utf-8")

    @classmethod
    def installed(cls, folder: Path, database: Path, **settings: str) -> Self:
        """The same, with a copy of an empty SQLite database in its usual place: making a new one takes a while."""
        (folder / ".floodmark").mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(database, folder / ".floodmark" / "floodmark.db")
        return cls(folder, **settings)

    def options(self) -> list[str]:
        return [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]

    def __call__(self, *command: str) -> Answer:
        """Type a command, in this process: the current folder must be ours."""
        assert Path.cwd() == self.folder
        result = CliRunner().invoke(app, [*self.options(), *command])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(command, result.exit_code, result.stdout, result.stderr)

    def good(self, *command: str) -> Answer:
        """The same, for a command that must go well."""
        answer = self(*command)
        assert answer.code == 0, answer
        return answer

    def refused(self, *command: str, says: str, code: int = 2) -> Answer:
        """The same, for one that must be refused, with words and with a hint."""
        answer = self(*command)
        assert answer.code == code, answer
        assert answer.err.startswith("Error: "), answer
        assert says in answer.err, answer
        assert "\nNext: " in answer.err, answer
        return answer

    def explain(self, job: str) -> str:
        return str(self.good("explain", job, "--json").json["code"])

    def start(self, *command: str, **options: Any) -> "subprocess.Popen[str]":
        """A real process. It must be ended by whoever started it."""
        return subprocess.Popen(
            [sys.executable, "-m", "floodmark", *self.options(), *command],
            **{
                "cwd": self.folder,
                "env": environment(),
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                **options,
            },
        )

    def real(self, *command: str, timeout: float = 300) -> Answer:
        """A command in a process of its own, to its end."""
        with self.start(*command) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            finally:
                process.kill()
        return Answer(command, process.returncode, out, err)

    @contextmanager
    def running(self, *command: str) -> Iterator[ForkedCommand]:
        """A process in the background, which ends with the block; what it says is in `said.log`."""
        log = self.folder / "said.log"
        log.write_text("", encoding="utf-8")
        process = ForkedCommand([*self.options(), *command], self.folder, environment(), log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def said(self) -> str:
        return (self.folder / "said.log").read_text(encoding="utf-8")


def environment() -> Mapping[str, str]:
    """Ours without any setting, and with compiled modules kept: a start must not take seconds."""
    known = set(keys())
    cache = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    kept = {key: value for key, value in os.environ.items() if key not in known}
    return kept | {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "1"}


def eventually(check: Callable[[], T], *, within: float = 120) -> T:
    """Call `check` until what it returns is true, less often the longer it takes; fails with what it last returned."""
    deadline, pause = time.monotonic() + within, 0.1
    while True:
        last = check()
        if last:
            return last
        assert time.monotonic() < deadline, f"not within {within} s: {last!r}"
        time.sleep(pause)
        pause = min(pause * 1.2, 0.5)
