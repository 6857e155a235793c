"""One database with two ways in: SQLAlchemy for operations of people, the bare driver for the hot steps.

PostgreSQL: at most `pool_max` connections, two thirds of them bare asyncpg for the hot steps.
SQLite: reads go through SQLAlchemy; writes run one at a time, the hot steps on their own thread.
"""

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from sqlalchemy import URL, NullPool, RowMapping, Select, event, make_url, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, InvalidatePoolError

from floodmark.errors import InvalidInput, Unavailable, Unreachable
from floodmark.model.strict_json import read_stored_json
from floodmark.observability.events import Events, StoreRetried
from floodmark.process.lazy import LazyModule
from floodmark.process.local_disk import require_local
from floodmark.rules.backoff import backoff

from .async_engine import AsyncConnection, AsyncEngine, create_async_engine
from .postgres_connection import LONG_WORK, USUAL_STEP, Connection, Deadline, PostgresConnector
from .replanning import Replanning

if TYPE_CHECKING:
    import asyncpg
else:
    # Only PostgreSQL needs it.
    asyncpg = LazyModule("asyncpg")

# The time to wait for SQLite's write lock: longer than any step of ours holds it.
LOCK_TIMEOUT_SECONDS = 10

_PRAGMAS = (
    # Works only on a new database, and first. An item of one or two kilobytes then fits into its page; with the default
    # of 4096 bytes it needs an overflow page: nearly twice the space, and two thirds more time to write.
    "PRAGMA page_size=8192",
    "PRAGMA journal_mode=WAL",
    # A crash of the process loses nothing; a power cut may lose the last commits, but never consistency.
    "PRAGMA synchronous=NORMAL",
    f"PRAGMA busy_timeout={LOCK_TIMEOUT_SECONDS * 1000}",
    "PRAGMA foreign_keys=ON",
    # Space for the indexes of a large history, and fewer, larger checkpoints: 32 MB each.
    "PRAGMA cache_size=-32000",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA temp_store=MEMORY",
)

_READERS = 10
_CHECKPOINT_SECONDS = 1.0

# Planning a hot statement costs as much as running it, so each is planned once, without knowledge of the number of
# rows. All of them read a few rows by an index and look up others one by one; these settings keep a plan that was made
# for an empty table, or for a wrong estimate, from reading whole tables, or all rows of an index to sort them.
_PLAN_ONCE = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

_ATTEMPTS = 4
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=3)
# A hot connection that was not used for this long is closed.
_IDLE_SECONDS = 300.0

T = TypeVar("T")


@cache
def _rollback_errors() -> tuple[type[Exception], ...]:
    """Return the errors after which the server has rolled back: repeating is safe whatever the statement was."""
    return asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError


@cache
def _connection_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a lost connection. A fence or a unique key guards every hot step: it may be repeated."""
    return (
        asyncpg.PostgresConnectionError,
        asyncpg.InterfaceError,
        asyncpg.CannotConnectNowError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        # The server ended the connection between two statements, for example after a long pause in a transaction.
        asyncpg.InternalClientError,
        ConnectionError,
        TimeoutError,
        OSError,
    )


@cache
def _unreachable_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a database that cannot be reached."""
    return (DBAPIError, *_connection_errors())


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether the server refused us for good: a wrong password, an unknown database."""
    while error is not None:
        if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidCatalogNameError):
            return True
        error = error.__cause__
    return False


def encode_json(value: Any) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


class _Transaction:
    """An open transaction, with its nested parts."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection, self.has_failed = connection, False

    @contextmanager
    def part(self) -> Iterator[None]:
        """Mark the transaction as failed if a part raises: it must not be committed when the error is caught."""
        try:
            yield
        except BaseException:
            self.has_failed = True
            raise


