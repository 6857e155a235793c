"""A blocking scheduler for programs written against `EnhancedScheduler`, with its repository and its history.

Floodmark itself does the work, on the database that DATABASE_URL names; settings come from the environment, `.env` and
`floodmark.toml` as everywhere. Each call opens the database, does its work and closes it, so it may be made from any
thread. Code that runs in an event loop uses `floodmark.client` instead.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Boolean, Float, Select, String, Text, column, select, table

from floodmark.app import Floodmark
from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import InvalidInput, NotFound, Unavailable
from floodmark.model.audit import Actor
from floodmark.model.job import Frequency, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.operations.local import LocalOperations
from floodmark.process import eventloop
from floodmark.repositories.history import ExecutionHistory
from floodmark.settings import Settings, load
from floodmark.store.types import Json, UtcTime
from floodmark.wiring.resources import open_resources

T = TypeVar("T")
Work = Callable[[LocalOperations], Awaitable[T]]

_ACTOR = Actor(who="enhanced_scheduler", via="code")
# The views that have these names (docs/reference/compatible-names.md).
_SCHEDULES = table(
    "schedules",
    *(column(name, String) for name in ("schedule_id", "domain_config_id", "domain", "profile_id", "frequency")),
    column("time_config", Json),
    column("enabled", Boolean),
    *(column(name, UtcTime) for name in ("next_run", "last_run")),
    column("last_status", String),
    *(column(name, UtcTime) for name in ("created_at", "updated_at")),
)
_EXECUTIONS = table(
    "job_executions",
    *(column(name, String) for name in ("execution_id", "schedule_id", "job_id", "domain", "domain_config_id")),
    column("status", String),
    *(column(name, UtcTime) for name in ("started_at", "completed_at")),
    column("duration_seconds", Float),
    column("scan_id", String),
    column("error_message", Text),
    column("error_details", Json),
    column("metadata", Json),
    column("created_at", UtcTime),
)


class EnhancedScheduler:
    """Schedules and scans until it is stopped. Arguments that are not given come from the settings."""

    def __init__(
        self,
        max_workers: int | None = None,
        enable_api_sync: bool | None = None,
        api_sync_interval: float | None = None,
        schedule_check_interval: float | None = None,
    ) -> None:
        given = {
            "MAX_WORKERS": max_workers,
            "SCHEDULER_WORKER_POOL_SIZE": max_workers,
            "SYNC_INTERVAL": api_sync_interval,
            "SCHEDULE_CHECK_INTERVAL": schedule_check_interval,
        }
        overrides = {name: str(value) for name, value in given.items() if value is not None}
        if enable_api_sync is False:
            # An empty value puts a setting back: to no API.
            overrides["API_URL"] = ""
        self.settings = _settings(overrides)
        if enable_api_sync and self.settings.api_url is None:
            raise InvalidInput("enable_api_sync needs API_URL, which is not set", hint="set API_URL=https://...")
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None
        self._trouble: BaseException | None = None

    def run(self) -> None:
        """Schedule and scan in this process until Ctrl-C or SIGTERM."""
        self._refuse_second()
        Floodmark(self.settings).run()

    def start(self) -> None:
        """Do the same on a separate thread: returns once it runs and the schedules of API_URL are synced."""
        self._refuse_second()
        if self.settings.api_url is not None:
            self.sync_schedules_from_api()
        is_up = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(is_up,), name="enhanced-scheduler", daemon=True)
        self._thread.start()
        is_up.wait()
        if self._trouble is not None:
            self._thread.join()
            self._thread = None
            raise self._trouble

    def stop(self) -> None:
        """Stop the thread of `start`; running executions finish, or are released after SHUTDOWN_GRACE."""
        if self._thread is not None and self._stop is not None:
            self._stop()
            self._thread.join()
            self._thread = self._stop = None

    def sync_schedules_from_api(self) -> dict[str, int]:
        """Sync the schedules of API_URL now, and return how many were created, updated and skipped."""
        report = _wait(lambda operations: operations.sync(), self.settings)
        return {"created": report.created, "updated": report.updated, "skipped": report.skipped}

    def _serve(self, is_up: threading.Event) -> None:
        async def serve() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            self._stop = lambda: loop.call_soon_threadsafe(stop.set)
            await Floodmark(self.settings).serve(stop=stop, ready=lambda *_: is_up.set())

        try:
            eventloop.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised by `start`, which waits for it
            self._trouble = error
        finally:
            is_up.set()

    def _refuse_second(self) -> None:
        if self._thread is not None:
            raise InvalidInput("this scheduler runs already", hint="call stop() first")


class ScheduleRepository:
    """The schedules of cookie scans."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def create_schedule(
        self,
        domain_config_id: str,
        domain: str,
        frequency: str,
        time_config: Mapping[str, Any] | None = None,
        *,
        enabled: bool = True,
        profile_id: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> str:
        """Create a schedule and return its id. `params` are those of a scan: maxPages, scanDepth, ..."""
        settings = self._settings
        spec = JobSpec(
            source="cookies",
            target=domain,
            when=_calendar(frequency, time_config),
            domain_config_id=domain_config_id,
            profile_id=profile_id,
            params=params or {},
            schedule_enabled=enabled,
            policy=settings.default_policy(),
            timeout=settings.scheduler_job_timeout,
            retry_max=settings.parser_retry_max,
        )
        return _wait(lambda operations: operations.add_job(spec), settings).job_id

    def update_schedule(self, schedule_id: str, **changes: Any) -> bool:
        """Change the given fields: domain, domain_config_id, profile_id, frequency, time_config, enabled, params.

        Returns False if the schedule does not exist.
        """
        columns = dict(changes)
        if "enabled" in columns:
            columns["schedule_enabled"] = columns.pop("enabled")
        if "domain" in columns:
            columns["target"] = columns["domain"]
        if "frequency" in columns:
            columns |= {"schedule_type": ScheduleType.CALENDAR, "cron_expression": None, "interval_seconds": None}
        return self._done(lambda operations: operations.change_job(schedule_id, columns))

    def delete_schedule(self, schedule_id: str) -> bool:
        """Delete a schedule; its history stays. Returns False if it does not exist."""
        return self._done(lambda operations: operations.remove_job(schedule_id))

    def get_schedule(self, schedule_id: str) -> dict[str, Any] | None:
        """Return a schedule, or None if it does not exist."""
        found = self._read(select(_SCHEDULES).where(_SCHEDULES.c.schedule_id == schedule_id))
        return found[0] if found else None

    def get_all_schedules(self, *, enabled: bool | None = None) -> list[dict[str, Any]]:
        """Return all schedules, or only enabled or disabled ones, in order of domain."""
        query = select(_SCHEDULES).order_by(_SCHEDULES.c.domain, _SCHEDULES.c.schedule_id)
        return self._read(query if enabled is None else query.where(_SCHEDULES.c.enabled == enabled))

    def get_schedules_by_domain(self, domain: str) -> list[dict[str, Any]]:
        """Return the schedules of a domain."""
        return self._read(select(_SCHEDULES).where(_SCHEDULES.c.domain == domain.lower()))

    def get_schedules_by_config_id(self, domain_config_id: str) -> list[dict[str, Any]]:
        """Return the schedules with this domain_config_id."""
        return self._read(select(_SCHEDULES).where(_SCHEDULES.c.domain_config_id == domain_config_id))

    def _read(self, query: Select[Any]) -> list[dict[str, Any]]:
        return _wait(lambda operations: _rows(operations, query), self._settings)

    def _done(self, work: Work[Any]) -> bool:
        try:
            _wait(work, self._settings)
        except NotFound:
            return False
        return True


