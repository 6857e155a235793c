"""Packages that take long to import are imported only by the commands and processes that use them."""

import subprocess
import sys
from pathlib import Path

_ROLES = "import floodmark.app, floodmark.runtime.scheduler_role, floodmark.runtime.worker_role"
_LS = """
from floodmark.cli import main
sys.argv = ["floodmark", "ls"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
"""


def _imported(code: str, wanted: set[str], folder: Path) -> list[str]:
    """Return which of these modules a new process has imported after it has run `code`."""
    code = f"import sys\n{code}\nprint('imported', *({wanted!r} & set(sys.modules)))"
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()[-1].split()[1:]


def test_without_redis_and_traces_their_clients_are_not_imported(tmp_path: Path) -> None:
    assert _imported(_ROLES, {"redis", "opentelemetry.sdk"}, tmp_path) == []


def test_a_command_on_sqlite_imports_only_what_it_uses(tmp_path: Path) -> None:
    """`ls` finds a database with the newest schema, as nearly every command does."""
    subprocess.run([sys.executable, "-m", "floodmark", "migrate"], cwd=tmp_path, capture_output=True, check=True)
    others = {
        "aiohttp",
        "alembic",
        "asyncpg",
        "fastapi",
        "httpx",
        "prometheus_client",
        "redis",
        "sqlalchemy.dialects.postgresql",
        "sqlalchemy.orm",
        "structlog",
        "telethon",
        "uvicorn",
    }
    assert _imported(_LS, {"sqlalchemy", *others}, tmp_path) == ["sqlalchemy"]


def test_a_program_can_still_import_the_sessions_of_sqlalchemy(tmp_path: Path) -> None:
    code = """
from floodmark.store.async_engine import AsyncEngine
from sqlalchemy.ext import asyncio
from sqlalchemy.ext.asyncio import AsyncSession
assert asyncio.AsyncEngine is AsyncEngine and asyncio.AsyncSession is AsyncSession
"""
    assert _imported(code, {"sqlalchemy.orm"}, tmp_path) == ["sqlalchemy.orm"]