class Database:
    """The common part of both databases. Use `open_database`."""

    dialect: str
    reads_at: str | None = None

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        # Shares the pool. PostgreSQL reads without a transaction: that saves two round trips, and the server does not
        # end a process that is stalled between two reads as idle in a transaction.
        self._readers = engine.execution_options(isolation_level=self.reads_at) if self.reads_at else engine
        # By task: a task that was started within a transaction does not take part in it.
        self._transactions: dict[asyncio.Task[Any] | None, _Transaction] = {}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection to read with. Within `writing` of the same task it is the connection of that transaction."""
        outer = self._transactions.get(asyncio.current_task())
        if outer is not None:
            yield outer.connection
            return
        async with self._readers.connect() as connection:
            yield connection

    async def fetch(self, query: Select[Any]) -> Sequence[RowMapping]:
        """Return all rows of a query."""
        async with self.reading() as connection:
            rows: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
        return rows

    async def fetch_value(self, query: Select[Any]) -> Any:
        """Return the first column of the first row, None if there is no row."""
        async with self.reading() as connection:
            return (await connection.execute(query)).scalar()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back by an exception.

        Nested blocks of the same task share one transaction: the outermost block commits everything or nothing.
        Signals and queue entries must follow the outermost block.
        """
        task = asyncio.current_task()
        outer = self._transactions.get(task)
        if outer is not None:
            with outer.part():
                yield outer.connection
            return
        async with self._begin() as connection:
            transaction = self._transactions[task] = _Transaction(connection)
            try:
                yield connection
            finally:
                del self._transactions[task]
            if transaction.has_failed:
                raise AssertionError("a part of this transaction has failed: the rest must not be committed")

    def _begin(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self.engine.begin()

    def working_long(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that may take longer than a step, such as a migration."""
        return self.writing()

    def reading_long(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection to read with for longer than a step may take, for example every row of a table."""
        return self.reading()

    @property
    def is_writing(self) -> bool:
        """Whether this task is within `writing`."""
        return bool(self._transactions) and asyncio.current_task() in self._transactions

    def _require_none_open(self, step: str) -> None:
        # A hot step uses another connection: it would not see the open transaction, or wait for its end.
        assert not self.is_writing, f"{step} within a transaction: do it after the commit"

    async def ping(self) -> None:
        """Raise `Unreachable` unless the database answers."""
        try:
            async with self.reading() as connection:
                await connection.execute(text("SELECT 1"))
        except _unreachable_errors() as error:
            shown = self.engine.url.render_as_string(hide_password=True)
            raise Unreachable(
                f"the database {shown} does not answer: {str(error) or type(error).__name__}",
                hint="Check DATABASE_URL with: floodmark settings",
                may_return=self.dialect == "postgresql" and not _is_refusal(error),
            ) from error

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


class PostgresDatabase(Database):
    """PostgreSQL 12 or newer through asyncpg: two thirds of the connections are for the hot steps."""

    dialect = "postgresql"
    reads_at = "AUTOCOMMIT"

    def __init__(self, url: str, *, pool_min: int, pool_max: int, events: Events, step: timedelta) -> None:
        cold = max(1, pool_max // 3)
        self._events, self.connector = events, PostgresConnector(make_url(url), step=step)
        self._hot = _HotConnections(self.connector, size=max(1, pool_max - cold), kept=max(1, pool_min))
        self.replanning = Replanning()
        super().__init__(
            _engine(
                make_url(url),
                self.connector.connect,
                pool_size=cold,
                max_overflow=0,
                pool_timeout=step.total_seconds(),
                pool_use_lifo=True,
            )
        )
        _watch(self.engine, self.connector)

    @asynccontextmanager
    async def working_long(self) -> AsyncIterator[AsyncConnection]:
        """A transaction on its own connection, which may take longer than a step."""
        self._require_none_open("long work")

        async def connect() -> Connection:
            return await self.connector.connect(work=LONG_WORK)

        engine = _engine(self.engine.url, connect, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                yield connection
        finally:
            await engine.dispose()

    def reading_long(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same for reading."""
        return self.working_long()

    async def _run_once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        connection = await self._hot.take()
        step = self.connector.step.total_seconds()
        timer = Deadline(step, partial(self.connector.give_up_on, connection))
        try:
            await self.replanning.check(connection)
            return await work(connection)
        except asyncio.CancelledError:
            # The server may still be running the statement, or be dead: do not let the next step use the connection.
            connection.terminate()
            raise
        finally:
            timer.cancel()
            self._hot.give_back(connection)

    async def close(self) -> None:
        """Close every connection. Takes little time even if the server does not answer."""
        await self.connector.close()
        await super().close()

    async def hot(self, step: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a hot step; repeat it if the server rolled it back or the connection was lost."""
        self._require_none_open(step)
        # One more attempt after one that timed out, but no third: the lease would have expired.
        last_start = time.monotonic() + self.connector.step.total_seconds() * 1.5
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._run_once(work)
            except (*_rollback_errors(), *_connection_errors()) as error:
                pause = backoff(attempt, base=_PAUSE, longest=_LONGEST_PAUSE).total_seconds()
                if attempt == _ATTEMPTS or time.monotonic() + pause > last_start:
                    raise
                self._events.emit(StoreRetried(operation=step, reason=type(error).__name__))
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")


def _engine(url: URL, connect: Callable[[], Awaitable[Connection]], **options: Any) -> AsyncEngine:
    return create_async_engine(
        # The options of the URL are for `connect` alone.
        url.set(drivername="postgresql+asyncpg", query={}),
        async_creator=connect,
        json_serializer=encode_json,
        json_deserializer=read_stored_json,
        **options,
    )


def _watch(engine: AsyncEngine, connector: PostgresConnector) -> None:
    """Replace dead connections of an engine."""

    def check(adapted: Any, _record: Any, _proxy: Any) -> None:
        connector.idle.discard(adapted.driver_connection)
        try:
            adapted.run_async(connector.ping)
        except _connection_errors() as error:
            connector.give_up_on(adapted.driver_connection)
            raise InvalidatePoolError from error

    def mark_idle(adapted: Any, _record: Any) -> None:
        if adapted is not None:
            connector.idle.add(adapted.driver_connection)

    def handle_error(context: ExceptionContext) -> None:
        # The driver keeps a connection open whose statement has timed out, and would wait for it again to roll back.
        if isinstance(context.original_exception, TimeoutError) and context.connection is not None:
            found = context.connection.connection.driver_connection
            if found is not None:
                connector.give_up_on(found)
            context.is_disconnect = True
        elif isinstance(context.original_exception.__cause__, asyncpg.InternalClientError):
            # The server closed the connection between two statements: the driver cannot use it any more.
            context.is_disconnect = True

    event.listen(engine.sync_engine, "checkout", check)
    event.listen(engine.sync_engine, "checkin", mark_idle)
    event.listen(engine.sync_engine, "handle_error", handle_error)


class _HotConnections:
    """A pool of bare connections, most recently used first. `asyncpg.Pool` would start a task for every checkout."""

    def __init__(self, connector: PostgresConnector, *, size: int, kept: int) -> None:
        self._connector, self._room, self._kept = connector, asyncio.Semaphore(size), kept
        self._free: list[tuple[float, Connection]] = []

    async def take(self) -> Connection:
        """Return a free connection or a new one; wait at most for the time of a step if all are in use."""
        if self._room.locked():
            async with asyncio.timeout(self._connector.step.total_seconds()):
                await self._room.acquire()
        else:
            await self._room.acquire()
        while self._free:
            _, connection = self._free.pop()
            self._connector.idle.discard(connection)
            if not connection.is_closed():
                return connection
        try:
            return await self._connector.connect(_PLAN_ONCE, each=False)
        except BaseException:
            self._room.release()
            raise

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool. Dead ones, and those that were idle for long, are dropped."""
        now = time.monotonic()
        if not connection.is_closed():
            self._free.append((now, connection))
            self._connector.idle.add(connection)
        while len(self._free) > self._kept and now - self._free[0][0] > _IDLE_SECONDS:
            self._free.pop(0)[1].terminate()
        self._room.release()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK):
        raise _not_writable(folder, "permission denied")


def _not_writable(folder: Path, why: str) -> Unavailable:
    return Unavailable(
        f"the folder {folder.absolute()} cannot be written: {why}",
        hint="choose another one: DATABASE_URL=sqlite:////path/to/floodmark.db, and FLOODMARK_HOME for other files",
    )


def make_private(path: Path) -> None:
    """Create the database file readable by its owner only, or restrict an existing one.

    SQLite gives the files next to it (`-wal`, `-shm`) the mode of the database.
    """
    if os.name != "posix":
        return
    with suppress(OSError):
        # It may belong to another user, or the disk may be full or read-only: opening the database reports that.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    for file in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal"))):
        tighten(file, 0o600)


def tighten(path: Path, mode: int) -> None:
    """Remove the permissions of others from a file or folder, if it exists and is ours."""
    try:
        found = path.stat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & ~mode:
            path.chmod(stat.S_IMODE(found.st_mode) & mode)
    except OSError:
        # Deleted meanwhile, or on a file system without modes.
        return


class _Checkpoints:
    """Copies the write-ahead log into the database on its own thread.

    By itself SQLite does this in the commit that makes the log too long, so that every few seconds a step takes 30 ms
    longer. It still does when this thread cannot keep up.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._last = path, time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="floodmark-sqlite-checkpoint")
        self._connection: sqlite3.Connection | None = None

    def after_commit(self) -> None:
        """Start a checkpoint if the last one started long enough ago."""
        now = time.monotonic()
        if now - self._last >= _CHECKPOINT_SECONDS:
            self._last = now
            self._thread.submit(self._copy)

    def _copy(self) -> None:
        # On a full or broken disk the next commit fails too, and that is reported.
        with suppress(sqlite3.OperationalError):
            if self._connection is None:
                self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            # PASSIVE waits neither for readers nor for the writer, and does not block them.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Wait for the running checkpoint, then close."""
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()


class SqliteDatabase(Database):
    """SQLite in WAL mode, for one machine."""

    dialect = "sqlite"

    def __init__(self, url: str) -> None:
        self.path = Path(make_url(url).database or "")
        _make_folder(self.path.parent)
        require_local(self.path.parent)
        make_private(self.path)
        super().__init__(
            create_async_engine(
                f"sqlite+aiosqlite:///{self.path}",
                # Each connection has a thread. One that is opened for a moment makes the event loop wait for it.
                pool_size=_READERS,
                pool_use_lifo=True,
                json_serializer=encode_json,
                json_deserializer=read_stored_json,
            )
        )
        event.listen(self.engine.sync_engine, "connect", _prepare)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="floodmark-sqlite")
        self._writer: sqlite3.Connection | None = None
        self._checkpoints = _Checkpoints(self.path)
        # Fair and without delay, while SQLite waits for the write lock by sleeping longer and longer.
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AsyncConnection]:
        """Take the write lock at once, so that the transaction cannot fail to get it later."""
        async with self._turn, self.engine.connect() as connection:
            await connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            await connection.commit()

    async def hot(self, step: str, work: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """Run a hot step as one transaction on the writer's thread.

        `durable`: it is on the disk when this returns, and so is everything committed before it.
        """
        self._require_none_open(step)
        transact = self._transact_durably if durable else self._transact
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._thread, transact, work)

    async def hot_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read on the writer's thread, without a transaction: it takes no lock."""
        self._require_none_open("read")
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._open_writer()))

    def _transact_durably(self, work: Callable[[sqlite3.Connection], T]) -> T:
        writer = self._open_writer()
        writer.execute("PRAGMA synchronous=FULL")
        try:
            return self._transact(work)
        finally:
            writer.execute("PRAGMA synchronous=NORMAL")

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            for pragma in _PRAGMAS:
                self._writer.execute(pragma)
        return self._writer

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        writer = self._open_writer()
        writer.execute("BEGIN IMMEDIATE")
        try:
            result = work(writer)
            writer.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.OperationalError):  # a failed COMMIT may have ended the transaction already
                writer.execute("ROLLBACK")
            raise
        self._checkpoints.after_commit()
        return result

    async def data_version(self) -> int:
        """Return a number that changes when another process has committed."""

        def read() -> int:
            return int(self._writer.execute("PRAGMA data_version").fetchone()[0]) if self._writer else 0

        return await asyncio.get_running_loop().run_in_executor(self._thread, read)

    async def close(self) -> None:
        """Close the connections of the writer and the readers."""

        def end() -> None:
            self._checkpoints.close()
            if self._writer is not None:
                self._writer.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, end)
        self._thread.shutdown()
        await super().close()


def _prepare(connection: Any, _record: Any) -> None:
    # We begin transactions ourselves: the driver would begin them late, which causes lock errors.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    # Small, because every connection has its own cache.
    cursor.execute("PRAGMA cache_size=-4000")
    cursor.close()


def open_database(
    url: str, *, events: Events, pool_min: int = 1, pool_max: int = 10, step: timedelta = USUAL_STEP
) -> PostgresDatabase | SqliteDatabase:
    """Open the database of a URL. On PostgreSQL, a step fails when it takes longer than `step`."""
    kind = make_url(url).get_backend_name()
    if kind == "sqlite":
        return SqliteDatabase(url)
    if kind == "postgresql":
        return PostgresDatabase(url, pool_min=pool_min, pool_max=pool_max, events=events, step=step)
    raise InvalidInput(
        f"DATABASE_URL names {kind!r}, which is not a database Floodmark can use",
        hint="Use sqlite:///path/to/floodmark.db or postgresql://user:password@host/database",
    )
