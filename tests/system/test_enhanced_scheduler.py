"""A program that was written for `EnhancedScheduler` runs with another import and no other change."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from structlog.testing import capture_logs

from floodmark.app import Floodmark
from floodmark.compat.enhanced_scheduler import (
    EnhancedScheduler,
    _wait,
    get_db_connection,
    get_job_history,
    get_redis_client,
    get_schedule_repository,
    run_enhanced_scheduler,
)
from floodmark.errors import InvalidInput, Unavailable
from floodmark.observability.events import Events
from floodmark.repositories.fleet import FleetRepository
from floodmark.settings import Settings
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.testing.serving import served

SCHEDULES = {
    "data": [
        {
            "domain_config_id": "abc-123",
            "data": {
                "domain": "example.com",
                "description": "Example domain",
                "allow_deep_scan": True,
                "maxPages": 50,
                "scanDepth": 5,
                "maxRetries": 3,
                "customPages": ["/page1", "/page2"],
                "accept_selector": "button[data-role='accept']",
                "schedule": {"frequency": "daily", "time": {"hour": 2, "minute": 0}},
            },
        }
    ]
}


@contextmanager
def published() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(SCHEDULES).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/schedules"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(params=["sqlite_url", "pg_url"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """What such a program finds in its environment, and an API with its schedules."""
    monkeypatch.chdir(tmp_path)
    with published() as url:
        values = {
            "DATABASE_URL": request.getfixturevalue(request.param),
            "JOB_REPLACE_EXISTING_INSTANCE": "True",
            "JOB_MAX_INSTANCES": "1",
            "JOB_COALESCE": "true",
            "JOB_MISFIRE_GRACE_TIME": "300",
            "REQUEST_TIMEOUT": "10",
            "API_URL": url,
            "HTTP_ALLOW_HOSTS": "127.0.0.1",
            # A scan fails at once: what is tested is what becomes of it.
            "FLOODMARK_CHROMIUM": "/bin/false",
            "PARSER_RETRY_MAX": "0",
            "SHUTDOWN_GRACE": "1",
            "PORT": "0",
        }
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        asyncio.run(migrated(values["DATABASE_URL"]))
        yield


async def migrated(url: str) -> None:
    database = open_database(url, events=Events())
    await migrate(database)
    await database.close()


def eventually(look: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


@pytest.mark.spec("E3", "E5", "E6", "E11")
@pytest.mark.usefixtures("environment")
@pytest.mark.thorough
def test_the_program_runs() -> None:
    assert get_db_connection().ping()
    assert not get_redis_client().ping(), "there is none"

    repo = get_schedule_repository()
    schedule_id = repo.create_schedule(
        domain_config_id="def-456",
        domain="shop.invalid",
        frequency="daily",
        time_config={"hour": 2, "minute": 0},
        enabled=True,
    )
    assert repo.update_schedule(
        schedule_id=schedule_id, frequency="weekly", time_config={"day": "monday", "hour": 2, "minute": 0}
    )
    [found] = repo.get_schedules_by_domain("shop.invalid")
    told = (found["schedule_id"], found["domain_config_id"], found["frequency"], found["enabled"])
    assert told == (schedule_id, "def-456", "weekly", True)
    assert repo.get_schedules_by_config_id("def-456") == [found] == repo.get_all_schedules(enabled=True)
    with pytest.raises(InvalidInput, match="frequency"):
        repo.create_schedule("x", "other.invalid", "yearly", {})

    scheduler = EnhancedScheduler(
        max_workers=5, enable_api_sync=True, api_sync_interval=300, schedule_check_interval=60
    )
    settings = scheduler.settings
    assert (settings.max_workers, settings.sync_interval.seconds, settings.schedule_check_interval.seconds) == (
        5,
        300,
        60,
    )
    assert scheduler.sync_schedules_from_api() == {"created": 1, "updated": 0, "skipped": 0}
    scheduler.start()
    try:
        with pytest.raises(InvalidInput, match="runs already"):
            scheduler.start()
        assert scheduler.sync_schedules_from_api() == {"created": 0, "updated": 0, "skipped": 1}
        assert {row["domain"] for row in repo.get_all_schedules()} == {"example.com", "shop.invalid"}
        eventually(lambda: (repo.get_schedule(schedule_id) or {}).get("next_run"))
        _wait(lambda operations: operations.run_job(schedule_id), settings)
        history = get_job_history()
        recent = eventually(lambda: [row for row in history.get_recent_executions(hours=24) if row["completed_at"]])
    finally:
        scheduler.stop()

    assert [(row["schedule_id"], row["domain"], row["status"]) for row in recent] == [
        (schedule_id, "shop.invalid", "failed")
    ]
    assert recent[0]["error_message"]
    assert history.get_executions_by_schedule(schedule_id) == recent
    stats = history.get_execution_statistics(days=7)
    assert (stats["total_executions"], stats["failed"], stats["success_rate"]) == (1, 1, 0.0)
    assert history.cleanup_old_executions(days=90) == 0
    assert repo.delete_schedule(schedule_id)
    assert not repo.delete_schedule(schedule_id)
    assert repo.get_schedule(schedule_id) is None


@pytest.mark.spec("E11", "G9")
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="API_URL"):
        EnhancedScheduler(enable_api_sync=True)
    assert EnhancedScheduler(enable_api_sync=False).settings.api_url is None
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("STARTUP_WAIT", "0.5s")
    assert not get_db_connection().ping()
    with pytest.raises(Unavailable):
        run_enhanced_scheduler()


@pytest.mark.spec("V13")
async def test_a_process_fires_nothing_while_the_old_scheduler_does(sqlite_url: str) -> None:
    settings = Settings(database_url=sqlite_url, scheduler_v2_enabled=False)
    with capture_logs() as logs:
        async with served(Floodmark(settings)) as found:
            assert await found.resources.leases.holder(settings.scheduler_leader_key) is None
            assert [
                info.role for info in await FleetRepository(found.resources.database, found.resources.clock).workers()
            ] == ["worker"]
    assert any("SCHEDULER_V2_ENABLED" in line["event"] for line in logs)
    with pytest.raises(InvalidInput, match="SCHEDULER_V2_ENABLED"):
        await Floodmark(settings).serve(worker=False)
