"""One process of Floodmark for the chaos tests, and the zygote that makes them.

Importing everything takes seconds, and a run of the suite starts well over a hundred processes. So one process,
the zygote, imports it all, serves for a moment, which finds and prepares what is found and prepared only once, and then
forks: each child is a process of its own, with its own loop, connections and files, which can be killed and stopped
like any other.

    python -m chaos.process      reads orders, one JSON document a line, and answers each with one line
        {"spawn": Order}         {"child": 7}: its number, which unlike its process id is never used again
        {"child": 7, "signal": 9}
        {}                       {"exited": {"7": -9}}: with every answer, who has ended since, as in subprocess

Nothing outlives the test: a child dies with the zygote, the zygote with the test run (PR_SET_PDEATHSIG where there
is one, and at the end of its input everywhere).
"""

import asyncio
import ctypes
import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from chaos.numbered import Plan, numbered_app
from floodmark import Floodmark, Settings
from floodmark.api.server import HttpServer
from floodmark.observability import events as happenings
from floodmark.observability.events import Events, InternalEvent
from floodmark.process import failpoints
from floodmark.wiring.resources import Resources

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000
# Imported by others only when they are needed, which is after the fork.
IMPORTED_LATER = (
    "aiosqlite",
    "alembic.command",
    "alembic.config",
    "asyncpg",
    "floodmark.api.access",
    "floodmark.api.app",
    "floodmark.api.health",
    "floodmark.dashboard.routes",
    "floodmark.runtime.api_role",
    "floodmark.runtime.scheduler_role",
    "floodmark.runtime.worker_role",
    "floodmark.outbound.aiohttp_client",
    "floodmark.search.indexer",
    "floodmark.search.postgres",
    "floodmark.search.sqlite",
    "floodmark.sources.telegram.reading",
    "floodmark.sources.web.crawl",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
    "uvicorn.logging",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)
WARM_UP_SECONDS = 0.5
# Told of each slot and each batch; the rest is rare.
_QUIET = (happenings.SlotsChanged, happenings.ExecutionStarted, happenings.ExecutionsLeased, happenings.DepthMeasured)


class Order(Struct, frozen=True, kw_only=True):
    """A process to be made."""

    name: str
    settings: dict[str, Any]
    options: dict[str, str] = {}
    """Settings of sinks."""
    plan: Plan | None = None
    """The numbers to collect; without a plan it does what the jobs in the store say."""
    folder: str
    """Where it writes `<child>.events`, one JSON document for each thing that happened, and `<child>.log`."""
    scheduler: bool
    worker: bool
    failpoint: str = ""
    namespace: str = ""
    """The network namespace it lives in."""
    seconds: float = 300.0
    """It ends by itself after this long, should all else fail."""


class Request(Struct, frozen=True, kw_only=True):
    """A line to the zygote."""

    spawn: Order | None = None
    child: int = 0
    signal: int = 0


class Answer(Struct, frozen=True, kw_only=True):
    """A line from the zygote."""

    child: int = 0
    exited: dict[int, int] = {}


def zygote() -> None:
    """Fork as ordered until the input ends, then end everyone."""
    # By their number. Until we have asked how a child ended, its process id is nobody else's.
    children: dict[int, int] = {}
    born = 0
    die_with_parent()
    for module in IMPORTED_LATER:
        import_module(module)
    asyncio.run(_warm_up())
    # A fork takes only the thread that forks along. Those of a database may still be ending.
    for thread in {*threading.enumerate()} - {threading.current_thread()}:
        thread.join(120)
        assert not thread.is_alive(), thread
    gc.collect()
    gc.freeze()
    try:
        for line in sys.stdin.buffer:
            request = msgspec.json.decode(line, type=Request)
            if request.spawn is not None:
                born += 1
                children[born] = os.fork() or _be(request.spawn, born)
            elif request.child in children:
                os.kill(children[request.child], request.signal)
            answer = Answer(child=born, exited=dict(_exited(children)))
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
    finally:
        for pid in children.values():
            os.kill(pid, signal.SIGKILL)


def _exited(children: dict[int, int]) -> Iterator[tuple[int, int]]:
    for child, pid in tuple(children.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            del children[child]
            yield child, os.waitstatus_to_exitcode(status)


def die_with_parent() -> None:
    """Have the kernel end us when our parent does, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_network(namespace: str) -> None:
    """Move this process into a network namespace that `ip netns` made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", namespace).open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


def _be(order: Order, child: int) -> NoReturn:
    """What a child does with its life. Never returns: the zygote's code is not its business."""
    code = 1
    try:
        die_with_parent()
        folder = Path(order.folder)
        log = os.open(folder / f"{child}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        random.seed()
        if order.namespace:
            enter_network(order.namespace)
        failpoints.arm(order.failpoint)
        asyncio.run(_serve(order, Diary(folder / f"{child}.events", order.name, child)))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Diary:
    """Writes down what happens, each line at once: a process that is killed leaves all but its last moment."""

    def __init__(self, path: Path, name: str, child: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name, self._child = name, child

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        line = {"at": time.time(), "process": self._name, "child": self._child, "kind": kind, **fields}
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def listen(self, events: Events) -> None:
        for kind in InternalEvent.__subclasses__():
            if kind not in _QUIET:
                events.listen(kind, self._event)

    def _event(self, event: InternalEvent) -> None:
        self.note(type(event).__name__, {"event": msgspec.to_builtins(event, str_keys=True)})


def _tell_where() -> None:
    """What every task and thread is waiting for, for whoever wonders why nothing happens."""
    for task in asyncio.all_tasks():
        for frame in task.get_stack(limit=1):
            print(f"{task.get_name()}: {frame.f_code.co_filename}:{frame.f_lineno}", file=sys.stderr)
    faulthandler.dump_traceback()


async def _warm_up() -> None:
    """Do for a moment what the children will do: what is loaded and compiled for it is there when they begin."""
    with TemporaryDirectory() as folder:
        settings = Settings(database_url=f"sqlite:///{folder}/floodmark.db")
        await numbered_app(settings, Plan(items=2, streams=2, batch=1, pause=0), Events()).serve(
            scheduler=True, worker=True, port=0, seconds=WARM_UP_SECONDS
        )


async def _serve(order: Order, diary: Diary) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell_where)
    events = Events()
    diary.listen(events)
    settings = Settings(**order.settings).with_foreign(order.options)
    app = numbered_app(settings, order.plan, events) if order.plan else Floodmark(settings, events=events)

    def ready(resources: Resources, server: HttpServer) -> None:
        diary.note("ready", {"worker": resources.name, "port": server.port, "pid": os.getpid()})

    await app.serve(scheduler=order.scheduler, worker=order.worker, port=0, seconds=order.seconds, ready=ready)


if __name__ == "__main__":
    zygote()