class JobHistory:
    """Executions and their statistics."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def get_recent_executions(self, hours: float = 24) -> list[dict[str, Any]]:
        """Return the executions of the last hours, newest first; at most 1,000."""
        return self._show_rows(lambda history: history.get_recent_executions(hours))

    def get_executions_by_schedule(self, schedule_id: str, limit: int = 100) -> list[dict[str, Any]]:
        """Return the executions of one schedule, newest first."""
        return self._show_rows(lambda history: history.get_executions_by_schedule(schedule_id, limit))

    def get_execution_statistics(self, days: float = 7) -> dict[str, Any]:
        """Return statistics of the executions of the last days."""
        return _wait(lambda operations: operations.statistics(days), self._settings)

    def cleanup_old_executions(self, days: float = 90) -> int:
        """Delete finished executions that are older, and return their number."""
        return _wait(lambda operations: operations.cleanup_old_executions(days), self._settings)

    def _show_rows(self, find: Callable[[ExecutionHistory], Awaitable[list[Any]]]) -> list[dict[str, Any]]:
        async def work(operations: LocalOperations) -> list[dict[str, Any]]:
            ids = [found.execution_id for found in await find(operations.resources.repositories.executions)]
            rows = await _rows(operations, select(_EXECUTIONS).where(_EXECUTIONS.c.execution_id.in_(ids)))
            by_id = {row["execution_id"]: row for row in rows}
            return [by_id[execution_id] for execution_id in ids if execution_id in by_id]

        return _wait(work, self._settings)


class StoreCheck:
    """Checks whether the database or Redis responds."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._name = settings, name

    def ping(self) -> bool:
        """Return True if it responds; False if it does not, or is not configured."""
        try:
            return _wait(self._answers, self._settings)
        except Unavailable:
            return False

    async def _answers(self, operations: LocalOperations) -> bool:
        if self._name == "database":
            return True  # it was pinged when it was opened
        if operations.resources.redis is None:
            return False
        try:
            await operations.resources.redis.ping()
        except redis_errors():
            return False
        return True


def run_enhanced_scheduler() -> None:
    """Schedule and scan until Ctrl-C or SIGTERM with the settings; sync with API_URL if it is set."""
    EnhancedScheduler().run()


def get_schedule_repository() -> ScheduleRepository:
    """Return the schedules in the database of the settings."""
    return ScheduleRepository(_settings({}))


def get_job_history() -> JobHistory:
    """Return the history in the database of the settings."""
    return JobHistory(_settings({}))


def get_db_connection() -> StoreCheck:
    """Return a check of the database."""
    return StoreCheck(_settings({}), "database")


def get_redis_client() -> StoreCheck:
    """Return a check of Redis."""
    return StoreCheck(_settings({}), "redis")


def _settings(overrides: Mapping[str, str]) -> Settings:
    return load(overrides, folder=Path.cwd(), environ=os.environ)


def _wait(work: Work[T], settings: Settings) -> T:
    """Run the operation on the database and wait for it."""
    app = Floodmark(settings)

    async def opened() -> T:
        async with open_resources(settings, validation=app.validation) as resources:
            return await work(LocalOperations(resources, _ACTOR))

    return asyncio.run(opened())


async def _rows(operations: LocalOperations, query: Select[Any]) -> list[dict[str, Any]]:
    async with operations.resources.database.reading() as connection:
        return [dict(row) for row in (await connection.execute(query)).mappings()]


def _calendar(frequency: str, time_config: Mapping[str, Any] | None) -> When:
    if frequency not in tuple(Frequency):
        raise InvalidInput(f"{frequency!r} is no frequency", hint=f"use one of {', '.join(Frequency)}")
    return When(
        schedule_type=ScheduleType.CALENDAR, frequency=Frequency(frequency), time_config=dict(time_config or {})
    )


if __name__ == "__main__":
    run_enhanced_scheduler()
